"""What is sent: bodies by OpenAI's schema, valid bodies with one value replaced, broken JSON, and odd requests.

Values are extreme in the ways that ended servers before: integers beyond 64 bits, floats that underflow, long strings,
many items, deep nesting. Each is drawn as a small description, so that hypothesis stays quick, and written out last.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import schemathesis
from hypothesis import strategies as st
from schemathesis.generation import GenerationMode

from llmendpoint_server.api.schemas import ChatBody, CompletionBody
from tests.fuzz import nested
from tests.fuzz.openapi import CHAT, DOCUMENT, TEXT

MODEL = "team/fuzz"

JSON_TYPE = "application/json"


@dataclass(frozen=True)
class Request:
    """One request. `leaves`: seconds after which the client hangs up; None: it reads to the end."""

    body: bytes
    path: str = CHAT
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": JSON_TYPE})
    leaves: float | None = None


@dataclass(frozen=True)
class Repeated:
    """JSON text, so many times between two others: a long string, a long list or a deep nesting."""

    before: str
    item: str
    count: int
    after: str = field(repr=False)

    def written(self) -> str:
        return self.before + self.item * self.count + self.after


COUNTS = (2, 5, 300, 3000)
REPEATED = tuple(
    Repeated(*text, count, end)
    for text, end in (
        (('"', "x"), '"'),
        (('"', "\\u0000"), '"'),
        (('"', "\\ud800"), '"'),
        (("[0", ",1"), "]"),
        (("[0", ",1.5"), "]"),
        (('[""', ',"a"'), "]"),
        (("[{}", ",{}"), "]"),
        (("[[]", ",[]"), "]"),
        (('[{"role":"user","content":""}', ',{"role":"user","content":""}'), "]"),
    )
    for count in COUNTS
) + tuple(
    Repeated("", opening, count, middle + closing * count)
    for opening, middle, closing in (("[", "", "]"), ('{"a":', "0", "}"))
    for count in COUNTS
)

NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 127, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400),
    *(0.0, -0.0, 1e-46, 1e-45, 1e-320, 1e-7, 0.5, 0.999999999, 1.0, 1.5, 2.0, 1e38, 1e308, -1e308),
    *(float("nan"), float("inf"), float("-inf")),
)  # fmt: skip
OTHERS: tuple[Any, ...] = (
    None,
    True,
    False,
    "",
    "a",
    "\x00",
    "🙂",
    "</s>",
    [],
    [[]],
    [None],
    {},
    {"type": "text"},
    "1",
)

VALUES = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(OTHERS),
    st.sampled_from(REPEATED),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.one_of(st.integers(), st.text(max_size=5)), max_size=6),
)

FIELDS = (
    *dict.fromkeys((*ChatBody.__struct_fields__, *CompletionBody.__struct_fields__)),
    *("functions", "function_call", "chat_template", "guided_decoding_backend", "x" * 2000, "", "\x00"),
)
"""What is replaced or added: fields that are served, fields that are not, and names that nobody has."""


def written(value: Any) -> str:
    match value:
        case Repeated():
            return value.written()
        case dict():
            return "{" + ",".join(f"{json.dumps(name)}:{written(one)}" for name, one in value.items()) + "}"
        case list():
            return "[" + ",".join(map(written, value)) + "]"
        case _:
            return json.dumps(value)


def object_of(fields: list[tuple[str, Any]]) -> bytes:
    """A JSON object; a name may come twice."""
    return ("{" + ",".join(f"{json.dumps(name)}:{written(value)}" for name, value in fields) + "}").encode()


def valid(path: str) -> list[tuple[str, Any]]:
    asked = ("prompt", "Hello") if path == TEXT else ("messages", [{"role": "user", "content": "Hello"}])
    return [("model", MODEL), asked, ("max_tokens", 2)]


@st.composite
def replaced(draw: st.DrawFn) -> Request:
    """A valid body in which one to three values are extreme."""
    path = draw(st.sampled_from((CHAT, TEXT)))
    changes = draw(st.lists(st.tuples(st.sampled_from(FIELDS), VALUES), min_size=1, max_size=3))
    kept = [(name, value) for name, value in valid(path) if name not in dict(changes)]
    leaves = draw(st.sampled_from((None, None, None, None, 0.0, 0.002, 0.02)))
    return Request(object_of([*kept, *changes]), path, leaves=leaves)


@st.composite
def sampled(draw: st.DrawFn) -> Request:
    """Valid sampling parameters in any combination: what the engine itself must bear."""
    path = draw(st.sampled_from((CHAT, TEXT)))
    optional = {
        "temperature": st.one_of(st.sampled_from((0, 1e-46, 1e-30, 1.0, 2.0)), st.floats(0, 2)),
        "top_p": st.one_of(st.sampled_from((1e-46, 1e-30, 1.0)), st.floats(0, 1, exclude_min=True)),
        "top_k": st.sampled_from((-1, 0, 1, 2, 50, 10**6, 2**31 - 1, 2**63)),
        "seed": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        "stop": st.lists(st.text(min_size=1, max_size=4), max_size=4),
        "stop_token_ids": st.lists(st.integers(0, 50_000), max_size=8),
        "stream": st.booleans(),
        "max_tokens": st.integers(1, 12),
        "ignore_eos": st.booleans(),
        "frequency_penalty": st.floats(-2, 2),
        "presence_penalty": st.floats(-2, 2),
        "repetition_penalty": st.one_of(st.sampled_from((0.01, 1.0, 10.0)), st.floats(0.01, 10)),
        "min_p": st.one_of(st.sampled_from((1e-46, 1.0)), st.floats(0, 1)),
        "logit_bias": st.dictionaries(st.integers(0, 1760).map(str), st.floats(-100, 100), max_size=6),
        "min_tokens": st.integers(0, 12),
        "n": st.integers(1, 4),
        "prompt_logprobs": st.integers(0, 5),
        "logprobs": st.booleans() if path == CHAT else st.integers(0, 5),
        "return_token_ids": st.booleans(),
        "include_stop_str_in_output": st.booleans(),
        "skip_special_tokens": st.booleans(),
        "truncate_prompt_tokens": st.sampled_from((-1, 1, 2, 100)),
    }
    chosen = draw(st.fixed_dictionaries({}, optional=optional))
    kept = [(name, value) for name, value in valid(path) if name not in chosen]
    return Request(object_of([*kept, *chosen.items()]), path)


@st.composite
def broken(draw: st.DrawFn) -> Request:
    """A valid body of which a few bytes are replaced, removed or repeated; or bytes of any kind."""
    if draw(st.booleans()):
        return Request(draw(st.binary(max_size=200)), draw(st.sampled_from((CHAT, TEXT))))
    path = draw(st.sampled_from((CHAT, TEXT)))
    body = bytearray(object_of(valid(path)))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(body)))
        end = start + draw(st.integers(0, 6))
        body[start:end] = draw(
            st.one_of(st.binary(max_size=6), st.sampled_from((b"{", b"[", b'"', b"\\", b"\xff\xfe")))
        )
    return Request(bytes(body), path)


PATHS = (
    *("/v1/models", "/v1/models/team%2Ffuzz", "/v1/models/team/fuzz", "/team/fuzz/v1/chat/completions"),
    *("/v1/chat/completions/", "//v1/completions", "/v1/../v1/completions", "/v1/%2e%2e/completions", "/", "/%00"),
    *("/v1/batches", "/v1/files", "/v1/load_lora_adapter", "/team/none/v1/completions", "/v1/" + "a" * 3000),
    *("/v1/completions?" + "q=1&" * 500, "/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
    *("/v1/tokenize", "/v1/detokenize", "/v1/rerank", "/v1/score", "/openapi.json", "/v1/audio/speech", "/v1/stream"),
)  # fmt: skip
TYPES = (JSON_TYPE, "text/plain", "multipart/form-data; boundary=x", "application/json; charset=utf-16", "")
ODD_HEADERS: tuple[dict[str, str], ...] = (
    {"x-request-id": "a" * 500},
    {"x-gateway-cluster": "control", "x-gateway-destination-endpoint": "127.0.0.1:1"},
    {"authorization": "Bearer " + "k" * 200},
    {"content-encoding": "gzip"},
    {"upgrade": "h2c", "connection": "upgrade, http2-settings", "http2-settings": "AAMAAABkAAQAAP__"},
    {"expect": "100-continue"},
    {"x-forwarded-for": "1.2.3.4, " * 50},
    {},
)


@st.composite
def odd(draw: st.DrawFn) -> Request:
    """A valid body under another path, method, type or header."""
    path = draw(st.sampled_from((CHAT, *PATHS)))
    method = draw(st.sampled_from(("POST", "POST", "GET", "HEAD", "OPTIONS", "DELETE", "PUT", "PATCH")))
    headers = {"content-type": draw(st.sampled_from(TYPES)), **draw(st.sampled_from(ODD_HEADERS))}
    body = object_of(valid(TEXT if "chat" not in path else CHAT))
    if headers.get("content-encoding") == "gzip" and draw(st.booleans()):
        body = gzip.compress(body)
    return Request(b"" if method in ("GET", "HEAD") else body, path, method, headers)


def at_any_depth() -> st.SearchStrategy[Request]:
    return nested.changed(VALUES).map(lambda one: Request(written(one[1]).encode(), one[0]))


def grammars() -> st.SearchStrategy[Request]:
    return nested.grammars(VALUES).map(
        lambda one: Request(written(one[1]).encode("utf-8", "replace"), one[0])
    )


def by_schema(mode: GenerationMode) -> st.SearchStrategy[Request]:
    """Bodies that schemathesis makes of OpenAI's schema: by it, or against it."""
    schema = schemathesis.openapi.from_dict(DOCUMENT)

    def request(case: Any) -> Request:
        body = case.body
        return Request(body if isinstance(body, bytes) else json.dumps(body).encode(), case.path)

    operations = [schema[path]["POST"].as_strategy(generation_mode=mode) for path in (CHAT, TEXT)]
    return st.one_of(*operations).map(request)


def kinds() -> Iterator[tuple[str, int, st.SearchStrategy[Request]]]:
    """Name, share of all bodies in percent, and strategy."""
    yield "by OpenAI's schema", 10, by_schema(GenerationMode.POSITIVE)
    yield "against OpenAI's schema", 10, by_schema(GenerationMode.NEGATIVE)
    yield "extreme values", 20, replaced()
    yield "extreme values at any depth", 20, at_any_depth()
    yield "grammars", 8, grammars()
    yield "sampling parameters", 20, sampled()
    yield "broken JSON", 6, broken()
    yield "odd requests", 6, odd()
