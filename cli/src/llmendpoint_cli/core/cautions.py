"""The API server's warnings about a write, as kubectl shows them: a policy that only warns, an unknown field.

They come as headers, `Warning: 299 - "text"` (RFC 7234). Other programs wrote the texts, so their length is bounded,
and control characters for terminals are removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

MOST = 16
"""How many different warnings one command shows."""
LONGEST = 1024
"""Characters of one warning; the API server cuts its own to 256 if there are many."""
_READ = 16 * LONGEST
"""Characters of one header that are read."""

_WARNING = re.compile(r'299 [^\s"]+ "((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


class Cautions:
    """The warnings of one command; each is shown once."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def new_in(self, headers: Iterable[str]) -> list[str]:
        """The warnings of an answer that were not shown yet. Each character of a header stands for a byte."""
        found = []
        for text in _texts(headers):
            if text in self._shown or len(self._shown) > MOST:
                continue
            self._shown.add(text)
            last = len(self._shown) > MOST
            found.append("further warnings of the API server are not shown" if last else text)
        return found


def _texts(headers: Iterable[str]) -> Iterator[str]:
    for header in headers:
        for match in _WARNING.finditer(header[:_READ]):
            text = _plain(_decoded(_ESCAPED.sub(r"\1", match[1])))
            if text:
                yield text


def _decoded(text: str) -> str:
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text


def _plain(text: str) -> str:
    """One line, without control characters and invisible characters."""
    visible = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(visible.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
