"""Asks the replicas for their load: busy ones every 200 ms, the others every 5 s."""

import asyncio
from collections.abc import Callable

import aiohttp
import orjson
import structlog

from llmendpoint_gateway.core.endpoint.loads import BUSY_PERIOD, Load, parse_load
from llmendpoint_gateway.core.placement.placement import Placement
from llmendpoint_gateway.serve.outcome.outcomes import Outcomes
from llmendpoint_gateway.serve.request.held import HeldRequests

TIMEOUT = aiohttp.ClientTimeout(total=1)
MOST_BYTES = 1 << 14
log = structlog.get_logger()
MOST_AT_ONCE = 128  # per turn: thousands of idle replicas are spread over their 5 s


class Readings:
    """Its session closes idle connections before engines do (5 s). `clock`: seconds, monotonic."""

    def __init__(
        self, placement: Placement, held: HeldRequests, outcomes: Outcomes, clock: Callable[[], float]
    ) -> None:
        self._placement, self._held, self._outcomes, self._clock = placement, held, outcomes, clock
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=4)
        async with aiohttp.ClientSession(
            connector=connector, timeout=TIMEOUT, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            while True:
                self._tick()
                for address in self._placement.unread(self._clock(), MOST_AT_ONCE, self._held.waiting):
                    task = asyncio.create_task(self._read(session, address))
                    self._tasks.add(task)  # the loop itself holds tasks by weak references only
                    task.add_done_callback(self._tasks.discard)
                await asyncio.sleep(BUSY_PERIOD)

    def _tick(self) -> None:
        """An error of one endpoint or request must not end the readings of all."""
        try:
            self._outcomes.tick()
        except Exception:  # any: what is due is done at the next turn
            log.exception("a turn of what time brings about is left out")

    async def _read(self, session: aiohttp.ClientSession, address: str) -> None:
        """Read one replica's load. An engine without a load answers with something else. A missing answer changes no
        load."""
        answered = False
        load: Load | None = None
        try:
            async with session.get(f"http://{address}/load", allow_redirects=False) as response:
                body = await response.content.read(MOST_BYTES)
                answered = True
                if response.status == 200:
                    load = parse_load(orjson.loads(body))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            pass
        except Exception:  # any: engines may answer anything; this one counts as one without a load
            log.exception("a reading is lost", address=address)
        finally:
            now = self._clock()
            if not answered:
                self._placement.loads.missed(address, now)
            elif endpoint := self._placement.note_load(address, load, now):
                self._held.retry(endpoint)
