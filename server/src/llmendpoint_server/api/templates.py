"""A model's chat template as transformers renders it: compiled, bounded in time, with the variables that templates know.

Sandboxed: a template comes with the weights, from a third party.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from llmendpoint_server.api.chat_options import PLAIN_CHAT, ChatOptions, Messages, TooSlow

LOOK_EVERY = 256
"""Accesses to a field between two looks at the clock."""


class TemplateRefusal(TemplateError):
    """The template itself called raise_exception()."""


def _refuse(message: str) -> NoReturn:
    raise TemplateRefusal(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON for a template. The arguments, and their order, are those of transformers."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class _PlainNamespace(Namespace):
    """jinja's own, without names that begin with `_`: they would reach into Python."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # so that a template may have a variable `self`
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise TemplateError(f"a namespace holds no name that begins with _, such as {name!r}")


def _make_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


class AnswerMarks(Extension):
    """`{% generation %}…{% endgeneration %}` marks what the assistant says, for training. Here only the inside is kept."""

    tags = {"generation"}  # noqa: RUF012  # as its base has it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Stops a rendering that takes too long, at its next access to a field: what a caller sends can be long enough for
    a template that compares each message with all others."""

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, AnswerMarks])
        self._thread = threading.local()
        self.globals.update(
            raise_exception=_refuse,
            strftime_now=lambda form: datetime.now().strftime(form),
            namespace=_PlainNamespace,
            dict=_make_dict,
        )
        # jinja's own tojson escapes for HTML, which the model would read as text.
        self.filters["tojson"] = _to_json

    def allow(self, seconds: float) -> None:
        """For the next rendering in this thread."""
        self._thread.until, self._thread.accesses = time.monotonic() + seconds, 0

    def getattr(self, obj: Any, attribute: str) -> Any:
        self._look()
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        self._look()
        return super().getitem(obj, argument)

    def _look(self) -> None:
        here = self._thread
        here.accesses = getattr(here, "accesses", 0) + 1
        if here.accesses % LOOK_EVERY == 0 and time.monotonic() > getattr(here, "until", float("inf")):
            raise TooSlow("it takes too long for so many messages")


def compile_template(source: str) -> Template:
    return BoundedEnvironment().from_string(source)


END_OF_TEXT = "\ue000the text goes on here\ue001"
"""Characters of private use: no chat holds them."""


class ChatTemplate:
    """One template, in the terms of transformers' apply_chat_template. `special`: the tokens that templates name."""

    def __init__(self, source: str, special: Mapping[str, Any]) -> None:
        self.source = source
        self._environment = BoundedEnvironment()
        self._template = self._environment.from_string(source)
        self._special = special

    def tree(self) -> nodes.Template:
        """For those who look how it is written."""
        return self._environment.parse(self.source)

    def render(self, messages: Messages, options: ChatOptions = PLAIN_CHAT, seconds: float = 1.0) -> str:
        """Raises TemplateRefusal, TooSlow, or whatever the template's own expressions raise."""
        told = [_with_reasoning(message) for message in messages]
        if options.continue_final:
            told[-1] = _mark_end(told[-1])
        self._environment.allow(seconds)
        text = self._template.render(
            {**self._special, **options.variables},
            messages=told,
            tools=options.tools,
            documents=options.documents,
            add_generation_prompt=options.add_generation_prompt and not options.continue_final,
        )
        if not options.continue_final:
            return text
        before, mark, _ = text.rpartition(END_OF_TEXT)
        if not mark:
            raise TemplateRefusal(
                "it leaves out the text of the last message, so that this cannot be continued"
            )
        return before


REASONING_NAMES = ("reasoning_content", "thinking", "reasoning")


def _with_reasoning(message: Mapping[str, Any]) -> dict[str, Any]:
    """Templates read a message's reasoning under one name or the other; and what is null they take for given."""
    message = {name: value for name, value in message.items() if value is not None or name == "content"}
    said = next((message[name] for name in REASONING_NAMES if name in message), None)
    if said is not None:
        message |= {"reasoning_content": said, "thinking": said, "reasoning": said}
    return message


def _mark_end(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, str):
        return message | {"content": content + END_OF_TEXT}
    if isinstance(content, list) and content:
        last = content[-1]
        return message | {"content": [*content[:-1], last | {"text": last["text"] + END_OF_TEXT}]}
    raise TemplateRefusal("the last message has no text to continue")
