"""docs/contribute/contracts.md: without the Lease nothing is written, and never do two processes write.

Orders of happenings are asserted, no durations.
"""

from __future__ import annotations

import asyncio
import copy
from typing import Any, cast

import pytest

from llmendpoint_operator.errors import ApiError, Conflict, LeadershipLost, NotFound
from llmendpoint_operator.kube.client import Credentials, KubeApi
from llmendpoint_operator.kube.lease import Lease
from llmendpoint_operator.kube.resources import DEPLOYMENTS

DURATION = cast(int, 0.6)
"""Short, since tests wait for it; the command takes whole seconds from 3."""


class LeaseStore:
    """The Leases of one API server."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0


class Line:
    """One process's way to it, which can be cut (no answer) or broken (an error)."""

    def __init__(self, store: LeaseStore) -> None:
        self.store = store
        self.cut = self.broken = False

    async def _way(self) -> None:
        if self.cut:
            await asyncio.Event().wait()
        if self.broken:
            raise ApiError(0, "no answer")

    async def get(self, *_: object) -> dict[str, Any]:
        await self._way()
        if self.store.lease is None:
            raise NotFound(404, "none")
        return copy.deepcopy(self.store.lease)

    async def create(self, _: object, __: object, body: dict[str, Any]) -> dict[str, Any]:
        await self._way()
        if self.store.lease is not None:
            raise Conflict(409, "exists")
        return self._put(body)

    async def replace(self, _: object, __: object, ___: object, body: dict[str, Any]) -> dict[str, Any]:
        await self._way()
        if body["metadata"].get("resourceVersion") != str(self.store.version):
            raise Conflict(409, "changed")
        return self._put(body)

    def _put(self, body: dict[str, Any]) -> dict[str, Any]:
        self.store.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.store.version)}
        self.store.lease = {**copy.deepcopy(body), "metadata": metadata}
        return self.store.lease


@pytest.fixture
def store() -> LeaseStore:
    return LeaseStore()


def lease_on(line: Line) -> Lease:
    return Lease(cast(KubeApi, line), "llm", DURATION)


async def test_the_second_waits_until_the_first_gives_it_back(store: LeaseStore) -> None:
    first, second = lease_on(Line(store)), lease_on(Line(store))
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    renewing = asyncio.create_task(first.renew())
    await asyncio.sleep(3 * DURATION)
    assert not waiting.done()
    assert not renewing.done()
    renewing.cancel()
    await first.release()
    assert not first.is_held
    await asyncio.wait_for(waiting, 10)
    assert second.is_held


@pytest.mark.parametrize("fault", ["cut", "broken"])
async def test_a_holder_that_cannot_renew_ends_before_the_next_takes_over(
    store: LeaseStore, fault: str
) -> None:
    line = Line(store)
    first, second = lease_on(line), lease_on(Line(store))
    happened: list[str] = []
    await first.acquire()

    async def hold() -> None:
        with pytest.raises(LeadershipLost, match="could not be renewed in time"):
            await first.renew()
        happened.append("the first ended")

    async def wait() -> None:
        await second.acquire()
        assert not first.is_held, "two may write"
        happened.append("the second took over")

    setattr(line, fault, True)
    await asyncio.wait_for(asyncio.gather(hold(), wait()), 30)
    assert happened == ["the first ended", "the second took over"]


async def test_a_short_fault_costs_no_leadership(store: LeaseStore) -> None:
    line = Line(store)
    first = lease_on(line)
    await first.acquire()
    renewing = asyncio.create_task(first.renew())
    line.broken = True
    await asyncio.sleep(DURATION * 0.45)
    line.broken = False
    await asyncio.sleep(2 * DURATION)
    assert not renewing.done()
    assert first.is_held
    renewing.cancel()


async def test_a_holder_that_was_stopped_writes_nothing_after_waking_up(store: LeaseStore) -> None:
    """Its process stood still: no task of it ran, and another one took the lease meanwhile."""
    first, second = lease_on(Line(store)), lease_on(Line(store))
    await first.acquire()
    await asyncio.wait_for(second.acquire(), 10)  # as when first.renew() never gets its turn
    api = KubeApi(cast(Credentials, None))
    api.may_write = lambda: first.is_held
    body = {"metadata": {"namespace": "team-a", "name": "chat"}}
    with pytest.raises(LeadershipLost, match="held back"):
        await api.apply(DEPLOYMENTS, body)
    with pytest.raises(LeadershipLost, match="held back"):
        await api.delete(DEPLOYMENTS, "team-a", "chat", "uid-1")
    with pytest.raises(LeadershipLost, match="the lease went to"):
        await first.renew()


async def test_two_that_take_an_ended_lease_at_once_do_not_both_get_it(store: LeaseStore) -> None:
    leases = [lease_on(Line(store)) for _ in range(5)]
    took = await asyncio.gather(*(lease._try(10) for lease in leases))
    assert sum(took) == 1
    assert [lease.is_held for lease in leases] == took


async def test_taking_over_is_counted_and_renewing_is_not(store: LeaseStore) -> None:
    first, second = lease_on(Line(store)), lease_on(Line(store))
    await first.acquire()
    assert await first._try(10)
    await first.release()
    await asyncio.wait_for(second.acquire(), 10)
    assert store.lease is not None
    assert store.lease["spec"]["leaseTransitions"] == 1
    assert store.lease["spec"]["holderIdentity"] == second.identity
