"""Asks the replicas for their load: busy ones every 200 ms, the others every 5 s, and all later if they are too many."""

import asyncio
from collections.abc import Callable

import orjson
import structlog

from llmendpoint_gateway.core.endpoint.load_answer import Answer
from llmendpoint_gateway.core.endpoint.loads import BUSY_PERIOD, MOST_A_SECOND, parse_load
from llmendpoint_gateway.core.placement.placement import Placement
from llmendpoint_gateway.serve.outcome.outcomes import Outcomes
from llmendpoint_gateway.serve.request.held import HeldRequests
from llmendpoint_gateway.watch.load_client import LoadClient

STEPS = 20
"""Of a turn, which takes BUSY_PERIOD: many readings are spread over it, so that decisions do not wait for all of them."""
A_TURN = int(MOST_A_SECOND * BUSY_PERIOD)
A_STEP = A_TURN // STEPS
log = structlog.get_logger()


class Readings:
    """`clock`: seconds, monotonic."""

    def __init__(
        self, placement: Placement, held: HeldRequests, outcomes: Outcomes, clock: Callable[[], float]
    ) -> None:
        self._placement, self._held, self._outcomes, self._clock = placement, held, outcomes, clock
        self._client = LoadClient(self._answered, clock)

    async def run(self) -> None:
        try:
            while True:
                await self._turn()
        finally:
            self._client.close()

    async def _turn(self) -> None:
        start, asked = self._clock(), 0
        self._client.sweep()
        # What is late is found first: after a pause of this process no reading is stale for that alone.
        due = self._placement.unread(start, A_TURN, self._held.waiting)
        self._tick()
        while asked < len(due):
            until_now = int(A_TURN * (self._clock() - start) / BUSY_PERIOD)
            for address in due[asked : max(asked + A_STEP, until_now)]:
                self._client.ask(address)
                asked += 1
            await asyncio.sleep(BUSY_PERIOD / STEPS)
        await asyncio.sleep(start + BUSY_PERIOD - self._clock())

    def _tick(self) -> None:
        """An error of one endpoint or request must not end the readings of all."""
        try:
            self._outcomes.tick()
        except Exception:  # any: what is due is done at the next turn
            log.exception("a turn of what time brings about is left out")

    def _answered(self, address: str, answer: Answer | None) -> None:
        """An engine without a load answers with something else. A missing answer changes no load."""
        try:
            self._note(address, answer)
        except Exception:  # any: an error in one waiting request must not end the readings
            log.exception("a reading is lost", address=address)

    def _note(self, address: str, answer: Answer | None) -> None:
        now = self._clock()
        if answer is None:
            self._placement.loads.missed(address, now)
            return
        load = None
        if answer.status == 200:
            try:
                load = parse_load(orjson.loads(answer.body))
            except orjson.JSONDecodeError:
                pass
        if endpoint := self._placement.note_load(address, load, now):
            self._held.retry(endpoint)
