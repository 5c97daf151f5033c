"""One line of a batch's input file: what it must have, and what is wrong with it."""

from dataclasses import dataclass

import msgspec

from llmendpoint_batch.core.bounds import LONGEST_ID

SHOWN = 100  # characters of a caller's value in a message


@dataclass(frozen=True, slots=True)
class Line:
    """`body`: the request as the file has it, JSON."""

    custom_id: str
    model: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Fault:
    """`line`: counted from 1, as editors do; None: of the file."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None


class _Line(msgspec.Struct):
    custom_id: msgspec.Raw = msgspec.Raw()
    method: msgspec.Raw = msgspec.Raw()
    url: msgspec.Raw = msgspec.Raw()
    body: msgspec.Raw = msgspec.Raw()


class _Body(msgspec.Struct):
    model: msgspec.Raw = msgspec.Raw()
    stream: msgspec.Raw = msgspec.Raw()


_LINE, _BODY, _TEXT = msgspec.json.Decoder(_Line), msgspec.json.Decoder(_Body), msgspec.json.Decoder(str)
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_line(text: bytes, number: int, endpoint: str) -> Line | Fault:
    """`endpoint`: the batch's, which every line must name."""
    try:
        text.decode()  # the decoder does not look at every byte of what it passes on
        line = _LINE.decode(text)
        body = _BODY.decode(line.body) if bytes(line.body)[:1] == b"{" else None
    except _NO_JSON as error:
        return Fault("invalid_json_line", f"The line is not a JSON object: {_short(error)}.", None, number)
    custom_id = _string(line.custom_id)
    if not custom_id or len(custom_id) > LONGEST_ID or "\0" in custom_id:
        wanted = f"custom_id must be a text of 1 to {LONGEST_ID} characters without U+0000"
        return Fault("invalid_custom_id", f"{wanted}, {_got(line.custom_id)}.", "custom_id", number)
    if _string(line.method) != "POST":
        return Fault("invalid_method", f'method must be "POST", {_got(line.method)}.', "method", number)
    if _string(line.url) != endpoint:
        wanted = f'url must be the endpoint of the batch, "{endpoint}"'
        return Fault("mismatched_url", f"{wanted}, {_got(line.url)}.", "url", number)
    if body is None:
        return Fault("invalid_body", f"body must be an object, {_got(line.body)}.", "body", number)
    model = _string(body.model)
    if not model or "\0" in model:
        wanted = "body.model must name an endpoint"
        return Fault("missing_model", f"{wanted}, {_got(body.model)}.", "body.model", number)
    if bytes(body.stream) not in (b"", b"false", b"null"):
        wanted = "body.stream must be false or missing: a batch keeps whole answers"
        return Fault("invalid_stream", f"{wanted}; {_got(body.stream)}.", "body.stream", number)
    return Line(custom_id, model, bytes(line.body))


def too_long(number: int, most: int) -> Fault:
    return Fault("line_too_long", f"The line is longer than {most} bytes.", None, number)


def too_many(most: int) -> Fault:
    return Fault("too_many_lines", f"The file has more than {most} lines. Make several batches of it.")


def empty() -> Fault:
    return Fault("empty_file", "The file has no line with a request.")


def twice(line: Line, number: int, first: int) -> Fault:
    told = f"custom_id {line.custom_id[:SHOWN]!r} is that of line {first}, too. Each line needs its own."
    return Fault("duplicate_custom_id", told, "custom_id", number)


def other_model(line: Line, number: int, model: str) -> Fault:
    told = (
        f"body.model is {line.model[:SHOWN]!r}, and {model[:SHOWN]!r} in the first line. A batch has one "
        "model: make a batch for each."
    )
    return Fault("mismatched_model", told, "body.model", number)


def _string(raw: msgspec.Raw) -> str | None:
    """None: not a text."""
    return _TEXT.decode(raw) if bytes(raw)[:1] == b'"' else None


def _got(raw: msgspec.Raw) -> str:
    shown = bytes(raw)[:SHOWN].decode(errors="replace")
    return f"got {shown}" if shown else "and it is missing"


def _short(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
