"""The limits of one Envoy: memory, connections, threads, bodies, headers, time. All of them are defined here.

Envoy holds a request's body until the picker has decided, so callers determine how much memory Envoy uses. A body above
SMALL_BODY_BYTES is held on HTTP/2: on the caller's own connection, or on the inner listener's. There the overload
manager resets the largest requests before the heap is full. It cannot reset a smaller one. So a connection with one
request holds at most HELD_BYTES, and there are no more connections than the heap has room for. An HTTP/2 connection may
carry MAX_STREAMS requests, so the requests are limited too:

    connections * HELD_BYTES <= heap,    requests <= connections,    requests over HTTP/2 <= connections / 2
"""

from dataclasses import dataclass

MAX_BODY_BYTES = 32 << 20
SMALL_BODY_BYTES = 32 << 10
"""Envoy keeps a body up to this size until its answer ends, so that it can send the request to a second replica. The
inner listener collects a larger body, or one of unknown length."""
KEPT_BODY_BYTES, KEPT_BYTES = 4 << 20, 128 << 20
"""Bytes of one larger body, and of all larger bodies together. Within both limits Envoy keeps a larger body as well.
Otherwise Envoy drops it as it is sent: with 5,000 open answers even 200 kB each would be 1 GB."""

CONNECTION_BUFFER_BYTES = 16 << 10
"""The buffer for an answer whose reader is slow, at the caller's connection and at the engine's. The rest stays in the
engine."""
READER_TIMEOUT = 60
"""Seconds. Envoy closes a connection whose caller has read nothing of a waiting answer for this time."""

REQUEST_TIMEOUT = "60s"
"""For receiving a whole request: 32 MiB at 4.5 Mbit/s. The wait for a replica comes after it and does not count."""
UPLOAD_TIMEOUT, UPLOAD_IDLE_TIMEOUT = "3600s", "120s"
"""For receiving a whole request to the batch service, 200 MiB at 0.5 Mbit/s, and for one of which nothing comes."""
HEADERS_TIMEOUT = "10s"
STREAM_IDLE_TIMEOUT = "3600s"
"""Long, because a stream is silent while an engine prefills."""
IDLE_TIMEOUT = "620s"
"""For a connection without a request. It is above the 600 s of common load balancers, so that they close first."""
SOCKET_IDLE_TIMEOUT = IDLE_TIMEOUT
"""For a WebSocket on which nothing comes, either way. It is above the 600 s after which the engine closes one without a request.
During a request the engine's pings, one in 20 s, keep it open."""
SHORTER_FROM, SHORTEST_AT = 0.75, 0.9
"""Shares of the connections. Between the two, IDLE_TIMEOUT falls to LEAST_TIMEOUT: a caller that opens all connections
keeps only those with requests."""
CONNECTIONS_LOOK_SECONDS = 0.5

MAX_HEADERS_KB = 16
MAX_HEADERS = 100
MAX_STREAMS = 64
"""Concurrent requests on one HTTP/2 connection."""
STREAM_WINDOW_BYTES = 256 << 10
CONNECTION_WINDOW_BYTES = MAX_STREAMS * STREAM_WINDOW_BYTES
"""Room for all requests of a connection: one that stands still does not block the others."""
INNER_WINDOW_BYTES = 65_535
"""For an answer that comes from the inner listener. What waits there for an HTTP/1.1 reader outside cannot be reset.
This is the smallest window that Envoy accepts."""
MAX_RESETS = 200
"""Envoy closes a connection if more than half of this many requests were reset within a second (CVE-2023-44487)."""
INNER_REQUESTS = MAX_RESETS // 4
"""Requests on one connection to the inner listener, in all. The number is too low for MAX_RESETS to close a connection
that callers share."""

REQUEST_BYTES = 96 << 10
"""Memory of one request, with its connections to the engine and to the picker; measured."""
HELD_BYTES = REQUEST_BYTES + (2 * MAX_HEADERS_KB << 10) + SMALL_BODY_BYTES + 2 * CONNECTION_BUFFER_BYTES
"""The memory of a connection with one request that the overload manager cannot reset: the request, its headers as
received and as sent, the kept body, and the answer's two buffers."""
MAX_CONNECTIONS = 10_000
HTTP2_SHARE = 0.5
"""Share of the active requests. An HTTP/1.1 request takes a whole connection; over HTTP/2 a few connections could take
all places."""
FILES_PER_CONNECTION = 3
"""The client's, the engine's, and one to spare for pools, logs and sockets."""

HEAP_SHARE = 0.8
"""Share of the memory limit. The rest is code, stacks, and freed memory that the allocator still holds."""
DEFAULT_MEMORY_BYTES = 1 << 30
DEFAULT_WORKERS = 2

RESET_FROM, RESET_ALL = 0.65, 0.9
"""Shares of the heap. Between the two, Envoy resets the largest requests: first those that hold 4 MiB or more, then
smaller ones down to RESET_POWER. It starts early because bodies can fill the heap between two checks."""
RESET_POWER = 15  # 2**15 bytes = 32 KiB; Envoy never resets a smaller request for its size
LOOK_EVERY = "0.05s"
LEAST_TIMEOUT = "2s"
"""Overload shortens two times down to this one: for connections without a request, and for answers that are not read."""


@dataclass(frozen=True, slots=True)
class Share:
    """The part of the machine that this Envoy may use. `memory_bytes` is its container's limit."""

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
    """None means that no limit is set. Without a CPU limit there are still few threads, because each holds every
    cluster and a node may have a hundred cores."""
    workers = DEFAULT_WORKERS if cpu_limit is None else max(1, -int(-cpu_limit // 1))
    memory = memory_limit or DEFAULT_MEMORY_BYTES
    room = int(memory * HEAP_SHARE) // HELD_BYTES
    connections = max(1, min(MAX_CONNECTIONS, open_files // FILES_PER_CONNECTION, room))
    return Share(memory, workers, connections)
