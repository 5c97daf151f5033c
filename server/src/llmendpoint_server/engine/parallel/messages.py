"""What rank 0 tells the other ranks, over a socket to each: plain numbers, a frame a step.

A socket, and not a broadcast of torch.distributed: that has a time limit, which an idle engine would exceed, and on CUDA it would need a
group of its own on the host. The end of the socket also shows that the other process has ended.

A frame is its kind and its length, two uint32, and a body. A step's body is int32: a head of NUMBERS numbers for each row, then all
token ids, then what is new of all block tables. Tables are large and change little: a rank keeps those of the step before.
"""

from __future__ import annotations

import enum
import select
import socket
import struct
from array import array
from collections.abc import Sequence as Rows

import msgspec

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.protocol import Configure

_FRAME = struct.Struct("=II")
PAGES = struct.Struct("=QQ")
"""The body of `Kind.PAGES`: how many pages a backend has, and the tokens of one."""
ROOM = struct.Struct("=QQQ")
"""The body of `Kind.ROOM`: the most rows and tokens of a step, and the tokens of the longest sequence."""
COUNT = struct.Struct("=I")
"""The body of `Kind.RAISED`."""
ALIKE_SECONDS = 10.0
"""How long a rank whose step raised waits for the others to say the same."""
NUMBERS = 8
"""Of a row: where it starts, its tokens, those of its draft, whether it samples, the positions that it scores (start, stop), the pages of
its table that are those of the step before, and how many follow them."""
_NOBODY = Request("step", (0,), SamplingParams(1, temperature=0))


class Kind(enum.IntEnum):
    JOIN = 1
    """to a rank, first: `Join`"""
    JOINED = 2
    """from a rank: it has started, and can reach the others"""
    FAILED = 3
    """from a rank, last: `Failed`"""
    PAGES = 4
    """to a rank: make a backend of so many pages, and forget the one before"""
    STEP = 5
    LEAST = 6
    """to a rank: take part in finding the least free memory"""
    RAISED = 7
    """from a rank: the step raised, after so many collectives (`COUNT`)"""
    GO_ON = 8
    """to a rank, after RAISED: it raised here and on all other ranks alike"""
    ROOM = 9
    """to a rank: make room in the backend for the largest steps"""


class Join(msgspec.Struct, frozen=True):
    """Which model to load, as which rank. `port`: where the ranks find each other."""

    settings: Configure
    rank: int
    port: int


class Failed(msgspec.Struct, frozen=True):
    cause: str
    exit_code: int


class Line:
    """One end of the socket between rank 0 and another rank. Raises EOFError when the other end is closed."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream

    def send(self, kind: Kind, body: bytes = b"") -> None:
        try:
            self.stream.sendall(_FRAME.pack(kind, len(body)) + body)
        except OSError as error:
            raise EOFError from error

    def receive(self) -> tuple[Kind, bytes]:
        kind, length = _FRAME.unpack(self._read(_FRAME.size))
        return Kind(kind), self._read(length)

    def comes(self, seconds: float) -> bool:
        """Whether something can be read within this time: a frame, or the end."""
        return bool(select.select([self.stream], [], [], seconds)[0])

    def _read(self, size: int) -> bytes:
        found = bytearray(size)
        view, at = memoryview(found), 0
        while at < size:
            try:
                count = self.stream.recv_into(view[at:])
            except OSError as error:
                raise EOFError from error
            if not count:
                raise EOFError
            at += count
        return bytes(found)


class Told(Scheduled, frozen=True, gc=False):
    """A row as another rank knows it: its `given` tokens, and the rows of logits that are wanted. The tokens of its draft are among
    `given`; `draft` has their number alone."""

    given: tuple[int, ...] = ()
    samples: bool = False
    scores: range = range(0)

    @property
    def sample(self) -> bool:
        return self.samples

    @property
    def scored(self) -> range:
        return self.scores

    @property
    def token(self) -> int:
        return self.given[0]

    @property
    def tokens(self) -> list[int]:
        return list(self.given)


class StepWriter:
    """Rank 0's side. It knows which tables the others have."""

    def __init__(self) -> None:
        self._known: list[list[int]] = []

    def forget(self) -> None:
        self._known = []

    def write(self, batch: Batch) -> bytes:
        """A step's body. Raises what a row of bad state raises; then nothing has changed."""
        heads, ids, pages = array("i", [len(batch.rows)]), array("i"), array("i")
        tables = [list(row.sequence.table) for row in batch.rows]
        for place, (row, table) in enumerate(zip(batch.rows, tables, strict=True)):
            known = self._known[place] if place < len(self._known) else []
            kept = len(known) if table[: len(known)] == known else 0
            scored = row.scored
            heads.extend(
                (row.start, row.count, len(row.draft), row.sample, scored.start, scored.stop, kept, len(table) - kept)
            )  # fmt: skip
            ids.extend(row.tokens)
            pages.extend(table[kept:])
        self._known = tables + self._known[len(tables) :]
        return (heads + ids + pages).tobytes()


class StepReader:
    """Another rank's side."""

    def __init__(self) -> None:
        self._tables: list[list[int]] = []

    def forget(self) -> None:
        self._tables = []

    def read(self, body: bytes) -> Batch:
        numbers = array("i", body)
        rows = numbers[0]
        heads = [numbers[1 + NUMBERS * place : 1 + NUMBERS * (place + 1)] for place in range(rows)]
        at = 1 + NUMBERS * rows
        pages = at + sum(head[1] for head in heads)
        found = []
        for place, (start, count, drafted, samples, first, last, kept, new) in enumerate(heads):
            if place == len(self._tables):
                self._tables.append([])
            table = self._tables[place] = self._tables[place][:kept] + numbers[pages : pages + new].tolist()
            given = tuple(numbers[at : at + count])
            at, pages = at + count, pages + new
            found.append(_row(start, count, drafted, given, bool(samples), range(first, last), table))
        return Batch(tuple(found), 0.0)


def _row(
    start: int, count: int, drafted: int, given: Rows[int], samples: bool, scores: range, table: list[int]
) -> Told:
    sequence = Sequence(_NOBODY, 0, [], [], table=table)
    return Told(sequence, start, count, (0,) * drafted, tuple(given), samples, scores)
