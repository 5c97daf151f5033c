"""docs/concepts/rollouts.md: gateways or a control plane that are away in the middle of a rollout cost time and no request."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.cluster import Cluster, control_plane, node, wait_for
from tests.cluster.processes import send_signal
from tests.demo.product import NAMESPACE as SYSTEM
from tests.e2e.machine_pods import stopped
from tests.e2e.product import NAMESPACE, START_LIMIT_S, Object, Product, names
from tests.e2e.test_rollouts import LIMIT_S, simulated
from tests.e2e.traffic import flowing

OUTAGE_S = 60


@pytest.fixture
def sim(product: Product) -> Iterator[str]:
    with product.temporary("outage", simulated("blue")) as name:
        product.wait_settled(name)
        yield name


def through(product: Product, gateway: Object) -> Product:
    """The product as it is reached through one gateway, past the Service."""
    return replace(product, url=f"http://{gateway['status']['podIP']}:8080")


@contextmanager
def two_gateways(product: Product) -> Iterator[tuple[Object, Object]]:
    scale = ["scale", "deployment", "llmendpoint-gateway", "-n", SYSTEM]
    product.cluster.kubectl(*scale, "--replicas=2")
    try:
        wait_for("two gateways are ready", lambda: len(product.gateways()) == 2, START_LIMIT_S)
        first, second = product.gateways()
        yield first, second
    finally:
        product.cluster.kubectl(*scale, "--replicas=1")
        wait_for("one gateway is left", lambda: len(product.gateways()) == 1, START_LIMIT_S)


def test_a_gateway_that_stands_still_during_a_switch_costs_no_request(product: Product, sim: str) -> None:
    """It goes on when blue is gone. As soon as it is Ready again, every request through it is answered by green."""
    model = f"{NAMESPACE}/{sim}"
    with two_gateways(product) as (live, frozen):
        name = frozen["metadata"]["name"]
        with flowing(through(product, live), model) as traffic:
            with stopped(frozen):
                product.apply(sim, simulated("green"))
                wait_for("green takes over", lambda: product.switched(sim), LIMIT_S)
                product.wait_settled(sim)
                assert name not in names(product.gateways()), "a gateway that answers nothing is Ready"
            wait_for("it is Ready again", lambda: name in names(product.gateways()), START_LIMIT_S)
            with flowing(through(product, frozen), model) as late:
                late.wait_for_more(200)
        assert traffic.failures == []
        assert late.failures == []
        assert set(late.texts()) == {"green"}


def test_a_gateway_that_restarts_during_a_rollout_costs_no_request(product: Product, sim: str) -> None:
    model = f"{NAMESPACE}/{sim}"
    with two_gateways(product) as (live, restarted), flowing(through(product, live), model) as traffic:
        product.apply(sim, simulated("green"))
        name = restarted["metadata"]["name"]
        product.cluster.kubectl("delete", "pod", name, "-n", SYSTEM, "--grace-period=0", "--force")
        wait_for("green takes over", lambda: product.switched(sim), LIMIT_S)
        product.wait_settled(sim)
        wait_for("the next gateway is ready", lambda: len(product.gateways()) == 2, START_LIMIT_S)
        with flowing(through(product, product.gateways()[-1]), model) as fresh:
            fresh.wait_for_more(100)
        assert traffic.failures == []
        assert fresh.failures == []
        assert set(fresh.texts()) == {"green"}


@contextmanager
def without_control_plane(cluster: Cluster, seconds: float) -> Iterator[None]:
    """All of it is killed but etcd, as when its machine fails; it is back after `seconds` at the earliest.

    Then the kubelet starts anew: left alone it doubles its waits, and would ask again only a minute later.
    """
    own = cluster.own
    components = [name for name in control_plane.COMPONENTS if name != "etcd"]
    for name in components:
        process = own.processes.get(name)
        assert process is not None
        send_signal(process, signal.SIGKILL)
    back = time.monotonic() + seconds
    try:
        yield
        time.sleep(max(0.0, back - time.monotonic()))
    finally:
        for name in components:
            control_plane.start_component(own, name)
            wait_for("the API server is back", lambda: cluster.kubectl("get", "--raw", "/readyz") == "ok", 60)
        own.processes.stop("kubelet")
        node.start_kubelet(own)


def test_a_control_plane_that_is_away_for_a_minute_costs_time_and_no_request(
    product: Product, sim: str
) -> None:
    with flowing(product, f"{NAMESPACE}/{sim}", per_second=20) as traffic:
        spec = simulated("green")
        spec["rollout"]["observe"]["duration"] = 8
        product.apply(sim, spec)
        wait_for("green takes over", lambda: product.switched(sim), LIMIT_S)
        with without_control_plane(product.cluster, OUTAGE_S):
            traffic.wait_for_more(20 * OUTAGE_S // 2)
            assert traffic.failures == [], "requests fail while the control plane is away"
        product.wait_settled(sim)
        wait_for(
            "the rollout has ended", lambda: product.status(sim)["rollout"]["state"] == "Idle", START_LIMIT_S
        )
        traffic.wait_for_more(50)
        wait_for("the end is told", lambda: "RevisionConfirmed" in reasons(product, sim), 30)
        assert "Inconclusive" not in reasons(product, sim), "the operator took its own absence for silence"
    assert traffic.failures == []


def reasons(product: Product, name: str) -> set[str]:
    """Of the Events about an endpoint."""
    return {event["reason"] for event in product.events(name)}
