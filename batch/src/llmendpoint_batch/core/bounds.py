"""The limits of one batch service. Those that depend on the volume and on the endpoints are flags; the rest are here."""

from dataclasses import dataclass

MOST_FILES = 10_000
MOST_UNFINISHED = 1_000
"""Batches that are not at their end. Each has an entry in memory, and a few lines read ahead."""
MOST_BATCHES = 100_000
"""Batches that are kept, ended ones included."""
LONGEST_ID = 512
"""Characters of a custom_id."""
LONGEST_NAME = 256
"""Characters of a file's name."""
MOST_METADATA, LONGEST_KEY, LONGEST_VALUE = 16, 64, 512
"""OpenAI's bounds on metadata."""
MOST_ERRORS = 100
"""Faults that a failed batch lists. A file of 50,000 bad lines has no more to say."""
ANSWER_BYTES = 16 << 20
"""The longest answer to a line. A longer one is not kept, and the line fails."""
SHORTEST_WINDOW, LONGEST_WINDOW = 60, 7 * 24 * 3600
"""Seconds of a completion_window."""
BODY_BYTES = 64 << 10
"""The body of POST /v1/batches: its largest valid one has 10 kB."""
IN_FLIGHT = 256
"""Lines that are sent at a time, over all endpoints: each holds its line and its answer in memory."""

PART_BYTES = 64 << 20
"""One part of an upload: what OpenAI's SDK sends by default."""
MOST_UPLOAD_PARTS, MOST_PENDING_UPLOADS, MOST_UPLOADS = 1_000, 100, 100_000
"""Parts of an upload, uploads that are not at their end, and those that are kept."""
RESPONSE_BYTES = 8 << 20
"""The body of POST /v1/responses."""
CHAIN_BYTES = 7 << 20
"""Items of the responses before one, with their answers. With the body it is below the 16 MiB that engines take."""
CHAIN_KEPT_BYTES = 128 << 20
"""Of the same responses, with tools and instructions, which each keeps and its answer repeats. All of them are read, and their
deadlines written, when one more continues them."""
CHAIN_DEPTH = 1_000
"""Responses, each continuing the one before."""
MOST_ITEMS = 8_192
"""Items of one request, and of the whole conversation."""
MOST_RESPONSES = 1_000_000
RESPONSES_SHARE = 4
"""Stored responses take at most one part in so many of what files may take."""
MOST_QUEUED = 1_000
"""Background responses that are not at their end."""
BACKGROUND_SECONDS = 24 * 3600
"""In which a background response gets its answer, or fails."""
EVENTS_BYTES = 16 << 20
"""Events of one streamed background response that are kept. They count as bytes of stored responses, too."""
EVENTS_SECONDS = 3600
"""How long events are kept after the end."""
COPIES = 3
"""How often the bytes of a conversation are in memory while it is sent: read, put together, and on their way."""
OPEN_REQUESTS, OPEN_BYTES = 512, 256 << 20
"""Responses whose callers wait, and the bytes in memory for them."""
SENT_BYTES = 256 << 20
"""The same of background responses that are being sent. More of them wait."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """`file_bytes`: of one upload. `storage_bytes`: of all files together, after which no upload is taken. `lines`:
    of a batch's file. `line_bytes`: of one line."""

    file_bytes: int = 200 << 20
    storage_bytes: int = 8 << 30
    lines: int = 50_000
    line_bytes: int = 1 << 20

    @property
    def responses_bytes(self) -> int:
        return self.storage_bytes // RESPONSES_SHARE
