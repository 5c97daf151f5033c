"""A guide as steps: the files that its reader saves, and the commands that its reader types.

| block | step |
|---|---|
| ```` ```sh ```` | commands |
| ```` ```text ```` right after commands | what they print |
| ```` ```yaml ````, ```` ```python ````, … with `# file: NAME` as first line | the reader saves it as NAME |

Any other block is an error: nobody would know whether it is true. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "guides"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_NAMED = re.compile(r"# file: ([\w.-]+)\n")
_HEADING = re.compile(r"^## (.+)$", re.M)


class PageError(ValueError):
    """A block that is neither a file, nor commands, nor their output."""


@dataclass(frozen=True)
class File:
    """`content` as the reader saves it."""

    name: str
    content: str


@dataclass(frozen=True)
class Commands:
    """`expected` is what they print, loosely; None: it is not compared."""

    text: str
    expected: str | None = None


Step = File | Commands


@dataclass(frozen=True)
class Page:
    """`name` is the file's, without `.md`."""

    name: str
    text: str
    steps: tuple[Step, ...]

    @property
    def headings(self) -> tuple[str, ...]:
        """Of the second level."""
        return tuple(_HEADING.findall(_FENCE.sub("", self.text)))

    @property
    def commands(self) -> tuple[Commands, ...]:
        return tuple(step for step in self.steps if isinstance(step, Commands))


def pages() -> list[str]:
    """The names of all guides: a new page is found, and so it is run."""
    return sorted(path.stem for path in FOLDER.glob("*.md"))


def read(name: str) -> Page:
    return parse(name, (FOLDER / f"{name}.md").read_text())


def parse(name: str, text: str) -> Page:
    """Raises PageError."""
    steps: list[Step] = []
    end = 0
    for block in _FENCE.finditer(text):
        language, content = block.groups()
        between, end = text[end : block.start()], block.end()
        if language == "sh":
            steps.append(Commands(content))
        elif language == "text":
            steps[-1:] = [_with_output(name, steps, between, content)]
        else:
            steps.append(_file(name, language, content))
    return Page(name, text, tuple(steps))


def _with_output(name: str, steps: list[Step], between: str, content: str) -> Commands:
    last = steps[-1] if steps and not between.strip() else None
    if not isinstance(last, Commands) or last.expected is not None:
        raise PageError(f"{name}: a text block must follow the commands that print it: {content[:60]!r}")
    return replace(last, expected=content)


def _file(name: str, language: str, content: str) -> File:
    named = _NAMED.match(content)
    if named is None:
        raise PageError(
            f"{name}: a block is sh, text, or begins with '# file: NAME': {language} {content[:60]!r}"
        )
    return File(named[1], content)
