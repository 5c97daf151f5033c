"""Reads ext_proc's messages from Envoy: from bytes to what the gateway keeps of a request."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from llmendpoint_gateway.core.envoy.resources import PRIORITY_HEADER
from llmendpoint_gateway.core.identity.caller import caller_of
from llmendpoint_gateway.core.identity.credentials import HEADERS as CREDENTIALS
from llmendpoint_gateway.core.identity.grants import Identity
from llmendpoint_gateway.core.identity.priority import Priority
from llmendpoint_gateway.core.request.paths import (
    MODEL_HEADER,
    MOST_PATH,
    Asked,
    NoUpgrade,
    Socket,
    read_path,
)
from llmendpoint_gateway.core.request.prompt import SESSION_HEADERS, hint
from llmendpoint_gateway.core.request.request import SHOWN, Head
from llmendpoint_gateway.core.request.trace_context import LONGEST, TRACEPARENT
from llmendpoint_gateway.serve.identity.gate import Gate

JSON = b"application/json"
MEDIA_TYPE = re.compile(rb"application/(?:[\w.+-]*\+)?json\s*(?:;|$)", re.IGNORECASE)
SMALL_BYTES = 64 << 10
BODY_FIELD, BYTES_FIELD = 4, 1
"""Field numbers: of ProcessingRequest.request_body, and of the body in it."""


def read_head(
    message: bytes, trusted_hops: int = 0, declared: Collection[str] = (), gate: Gate | None = None
) -> Head:
    """Read the message with the headers. `declared`: as in `read_path`. `gate`: judges keys; None: they are not looked at.

    The key itself is not kept: a request may live for hours."""
    request = pb.ProcessingRequest.FromString(message)
    headers = request.request_headers
    found: dict[str, bytes] = {header.key: header.raw_value for header in headers.headers.headers}
    who, key, proof = (None, "", None) if gate is None else gate.judge(found, _doubled(headers, found))
    method = found.get(":method", b"")[:SHOWN].decode("latin-1")
    path = found.get(":path", b"").decode("latin-1")
    asked = read_path(method, path, declared)
    if isinstance(asked, Socket):
        asked = _handshake(asked, found)
    known = who if isinstance(who, Identity) else None
    media = found.get("content-type", b"")
    return Head(
        method,
        path[:SHOWN],
        asked,
        (known.caller if known else 0) or caller_of(found.get("x-forwarded-for", b""), trusted_hops),
        _priority(found.get(PRIORITY_HEADER), known),
        # What follows a handshake are frames, which are not for the picker.
        not (headers.end_of_stream or isinstance(asked, Socket)),
        "" if not media or media == JSON or MEDIA_TYPE.match(media) else media[:SHOWN].decode("latin-1"),
        found.get("content-encoding", b"identity").lower() != b"identity",
        _short(found.get(TRACEPARENT, b"")),
        who,
        key,
        gate is not None and not isinstance(asked, Socket) and _without_body(request),
        proof,
        _session(found),
    )


def _doubled(headers: pb.HttpHeaders, found: Mapping[str, bytes]) -> bool:
    """Whether a header that may hold a key came more than once."""
    if len(found) == len(headers.headers.headers):
        return False
    names = Counter(header.key for header in headers.headers.headers)
    return any(names[name] > 1 for name in CREDENTIALS)


def _without_body(request: pb.ProcessingRequest) -> bool:
    """Whether Envoy will send no body here, whatever the request has: its route says so (core/envoy/routes.py)."""
    told: bool = request.HasField("protocol_config")
    return told and bool(request.protocol_config.request_body_mode == ProcessingMode.NONE)


def _handshake(asked: Socket, found: Mapping[str, bytes]) -> Asked:
    """A browser can name the model in the URL only; other clients may do it in a header."""
    if found.get("upgrade", b"").lower() != b"websocket":
        return NoUpgrade()
    if asked.endpoint:
        return asked
    name = found.get(MODEL_HEADER, b"")[:MOST_PATH].decode("utf-8", "replace")
    return replace(asked, endpoint=name.strip())


def _session(found: Mapping[str, bytes]) -> int:
    for name in SESSION_HEADERS:
        if value := found.get(name):
            return hint(memoryview(value))
    return 0


def _short(text: bytes) -> str:
    return text.decode("latin-1") if len(text) <= LONGEST else ""


def _priority(text: bytes | None, who: Identity | None) -> Priority:
    """What the request asks for, and not more than its caller may."""
    asked = Priority.NORMAL
    if text is not None:
        name = text[:SHOWN].decode("latin-1").strip().upper()
        asked = Priority[name] if name in Priority.__members__ else asked
    return asked if who is None else max(asked, who.priority)


def read_body(message: bytes) -> memoryview:
    """The body. For a large message it is a view of it: protobuf, which is faster, would make two copies of up to 32
    MiB."""
    if len(message) <= SMALL_BYTES:
        return memoryview(pb.ProcessingRequest.FromString(message).request_body.body)
    body = memoryview(b"")
    for field, part in _parts(memoryview(message)):
        if field == BODY_FIELD:
            for inner, content in _parts(part):
                if inner == BYTES_FIELD:
                    body = content
    return body


def _parts(view: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The fields of a protobuf message that have a length. Raises ValueError if the bytes are no such message."""
    at = 0
    while at < len(view):
        key, at = _varint(view, at)
        kind = key & 7
        if kind == 2:
            size, at = _varint(view, at)
            if size > len(view) - at:
                raise ValueError("a field that is longer than its message")
            yield key >> 3, view[at : at + size]
            at += size
        elif kind == 0:
            _, at = _varint(view, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of wire type {kind}")


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    """Returns (value, where the next one begins)."""
    value = shift = 0
    while True:
        if at >= len(view) or shift > 63:
            raise ValueError("a number that is cut off")
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
