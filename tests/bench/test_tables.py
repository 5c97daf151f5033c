"""`make bench-tables`: every event that it counts is one that Envoy was told of and acknowledged."""

import asyncio

from llmendpoint_gateway.core.endpoint.objects import parse_slice
from tests.bench.objects import REPLICAS, REVISIONS, slice_object
from tests.bench.tables import WARM_UP, measure


def test_each_replica_has_an_address_of_its_own() -> None:
    slices = [parse_slice(slice_object(n, revision)) for n in range(1000) for revision in REVISIONS]
    addresses = [replica.address for one in slices for replica in one.replicas]
    assert len(set(addresses)) == 1000 * len(REVISIONS) * REPLICAS


def test_an_event_is_followed_until_a_real_envoy_has_acknowledged_it() -> None:
    costs = asyncio.run(measure(WARM_UP, events=5))
    assert len(costs.events) == 5
    assert all(cost.change > 0 and cost.acknowledgement > 0 for cost in costs.events)
