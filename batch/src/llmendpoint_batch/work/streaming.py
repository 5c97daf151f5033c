"""One attempt at a streamed background response: its events are kept as they come, whether somebody follows them or not."""

import aiohttp

from llmendpoint_batch.core.event_stream import FIRST_EVENTS, Events, TooLong, numbered
from llmendpoint_batch.core.outcomes import Broken, Reply
from llmendpoint_batch.core.response_object import Final, Stored, failed
from llmendpoint_batch.errors import NotKept
from llmendpoint_batch.work.event_log import EventLog
from llmendpoint_batch.work.sending import LOW, PRIORITY_HEADER, RESPONSES, Sender, read_reply


async def streamed(sender: Sender, log: EventLog, stored: Stored, body: bytes) -> Reply | Broken | Final:
    """An answer that is no stream, an attempt that broke before an event came, or the response's end."""
    try:
        result = await _attempt(sender, log, stored, body)
        try:
            # What comes next in the database, an end or another attempt, comes behind all events.
            await log.flushed(stored.id)
        except NotKept as error:
            return failed(stored, str(error))
        return result
    finally:
        log.forget(stored.id)


async def _attempt(sender: Sender, log: EventLog, stored: Stored, body: bytes) -> Reply | Broken | Final:
    attempt = _Attempt(log, stored)
    headers = {"x-request-id": stored.id, PRIORITY_HEADER: stored.priority or LOW}
    try:
        async with sender.open_request(RESPONSES, body, headers) as upstream:
            if upstream.status != 200 or upstream.content_type != "text/event-stream":
                return await read_reply(upstream)
            final = await attempt.read(upstream)
            return final or attempt.broken("it ended before the response did")
    except NotKept as error:
        return failed(stored, str(error))
    except aiohttp.ClientConnectorError as error:
        return Broken(f"The gateway cannot be reached: {error}", sent=False)
    except TooLong:
        return failed(stored, "One event of the endpoint's stream is too long.")
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        return attempt.broken(str(error)[:200] or type(error).__name__)


class _Attempt:
    def __init__(self, log: EventLog, stored: Stored) -> None:
        self._log, self._stored = log, stored
        self._next = FIRST_EVENTS

    async def read(self, upstream: aiohttp.ClientResponse) -> Final | None:
        events = Events(self._stored)
        async for data in upstream.content.iter_any():
            for event in events.take(data):
                if event.final is not None:
                    return event.final
                if text := numbered(event.text, self._next):
                    await self._log.add(self._stored.id, self._next, text)
                    self._next += 1
        return None

    def broken(self, why: str) -> Broken | Final:
        """Where callers may have seen events it has its end: another attempt would say something else."""
        told = f"The stream of the endpoint broke: {why}."
        if self._next > FIRST_EVENTS:
            return failed(self._stored, told)
        return Broken(told, sent=True)
