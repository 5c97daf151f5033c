"""What the gateway keeps of a prompt: not its text, but a chain of hashes by which a later prompt that begins with the
same bytes is recognized.

Link i of the chain covers the first BLOCKS[i] bytes. The blocks grow, so a prompt of any length has few links, and two
prompts share a link if they share all bytes up to it. Python's hash of bytes is SipHash with a key of this process: a
caller cannot make two prompts with one hash, and the hashes mean nothing elsewhere.
"""

from bisect import bisect_right
from typing import NamedTuple

FIRST_BYTES, LAST_BYTES = 256, 4 << 20
PER_DOUBLING = 2
BLOCKS = tuple(round(FIRST_BYTES * 2 ** (i / PER_DOUBLING)) for i in range(14 * PER_DOUBLING + 1))
"""Bytes that each link covers, from FIRST_BYTES to LAST_BYTES: 29 links. At least 7 tenths of a shared prefix are
found. Engines share whole pages of 16 tokens or so, and below FIRST_BYTES there is little to save."""
SPANS = tuple(zip((0, *BLOCKS), BLOCKS, strict=False))
BYTES_PER_TOKEN = 4
EXPECTED_OUTPUT = 256
"""Tokens of an answer whose request sets no lower limit."""
SESSION_HEADERS = ("x-llmendpoint-session", "x-session-id")
"""The first that is there names the session."""
LONGEST_HINT = 512
"""Bytes of the JSON text of a session's name, and of a cache salt. A longer one counts by its first bytes."""


class Prompt(NamedTuple):
    """`chain`: the links that the prompt is long enough for. `size`: bytes. `output`: how many tokens its answer may
    have, as far as is known. `session`: a hash of what the caller calls the session; 0: nothing."""

    chain: tuple[int, ...] = ()
    size: int = 0
    output: int = EXPECTED_OUTPUT
    session: int = 0

    def tokens(self, matched: int) -> int:
        """What a replica has to compute, if it still has the first `matched` bytes: about right, and never 0."""
        return (self.size - matched) // BYTES_PER_TOKEN + self.output + 1


def make_chain(text: bytes | memoryview, start: int) -> tuple[int, ...]:
    """The chain over the text. `start`: what else the caches depend on. Of a view one block at a time is copied, because
    the hash of a view needs an owner that has a hash."""
    link, links = start, []
    for begin, end in SPANS[: bisect_right(BLOCKS, len(text))]:
        block = text[begin:end]
        link = hash((link, block if block.__class__ is bytes else bytes(block)))
        links.append(link)
    return tuple(links)


def hint(text: memoryview) -> int:
    """A hash of a session's name or of a salt."""
    return hash(bytes(text[:LONGEST_HINT]))
