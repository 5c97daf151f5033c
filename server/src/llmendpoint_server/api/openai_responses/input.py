"""The items of an input as the messages of a chat. What an answer's items say goes back unchanged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from llmendpoint_server.api.explain import missing, must_be
from llmendpoint_server.api.messages import CalledFunction, MadeCall, Message, Part
from llmendpoint_server.api.openai_responses.bodies import FORMS, InputItem, InputPart
from llmendpoint_server.errors import InvalidRequest

ROLES = ("system", "developer", "user", "assistant")
TEXTS = ("input_text", "output_text", "text", "reasoning_text")
KINDS = ("message", "function_call", "function_call_output", "reasoning")


@dataclass
class _Turn:
    """What the assistant said and called in one go. A chat has one message for it."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[MadeCall] = field(default_factory=list)
    begun: bool = False

    @property
    def spoken(self) -> bool:
        """Its text is complete: what is said now is another message."""
        return bool(self.texts) and not self.calls

    def message(self) -> Message:
        return Message(
            "assistant", "".join(self.texts), tool_calls=self.calls or None, reasoning_content="".join(self.thoughts) or None
        )  # fmt: skip


def to_messages(items: Sequence[InputItem]) -> Iterator[Message]:
    """Raises InvalidRequest, which names the place in the input."""
    turn = _Turn()
    for at, item in enumerate(items):
        place = f"input[{at}]"
        if not _is_assistants(item, place):
            if turn.begun:
                yield turn.message()
                turn = _Turn()
            yield _result(item, place) if item.type == "function_call_output" else _said(item, place)
            continue
        if turn.spoken and item.type != "function_call":
            yield turn.message()
            turn = _Turn()
        _add(turn, item, place)
    if turn.begun:
        yield turn.message()


def _is_assistants(item: InputItem, place: str) -> bool:
    """Raises InvalidRequest for an item of another kind than this server has."""
    if item.type == "item_reference":
        raise InvalidRequest(
            f"{place}.type is 'item_reference', and this server stores no items: send the item itself.",
            param=f"{place}.type",
        )
    if item.type is not None and item.type not in KINDS:
        raise InvalidRequest(
            f"{place}.type is {item.type[:64]!r}, and this server takes text and functions alone: it must be "
            f"{', '.join(map(repr, KINDS[:-1]))} or {KINDS[-1]!r}.",
            param=f"{place}.type",
        )
    if item.type in ("function_call", "reasoning"):
        return True
    if item.type == "function_call_output":
        return False
    if item.role is None:
        raise missing(f"{place}.role")
    if item.role not in ROLES:
        raise must_be(f"{place}.role", FORMS)
    return item.role == "assistant"


def _add(turn: _Turn, item: InputItem, place: str) -> None:
    match item.type:
        case "function_call":
            if (call := _call(item, place)) is not None:
                turn.calls.append(call)
                turn.begun = True
        case "reasoning":
            # Without content it is a summary, or encrypted by another server.
            if item.content:
                turn.thoughts.append(_joined(item.content, f"{place}.content"))
                turn.begun = True
        case _:
            turn.texts.append(_joined(_content(item, place), f"{place}.content"))
            turn.begun = True


def _call(item: InputItem, place: str) -> MadeCall | None:
    """None: it was cut, so that nobody has made it."""
    for name in ("call_id", "name", "arguments"):
        if getattr(item, name) is None:
            raise missing(f"{place}.{name}")
    arguments = item.arguments or "{}"
    if is_object(arguments):
        return MadeCall(CalledFunction(item.name or "", arguments), item.call_id)
    if item.status == "incomplete":
        return None
    raise must_be(f"{place}.arguments", FORMS)


def is_object(text: str) -> bool:
    """Whether it is the JSON of an object, as chat templates need it."""
    try:
        return isinstance(json.loads(text or "{}", strict=False), dict)
    except (ValueError, RecursionError):
        return False


def _result(item: InputItem, place: str) -> Message:
    for name in ("call_id", "output"):
        if getattr(item, name) is None:
            raise missing(f"{place}.{name}")
    return Message("tool", _parts(item.output or "", f"{place}.output"), tool_call_id=item.call_id)


def _said(item: InputItem, place: str) -> Message:
    return Message(item.role or "", _parts(_content(item, place), f"{place}.content"))


def _content(item: InputItem, place: str) -> str | list[InputPart]:
    if item.content is None:
        raise missing(f"{place}.content")
    return item.content


def _parts(content: str | list[InputPart], place: str) -> str | list[Part]:
    if isinstance(content, str):
        return content
    return [Part("text", _text(part, f"{place}[{at}]")) for at, part in enumerate(content)]


def _joined(content: str | list[InputPart], place: str) -> str:
    if isinstance(content, str):
        return content
    return "".join(_text(part, f"{place}[{at}]") for at, part in enumerate(content))


def _text(part: InputPart, place: str) -> str:
    if part.type == "refusal":
        return part.refusal or ""
    if part.type not in TEXTS:
        raise InvalidRequest(
            f"{place}.type is {part.type[:64]!r}, and this server takes text alone: it must be 'input_text', or of an "
            "assistant 'output_text'.",
            param=f"{place}.type",
        )
    if part.text is None:
        raise missing(f"{place}.text")
    return part.text
