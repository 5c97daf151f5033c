"""One endpoint with two replicas, in a gateway whose Envoy is played."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from llmendpoint_gateway.core.endpoint.objects import Endpoint, Replica, Slice
from llmendpoint_gateway.core.outcome.attempt import Attempt, Outcome
from llmendpoint_gateway.core.request.paths import ByModel
from llmendpoint_gateway.core.request.request import Body, Head, Request, Tag
from llmendpoint_gateway.serve.envoy.ads import Ads
from llmendpoint_gateway.serve.parts import Parts, make_parts

ADDRESSES = ("10.0.0.1:8000", "10.0.0.2:8000")
CHAT = Endpoint("a", "chat", "2026-01-01T00:00:00Z", ("chat",), "r1")
REPLICAS = Slice("a/chat", "r1", tuple(Replica(address, address, True, False) for address in ADDRESSES))
UNREACHABLE = Attempt(ADDRESSES[0], "a/chat/r1", Outcome.UNREACHABLE, trial=False, told=False, again=False)
PRINT = 7
BROKEN = replace(UNREACHABLE, outcome=Outcome.FAILED, tag=Tag(print_=PRINT), broken=True)


def request_of(caller: int = 0, print_: int = 0) -> Request:
    return Request(Head("POST", "/v1/chat/completions", ByModel(), caller), Body(0, print_))


class Holding(Ads):
    """An Ads whose Envoy acknowledges everything at once."""

    def publish(self, snapshot) -> None:  # type: ignore[no-untyped-def]
        super().publish(snapshot)
        self.published = snapshot.clusters
        self.acknowledged_generation, self.started = snapshot.generation, True

    def addresses(self, cluster: str) -> frozenset[str]:
        return frozenset(ADDRESSES if cluster == "a/chat/r1" else ())


def parts_of(ads: Ads, clock: Callable[[], float] = lambda: 0.0, hold_seconds: float = 0.0) -> Parts:
    """A picker's, on this loop."""
    return make_parts(ads, clock, asyncio.get_running_loop().call_later, hold_seconds)


async def turn() -> None:
    await asyncio.sleep(0)
