"""Scans a request's body for the fields that the gateway uses, without building it.

A tree of Python objects takes many times the memory of its text. A scan reads the bytes once and keeps a few of them,
whatever the body holds. The engine judges the rest.
"""

import msgspec

from llmendpoint_gateway.core.identity.caller import MASK
from llmendpoint_gateway.core.request.request import Body

MOST_MODEL_BYTES = 512
"""Bytes of the JSON text of `model`. The longest name of an endpoint has 128 characters."""
QUOTE = ord('"')


class _Fields(msgspec.Struct, gc=False):
    model: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    stream: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_DECODER = msgspec.json.Decoder(_Fields)
_STRING = msgspec.json.Decoder(str)


def scan(body: memoryview | bytes) -> Body:
    """If a name occurs twice, the last one counts, as in JSON libraries."""
    print_, model, stream, problem = hash(memoryview(body)) & MASK, "", False, ""
    try:
        fields = _DECODER.decode(body)
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
    return Body(len(body), print_, model, stream, problem)


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
