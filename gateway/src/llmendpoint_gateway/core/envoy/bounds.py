"""How much of everything one Envoy may take: memory, connections, threads, bodies, headers, time. The one place for them.

Envoy holds a request's body until the picker has decided, so its memory is what callers send at one time. A body above
SMALL_BODY_BYTES is held on HTTP/2, the callers' own or the inner listener's: there the overload manager resets the largest
requests before the heap is full. It cannot reset a smaller one. So a connection with one request holds at most
HELD_BYTES, and there are no more connections than the heap has room for. Over HTTP/2 a connection may have MAX_STREAMS
requests, so the requests are limited too:

    connections * HELD_BYTES <= heap,    requests <= connections,    requests over HTTP/2 <= connections / 2
"""

from dataclasses import dataclass

MAX_BODY_BYTES = 32 << 20
SMALL_BODY_BYTES = 32 << 10
"""A body up to this size is kept until its answer ends, so that the request can be sent to a second replica. A larger one,
or one of unknown length, is collected by the inner listener."""
KEPT_BODY_BYTES, KEPT_BYTES = 4 << 20, 128 << 20
"""A larger body, up to the first of them, is kept as well while all of these together take no more than the second. Else
Envoy drops it as it is sent: with 5,000 open answers even 200 kB each would be 1 GB."""

CONNECTION_BUFFER_BYTES = 16 << 10
"""Of an answer whose reader is slow, at the caller's connection and at the engine's; more is left with the engine."""
READER_TIMEOUT = 60
"""Seconds. A connection is cut when its caller has read nothing of an answer that waits for so long."""

REQUEST_TIMEOUT = "60s"
"""For a request to come in whole: 32 MiB at 4.5 Mbit/s. A request that waits for a replica is whole, and is not meant."""
HEADERS_TIMEOUT = "10s"
STREAM_IDLE_TIMEOUT = "3600s"
"""A stream may be silent for as long as an engine prefills; nothing ends it but its own end."""
IDLE_TIMEOUT = "620s"
"""Of a connection without a request: above the 600 s for which load balancers keep theirs, so that they close first."""
SHORTER_FROM, SHORTEST_AT = 0.75, 0.9
"""Shares of the connections. Between them that time falls to LEAST_TIMEOUT: who opens them all keeps those with requests."""
CONNECTIONS_LOOK_SECONDS = 0.5

MAX_HEADERS_KB = 16
MAX_HEADERS = 100
MAX_STREAMS = 64
"""Requests at one time on one HTTP/2 connection."""
STREAM_WINDOW_BYTES = 256 << 10
CONNECTION_WINDOW_BYTES = MAX_STREAMS * STREAM_WINDOW_BYTES
"""Room for all of its requests: one that stands still holds up no other."""
INNER_WINDOW_BYTES = 65_535
"""Of an answer that comes from the inner listener: what waits for its reader outside, on HTTP/1.1, cannot be reset. It is
the smallest that Envoy takes."""
MAX_RESETS = 200
"""A connection of which more than half of so many requests were taken back within a second is closed (CVE-2023-44487)."""
INNER_REQUESTS = MAX_RESETS // 4
"""On one connection to the inner listener, in all: too few for that to close it, with the requests of others on it."""

REQUEST_BYTES = 96 << 10
"""What a request costs by itself, with its connections to the engine and to the picker; measured."""
HELD_BYTES = REQUEST_BYTES + (2 * MAX_HEADERS_KB << 10) + SMALL_BODY_BYTES + 2 * CONNECTION_BUFFER_BYTES
"""What a connection with one request may hold that the overload manager cannot reset: the request, the headers as they came
and as they were sent on, the kept body, and the answer's two buffers."""
MAX_CONNECTIONS = 10_000
HTTP2_SHARE = 0.5
"""Of the requests under way. Over HTTP/1.1 each takes a connection; over HTTP/2 a few connections could take all places."""
FILES_PER_CONNECTION = 3
"""The client's, the engine's, and one to spare for pools, logs and sockets."""

HEAP_SHARE = 0.8
"""Of the memory limit. The rest is code, stacks, and what the allocator has not given back yet."""
DEFAULT_MEMORY_BYTES = 1 << 30
DEFAULT_WORKERS = 2

RESET_FROM, RESET_ALL = 0.65, 0.9
"""Shares of the heap. Between them the largest requests are reset: at first those that hold 4 MiB and more, and the fuller
the heap, the smaller ones, down to RESET_POWER. Bodies fill a heap between two looks at it, hence not later."""
RESET_POWER = 15  # of two: 32 KiB; below that a request is never reset for its size
LOOK_EVERY = "0.05s"
LEAST_TIMEOUT = "2s"
"""Down to which overload shortens the time for connections without a request, and for answers that nobody reads."""


@dataclass(frozen=True, slots=True)
class Share:
    """What this Envoy may take of its machine. `memory_bytes` is the limit of its container."""

    memory_bytes: int = DEFAULT_MEMORY_BYTES
    workers: int = DEFAULT_WORKERS
    connections: int = MAX_CONNECTIONS

    @property
    def heap_bytes(self) -> int:
        return int(self.memory_bytes * HEAP_SHARE)

    @property
    def http2_requests(self) -> int:
        return max(1, int(self.connections * HTTP2_SHARE))


def make_share(memory_limit: int | None, cpu_limit: float | None, open_files: int) -> Share:
    """None: no such limit is set. Without one of CPUs there are few threads all the same, since each holds every
    cluster, and a node may have a hundred cores."""
    workers = DEFAULT_WORKERS if cpu_limit is None else max(1, -int(-cpu_limit // 1))
    memory = memory_limit or DEFAULT_MEMORY_BYTES
    room = int(memory * HEAP_SHARE) // HELD_BYTES
    connections = max(1, min(MAX_CONNECTIONS, open_files // FILES_PER_CONNECTION, room))
    return Share(memory, workers, connections)
