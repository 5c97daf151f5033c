"""How much of everything one Envoy may take: memory, connections, threads, bodies, headers, time. The one place for them.

Envoy holds a request's body until the picker has decided, so its memory is what callers send at one time. Each caller's
part is bounded here (`MAX_BODY_BYTES`, `REQUEST_TIMEOUT`); the sum is bounded by the overload manager, which resets the
requests that hold the most, so that small requests and running answers never notice.
"""

from dataclasses import dataclass

MAX_BODY_BYTES = 32 << 20
LARGE_BODY_BYTES = 1 << 20
"""A body above it, or of unknown length, is collected by the inner listener."""
RETRY_BODY_BYTES = 64 << 10
"""A body up to this size is kept until its answer ends, so that the request can be sent to a second replica. A larger one
is let go as it is sent: with 5,000 open answers even 200 kB each would be 1 GB."""

CONNECTION_BUFFER_BYTES = 1 << 20
"""Of an answer whose reader is slow; more is left with the engine."""

REQUEST_TIMEOUT = "60s"
"""For a request to come in whole: 32 MiB at 4.5 Mbit/s. A request that waits for a replica is whole, and is not meant."""
HEADERS_TIMEOUT = "10s"
STREAM_IDLE_TIMEOUT = "3600s"
"""A stream may be silent for as long as an engine prefills; nothing ends it but its own end."""
IDLE_TIMEOUT = "620s"
"""Of a connection without a request: above the 600 s for which load balancers keep theirs, so that they close first."""

MAX_HEADERS_KB = 64
MAX_HEADERS = 100
MAX_STREAMS = 256
"""Requests at one time on one HTTP/2 connection."""
STREAM_WINDOW_BYTES, CONNECTION_WINDOW_BYTES = 1 << 20, 16 << 20
MAX_RESETS = 200
"""A connection of which more than half of so many requests were taken back within a second is closed (CVE-2023-44487)."""

MAX_CONNECTIONS = 10_000
FILES_PER_CONNECTION = 3
"""The client's, the engine's, and one to spare for pools, logs and sockets."""

HEAP_SHARE = 0.8
"""Of the memory limit. The rest is code, stacks, and what the allocator has not given back yet."""
DEFAULT_MEMORY_BYTES = 1 << 30
DEFAULT_WORKERS = 2

RESET_FROM, RESET_ALL = 0.65, 0.9
"""Shares of the heap. Between them the largest requests are reset: at first those that hold 32 MiB and more, and the fuller
the heap, the smaller ones, down to RESET_POWER. Bodies fill a heap between two looks at it, hence not later."""
RESET_POWER = 18  # of two: 256 KiB; below that a request is never reset for its size
LOOK_EVERY = "0.05s"


@dataclass(frozen=True, slots=True)
class Share:
    """What this Envoy may take of its machine. `memory_bytes` is the limit of its container."""

    memory_bytes: int = DEFAULT_MEMORY_BYTES
    workers: int = DEFAULT_WORKERS
    connections: int = MAX_CONNECTIONS

    @property
    def heap_bytes(self) -> int:
        return int(self.memory_bytes * HEAP_SHARE)


def make_share(memory_limit: int | None, cpu_limit: float | None, open_files: int) -> Share:
    """None: no such limit is set. Without one of CPUs there are few threads all the same, since each holds every
    cluster, and a node may have a hundred cores."""
    workers = DEFAULT_WORKERS if cpu_limit is None else max(1, -int(-cpu_limit // 1))
    connections = max(1, min(MAX_CONNECTIONS, open_files // FILES_PER_CONNECTION))
    return Share(memory_limit or DEFAULT_MEMORY_BYTES, workers, connections)
