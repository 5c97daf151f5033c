"""Commands that download: a network that fails for a moment does not end an hour's work.

A command is tried again, with growing pauses, when its output names a failure that passes by itself: a name server or
a server that does not answer, a connection that breaks, an answer of 5xx. Whatever else fails (404, a wrong hash, no
access, no space) fails the same way again, so it ends the command at once.

    python3 tests/downloads.py pip install …

runs one command that way. `tests/bootstrap.sh` does so before anything is installed, so this file needs Python alone.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PAUSES_S = (3.0, 9.0, 27.0, 60.0)
"""Before the second try, the third, …: a name server that starts again is back within the sum."""

_PASSING = re.compile(
    r"temporary failure|could not resolve|server misbehaving|time(d)?[ -]?out|i/o timeout"
    r"|connection (was )?(reset|refused|closed|aborted)|connection broken|broken pipe|remote end closed|unexpected eof"
    r"|incompleteread|network is unreachable|no route to host|stream error|goaway|error sending request"
    r"|too many requests|internal server error|bad gateway|service unavailable|gateway time-?out"
    r"|(status|code|error|http/[\d.]+)\W{1,3}(code\W{1,2})?(429|50[0234])\b",
    re.IGNORECASE,
)
_LASTING = re.compile(
    r"404\W+(page )?not found|\b(code|error)\W{1,3}40[0134]\b|410 gone|403\W+forbidden|401\W+unauthorized"
    r"|(hash|sum|checksum|digest)\W+(mismatch|sum mismatch)|do not match the hashes|security error"
    r"|no space left on device|certificate verify failed|certificate signed by unknown",
    re.IGNORECASE,
)


def passes_by_itself(output: str) -> bool:
    """Whether the end of a failed command's output names a failure of the moment, and none that stays."""
    return bool(_PASSING.search(output)) and not _LASTING.search(output)


def cause_in(output: str) -> str:
    """The last line that names the failure, else the last line; cut to a readable length."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["no output"]
    named = [line for line in lines if _PASSING.search(line) or _LASTING.search(line)]
    return (named or lines)[-1][:300]


def try_again(
    attempt: Callable[[], T],
    output_of: Callable[[Exception], str | None],
    say: Callable[[str], None],
    pause: Callable[[float], None] = time.sleep,
) -> T:
    """What `attempt` returns. `output_of` gives the output of a failed command, None for any other exception."""
    for seconds in PAUSES_S:
        try:
            return attempt()
        except Exception as error:
            output = output_of(error)
            if output is None or not passes_by_itself(output):
                raise
            say(f"a download failed, next try in {seconds:.0f} s: {cause_in(output)}")
        pause(seconds)
    return attempt()


class _Failed(Exception):
    def __init__(self, code: int, output: str) -> None:
        super().__init__(output)
        self.code = code


def main(command: list[str]) -> int:
    """Run `command` with its output shown; its exit status is that of the last try."""

    def attempt() -> int:
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            tail = ""
            for line in process.stdout:
                print(line, end="", flush=True)
                tail = (tail + line)[-12000:]
        if process.returncode:
            raise _Failed(process.returncode, tail)
        return 0

    try:
        return try_again(
            attempt,
            lambda error: str(error) if isinstance(error, _Failed) else None,
            lambda text: print(text, flush=True),
        )
    except _Failed as error:
        return error.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
