"""The channels of gpt-oss: `<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...`.

What is in the channel `analysis` is reasoning. A message with a recipient is a call, whatever its channel. All else is
content. So this reader splits reasoning and calls at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from llmendpoint_server.api.tools.source import (
    NAME,
    Broken,
    GrammarReader,
    NewId,
    Reading,
)

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>", START)
"""What may end a message. A message may also begin without the end of the one before."""
SENDER = re.compile(r"[^<\n]*")
RECIPIENT = re.compile(r"to=([^\s<]+)")


class HarmonyReader(GrammarReader):
    """`calls`: whether a message to a function is a call; otherwise it is content."""

    def __init__(self, new_id: NewId, *, calls: bool = True) -> None:
        super().__init__(new_id)
        self._calls = calls

    def read(self) -> Reading[None]:
        source = self.source
        while True:
            yield from source.skip_space()
            if not (yield from source.peek()):
                break
            try:
                show = yield from self._head()
            except Broken:
                source.at, show = 0, source.content
                yield from source.try_take(START)  # a mark that leads nowhere is dropped
            source.commit()
            end = yield from source.stream_until(ENDS, show)
            if not end:
                return
            if end == START:  # of the next message
                source.text = START + source.text
        source.at = 0

    def _head(self) -> Reading[Callable[[str], None]]:
        """What stands before a message's text. Returns where that text goes."""
        source = self.source
        yield from source.try_take(START)
        sender = yield from source.take(SENDER)
        yield from source.expect(CHANNEL)
        about = yield from source.take_until(MESSAGE)
        channel = about.split()
        if not channel or "<|start|>" in about:
            raise Broken
        recipient = RECIPIENT.search(sender + " " + about)
        name = recipient.group(1).removeprefix("functions.") if recipient else ""
        if name and self._calls and NAME.fullmatch(name):
            source.begin_call(name)
            return source.arguments
        return source.reasoning if channel[0].startswith("analysis") else source.content
