"""Scans a request's body for the fields that the gateway uses, without building it.

A tree of Python objects takes many times the memory of its text. A scan reads the bytes once and keeps a few of them,
whatever the body holds. The engine judges the rest.
"""

import msgspec

from llmendpoint_gateway.core.identity.caller import MASK
from llmendpoint_gateway.core.request.prompt import EXPECTED_OUTPUT, LAST_BYTES, Prompt, hint, make_chain
from llmendpoint_gateway.core.request.request import Body

MOST_MODEL_BYTES = 512
"""Bytes of the JSON text of `model`. The longest name of an endpoint has 128 characters."""
QUOTE = ord('"')
MOST_DIGITS = 9
DIGITS = frozenset(b"0123456789")
SMALL_BYTES = 64 << 10
"""A prompt of this size is copied whole, which is faster than block by block."""


class _Fields(msgspec.Struct, gc=False):
    model: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    stream: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _PromptFields(_Fields, gc=False):
    """Also what an engine computes a prompt from, and how much of an answer it may compute."""

    tools: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    system: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    instructions: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    messages: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    prompt: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    input: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    max_tokens: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    max_completion_tokens: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    max_output_tokens: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    cache_salt: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    prompt_cache_key: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    user: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_DECODER = msgspec.json.Decoder(_Fields)
_PROMPT_DECODER = msgspec.json.Decoder(_PromptFields)
_STRING = msgspec.json.Decoder(str)


def scan(body: memoryview | bytes, prompted: bool = False) -> Body:
    """If a name occurs twice, the last one counts, as in JSON libraries. `prompted`: the body has a prompt, which later
    ones may continue."""
    print_, model, stream, problem = hash(memoryview(body)) & MASK, "", False, ""
    prompt = None
    try:
        fields = _PROMPT_DECODER.decode(body) if prompted else _DECODER.decode(body)
        if isinstance(fields, _PromptFields):
            prompt = _prompt(fields)
        stream = fields.stream is not msgspec.UNSET and bytes(fields.stream) == b"true"
        model = _model(fields.model)
        if not model:
            problem = "You must provide a `model` (a string); GET /v1/models lists what there is."
    except _TooLong as error:
        problem = f"`model` takes {error.args[0]} bytes; a name takes {MOST_MODEL_BYTES} at most."
    except msgspec.ValidationError:
        problem = "The request body must be a JSON object."
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = (
            f"The request body is not valid JSON: {error}" if len(body) else "The request body is empty."
        )
    except RecursionError:
        problem = "The request body is nested too deeply."
    return Body(len(body), print_, model, stream, problem, prompt)


class _TooLong(Exception):
    pass


def _model(raw: msgspec.Raw | msgspec.UnsetType) -> str:
    """The model's name; empty if the value is no string."""
    if raw is msgspec.UNSET:
        return ""
    text = memoryview(raw)
    if text[0] != QUOTE:
        return ""
    if len(text) > MOST_MODEL_BYTES:
        raise _TooLong(len(text))
    return _STRING.decode(text)


def _prompt(fields: _PromptFields) -> Prompt:
    """The parts in the order in which chat templates put them into one text."""
    found = (
        fields.tools,
        fields.system,
        fields.instructions,
        fields.messages,
        fields.prompt,
        fields.input,
    )
    parts = [raw for raw in found if raw is not msgspec.UNSET]
    views = [memoryview(raw) for raw in parts]
    chain = make_chain(_text(views), _hint(fields.cache_salt))
    session = _hint(fields.prompt_cache_key) or _hint(fields.user)
    return Prompt(chain, sum(map(len, views)), _output(fields), session)


def _text(views: list[memoryview]) -> bytes | memoryview:
    """What the chain is made of: a copy, but not of a large text."""
    if len(views) == 1:
        return bytes(views[0]) if len(views[0]) <= SMALL_BYTES else views[0]
    found, room = [], LAST_BYTES
    for view in views:
        found.append(view[:room])
        room -= len(found[-1])
    return b"".join(found)


def _hint(raw: msgspec.Raw | msgspec.UnsetType) -> int:
    """0 if it is absent or no string."""
    if raw is msgspec.UNSET:
        return 0
    text = memoryview(raw)
    return hint(text) if text[0] == QUOTE else 0


def _output(fields: _PromptFields) -> int:
    """Tokens that the answer may have. The engine judges the number."""
    for raw in (fields.max_tokens, fields.max_completion_tokens, fields.max_output_tokens):
        if raw is not msgspec.UNSET:
            text = memoryview(raw)
            return (
                min(int(text), EXPECTED_OUTPUT)
                if len(text) <= MOST_DIGITS and DIGITS.issuperset(text)
                else EXPECTED_OUTPUT
            )
    return EXPECTED_OUTPUT
