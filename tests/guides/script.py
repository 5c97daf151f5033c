"""One bash script of a page, and whether what it printed is what the page says. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.guides.page import Commands, File, Step

_HASH = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{10}\b")
_TIME = re.compile(r"(?<![\w.])\d+(\.\d+)? ?(ms|s|m|h|d)\b|\b\d{4}-\d\d-\d\dT[\d:.]+Z")
_SPACES = re.compile(r"[ \t]+")


def make_script(steps: Sequence[Step]) -> str:
    """All steps in one shell that ends at the first failure. What the n-th commands print goes to the file `n.out`."""
    parts = ["set -euo pipefail"]
    count = 0
    for step in steps:
        if isinstance(step, File):
            parts.append(f"cat > '{step.name}' <<'END_OF_THE_FILE'\n{step.content}END_OF_THE_FILE")
        else:
            parts.append(f"{{\n{step.text.rstrip()}\n}} > {output_name(count)} 2>&1")
            count += 1
    return "\n".join(parts) + "\n"


def output_name(number: int) -> str:
    return f"{number}.out"


def matches(expected: str, printed: str) -> bool:
    """Whether it is what the page says. `…` stands for anything, alone on a line for any lines; times, and the hashes of
    revisions, may be others; spaces are one space."""
    lines = [_pattern(line) for line in _alike(expected).splitlines()]
    return (
        re.fullmatch("".join(lines), "".join(f"{line}\n" for line in _alike(printed).splitlines()))
        is not None
    )


def _pattern(line: str) -> str:
    if line.strip() == "…":
        return r"(?:.*\n)*"
    return ".*".join(re.escape(part) for part in line.split("…")) + r"\n"


def _alike(text: str) -> str:
    without = _TIME.sub("TIME", _HASH.sub("HASH", text))
    return "\n".join(_SPACES.sub(" ", line).rstrip() for line in without.strip().splitlines())


def story(commands: Sequence[Commands], outputs: Sequence[str]) -> str:
    """What was typed and what came of it, as far as it went."""
    return "\n".join(
        f"$ {typed.text.rstrip()}\n{printed.rstrip()}"
        for typed, printed in zip(commands, outputs, strict=False)
    )
