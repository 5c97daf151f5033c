"""vLLM's structural tags: an answer of free text and of parts between tags that follow a schema. Both of its forms: `structures` with
`triggers`, and `format`, whose parts hold each other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec

from llmendpoint_server.api.grammars import Asked
from llmendpoint_server.api.tools.writer import ANY_TEXT, TokenOf, Writer, as_lark
from llmendpoint_server.core.grammar import Grammar
from llmendpoint_server.errors import InvalidRequest

KIND: Literal["structural_tag"] = "structural_tag"
DEPTH_MAX, PARTS_MAX, ENDS_MAX = 32, 1_000, 16
Tails = tuple[str, ...]
"""The texts of which one stands behind a part."""
NOTHING: Tails = ("",)
MAYBE_SPECIAL = re.compile(r"<[^<>\s]{1,64}>|\[/?[A-Z_]{1,32}\]")
"""Text that may be a special token of the model."""


class ConstString(msgspec.Struct, tag="const_string", tag_field="type"):
    value: str


class JsonSchema(msgspec.Struct, tag="json_schema", tag_field="type"):
    json_schema: dict[str, Any] | bool


class AnyText(msgspec.Struct, tag="any_text", tag_field="type"):
    pass


class Regex(msgspec.Struct, tag="regex", tag_field="type"):
    pattern: str


class Sequenced(msgspec.Struct, tag="sequence", tag_field="type"):
    elements: list[Part]


class Either(msgspec.Struct, tag="or", tag_field="type"):
    elements: list[Part]


class Tag(msgspec.Struct, tag="tag", tag_field="type"):
    """`end`: of several, any one."""

    begin: str
    content: Part
    end: str | Annotated[list[str], msgspec.Meta(min_length=1, max_length=ENDS_MAX)]

    def tails(self, behind: Tails) -> Tails:
        """Raises ValueError if they are too many."""
        ends = [self.end] if isinstance(self.end, str) else self.end
        ways = tuple(dict.fromkeys(end + tail for end in ends for tail in behind))
        if len(ways) > ENDS_MAX:
            raise ValueError(f"a part in it may end in more than {ENDS_MAX} ways")
        return ways


class TriggeredTags(msgspec.Struct, tag="triggered_tags", tag_field="type"):
    """Free text, in which a trigger begins one of the tags."""

    triggers: list[str]
    tags: list[Tag]
    at_least_one: bool = False
    stop_after_first: bool = False


class TagsWithSeparator(msgspec.Struct, tag="tags_with_separator", tag_field="type"):
    tags: list[Tag]
    separator: str
    at_least_one: bool = False
    stop_after_first: bool = False


Part = (
    ConstString | JsonSchema | AnyText | Regex | Sequenced | Either | Tag | TriggeredTags | TagsWithSeparator
)
KINDS = (
    "const_string, json_schema, any_text, regex, sequence, or, tag, triggered_tags and tags_with_separator"
)


class Structure(msgspec.Struct):
    begin: str
    schema: dict[str, Any] | bool
    end: str


class StructuralTag(msgspec.Struct):
    format: Part | None = None
    structures: list[Structure] | None = None
    triggers: list[str] | None = None

    def part(self) -> Part:
        """Raises ValueError if it has not exactly one of the two forms."""
        if (self.format is None) == (self.structures is None or self.triggers is None):
            raise ValueError("it has either format, or structures and triggers")
        if self.format is not None:
            return self.format
        tags = [Tag(one.begin, JsonSchema(one.schema), one.end) for one in self.structures or ()]
        return TriggeredTags(self.triggers or [], tags)


def read(field: str, text: bytes | str) -> Asked:
    """`text`: the JSON object. Raises InvalidRequest."""
    try:
        asked = Asked(Grammar(KIND, text if isinstance(text, str) else text.decode()), field)
        body(asked.grammar, Writer(lambda _: None, ()))
    except InvalidRequest as error:
        raise InvalidRequest(error.message, param=field) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise InvalidRequest(
            f"{field} must be an object with format, or with structures (a list of objects with begin, schema and end) and triggers; "
            f"the types of a format are {KINDS} ({str(error)[:150]}).",
            param=field,
        ) from None
    return asked


def as_grammar(asked: Asked | None, token_of: TokenOf) -> Asked | None:
    """The same with a structural tag written as a grammar of its own."""
    if asked is None or asked.grammar.kind != KIND:
        return asked
    writer = Writer(token_of, marks(asked.grammar))
    try:
        return Asked(writer.grammar(body(asked.grammar, writer)), asked.field)
    except InvalidRequest as error:
        raise InvalidRequest(error.message, param=asked.field) from None


def marks(grammar: Grammar) -> list[str]:
    """What may be special tokens of the model. Of other kinds of grammars none."""
    if grammar.kind != KIND:
        return []
    texts = _texts(json.loads(grammar.text))
    return sorted({found for text in texts for found in MAYBE_SPECIAL.findall(text)})


def body(grammar: Grammar, writer: Writer) -> str:
    return _Body(writer).start(msgspec.json.decode(grammar.text, type=StructuralTag).part())


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, one in value.items():
            if name not in ("schema", "json_schema"):
                yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, str):
        yield value


class _Body:
    """Writes parts as rules. A text that may be anything ends where a text comes that is known, so each part is written together with what
    follows it. Raises ValueError for what cannot be written so."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._number = 0

    def start(self, part: Part) -> str:
        return self._part(part, NOTHING, last=True, depth=0)

    def _name(self) -> str:
        self._number += 1
        if self._number > PARTS_MAX:
            raise ValueError(f"it has more than {PARTS_MAX} parts")
        return f"part_{self._number}"

    def _part(self, part: Part, tails: Tails, *, last: bool, depth: int) -> str:
        """`tails`: the texts behind it, one of them. `last`: nothing else comes."""
        if depth > DEPTH_MAX:
            raise ValueError(f"its parts are nested more than {DEPTH_MAX} deep")
        writer, name, below = self._writer, self._name(), depth + 1
        match part:
            case ConstString(value):
                return writer.rule(name, self._literals(tuple(value + tail for tail in tails)))
            case JsonSchema(schema):
                return writer.rule(name, f"{writer.json(f'{name}_json', schema)} {self._literals(tails)}")
            case AnyText():
                return writer.rule(name, self._any(name, tails, last=last))
            case Regex(pattern):
                return writer.rule(name, self._matching(name, pattern, tails))
            case Tag(begin, content):
                inside = self._part(content, part.tails(tails), last=False, depth=below)
                return writer.rule(name, f"{writer.literal(begin)} {inside}")
            case Sequenced(elements):
                return writer.rule(name, self._sequence(elements, tails, last=last, depth=below))
            case Either(elements):
                ways = [self._part(one, tails, last=last, depth=below) for one in _some(elements)]
                return writer.rule(name, " | ".join(ways))
            case TriggeredTags():
                return writer.rule(name, self._triggered(name, part, tails, last=last, depth=below))
            case TagsWithSeparator():
                return writer.rule(name, self._separated(part, tails, depth=below))

    def _literals(self, texts: Tails) -> str:
        return self._either([self._writer.literal(text) for text in texts])

    def _either(self, ways: Sequence[str]) -> str:
        return f"({' | '.join(ways)})" if len(ways) > 1 else ways[0]

    def _matching(self, name: str, pattern: str, tails: Tails) -> str:
        writer = self._writer
        return self._either(
            [
                writer.pattern_until(f"{name}_text_{at}", pattern, tail) if tail else as_lark(pattern)
                for at, tail in enumerate(tails)
            ]
        )

    def _any(self, name: str, tails: Tails, *, last: bool) -> str:
        if all(tails):
            return self._either(
                [self._writer.text_until(f"{name}_text_{at}", tail) for at, tail in enumerate(tails)]
            )
        if not last or any(tails):
            raise ValueError("any_text must be the last part, or stand before a const_string or a tag's end")
        return ANY_TEXT

    def _sequence(self, elements: Sequence[Part], tails: Tails, *, last: bool, depth: int) -> str:
        written: list[str] = []
        ahead, final = tails, last
        for one in reversed(_some(elements)):
            if isinstance(one, ConstString):
                ahead = tuple(one.value + text for text in ahead)
                final = False  # the part before it may be any text
                continue
            written.insert(0, self._part(one, ahead, last=final, depth=depth))
            ahead, final = NOTHING, False
        if any(ahead) or not written:
            written.insert(0, self._literals(ahead))
        return " ".join(written)

    def _triggered(self, name: str, part: TriggeredTags, tails: Tails, *, last: bool, depth: int) -> str:
        ways = []
        for at, trigger in enumerate(_some(part.triggers)):
            tags = [tag for tag in part.tags if trigger and tag.begin.startswith(trigger)]
            if not tags:
                raise ValueError("a trigger is the beginning of no tag's begin")
            until = self._writer.text_until(f"{name}_until_{at}", trigger)
            cut = [Tag(tag.begin.removeprefix(trigger), tag.content, tag.end) for tag in tags]
            ends = [self._part(tag, NOTHING, last=False, depth=depth) for tag in cut]
            ways.append(f"{until} ({' | '.join(ends)})")
        if any(not any(tag.begin.startswith(one) for one in part.triggers) for tag in part.tags):
            raise ValueError("a tag begins with none of the triggers")
        once = self._writer.rule(f"{name}_once", " | ".join(ways))
        if part.stop_after_first and part.at_least_one:
            return f"{once} {self._literals(tails)}"
        rest = self._any(f"{name}_rest", tails, last=last)
        if part.stop_after_first:
            return f"{once} {self._literals(tails)} | {rest}"
        return f"{once}{'+' if part.at_least_one else '*'} {rest}"

    def _separated(self, part: TagsWithSeparator, tails: Tails, *, depth: int) -> str:
        one = " | ".join(self._part(tag, NOTHING, last=False, depth=depth) for tag in _some(part.tags))
        separator = f"{self._writer.literal(part.separator)} " if part.separator else ""
        several = f"({one})" if part.stop_after_first else f"({one}) ({separator}({one}))*"
        return f"{several if part.at_least_one else f'({several})?'} {self._literals(tails)}"


def _some(items: Sequence[Any]) -> Sequence[Any]:
    if not items:
        raise ValueError("a list in it is empty")
    return items
