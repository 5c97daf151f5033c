"""Reads the gateways' counters and the engines' histograms of one endpoint once."""

from __future__ import annotations

import asyncio

from ...core.names import Key
from ...core.rollout.measurements import Measurements
from ...errors import Unanswered
from ..gateways import Gateway, Gateways
from ..latencies import SCRAPE_TIMEOUT_S, parse_latencies, some
from ..slots import Slots
from ..targets import Target
from ..wire import Wire


async def sample(
    wire: Wire,
    gateways: Gateways,
    key: Key,
    pods: tuple[Target, ...],
    into: Measurements,
    slots: Slots,
) -> bool:
    """Read every source once. Returns whether any answered; the others are read again next time."""

    async def gateway_counts(gateway: Gateway) -> bool:
        async with slots.held(key[0]):
            found = await gateways.counters(gateway, key)
        into.add_gateway(gateway.uid, found.instance, found.counts)
        if found.replicas is not None:
            into.add_replicas(gateway.uid, found.picker, found.replicas)
        return True

    async def engine_latencies(pod: Target) -> bool:
        async with slots.held(key[0]):
            page = await wire.text("metrics", f"{pod.url}/metrics", SCRAPE_TIMEOUT_S)
        into.add_engine(pod.uid, pod.revision, parse_latencies(page))
        return True

    questions = [gateway_counts(gateway) for gateway in gateways.ready()]
    questions += [engine_latencies(pod) for pod in some(pods)]
    answers = await asyncio.gather(*questions, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, Unanswered):
            raise answer
    return any(answer is True for answer in answers)
