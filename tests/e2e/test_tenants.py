"""docs/operate/security.md: one tenant attacks in every way that a review found, and the other tenant's requests do not fail."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.bench.results import Result, write
from tests.cluster import wait_for
from tests.e2e import attack
from tests.e2e.product import ENDPOINT_LABEL, NAMESPACE, START_LIMIT_S, Product
from tests.e2e.test_rollouts import simulated
from tests.e2e.traffic import Traffic, flowing

PER_SECOND = 10
KINDS = {
    *("crashing_body", "deterministic_500", "forged_token", "giant_body", "hung_request"),
    *("same_body_as_the_victim", "name_grab"),
}


@pytest.fixture
def victim(product: Product) -> Iterator[str]:
    """An endpoint whose owner does nothing wrong, beside a namespace full of endpoints that do. All share one node, of which
    this one has asked for CPU: without, the kernel gives it none while anybody else wants it."""
    product.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": attack.NAMESPACE}})
    with product.temporary("victim", {**simulated("blue"), "resources": {"cpu": "500m"}}) as name:
        product.wait_settled(name)
        product.cluster.apply(*attack.endpoints(name))
        try:
            wait_for("the attacker's engines run", lambda: serving(product), START_LIMIT_S, every_s=0.5)
            yield f"{NAMESPACE}/{name}"
        finally:
            product.cluster.kubectl("delete", "namespace", attack.NAMESPACE, timeout=120)


def serving(product: Product) -> bool:
    found = product.cluster.get("llmendpoints", "-n", attack.NAMESPACE)["items"]
    active = {e["metadata"]["name"] for e in found if e.get("status", {}).get("activeRevision")}
    return {"errors", "crashes"} <= active


def beside_the_node_port(product: Product) -> Product:
    """The gateway's pod itself: a node port would give all callers one address."""
    [gateway] = product.gateways()
    return replace(product, url=f"http://{gateway['status']['podIP']}:8080")


def restarts(product: Product) -> dict[str, int]:
    """Of every engine container in the victim's namespace, by pod; without pods that another test is taking down."""
    pods = product.cluster.get("pods", "-n", NAMESPACE, "-l", ENDPOINT_LABEL)["items"]
    return {
        pod["metadata"]["name"]: sum(each["restartCount"] for each in pod["status"]["containerStatuses"])
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
    }


def p99(traffic: Traffic) -> float:
    return statistics.quantiles([sent.ended - sent.at for sent in list(traffic.done)], n=100)[98]


def attacked(product: Product, victim: str, requests: int) -> tuple[float, float, Counter[tuple[str, str]]]:
    """The victim's p99 without and with the attack, seconds; fails where one of its requests failed."""
    direct = beside_the_node_port(product)
    with flowing(direct, victim, PER_SECOND) as quiet:
        quiet.wait_for_more(min(requests, 300))
    address = product.cluster.own.address
    with (
        attack.attacking(product, victim, direct.url, address) as answers,
        flowing(direct, victim, PER_SECOND) as traffic,
    ):
        until = time.monotonic() + requests / PER_SECOND * 3
        wait_for("the victim's requests", lambda: len(traffic.done) >= requests, until - time.monotonic())
    assert quiet.failures == []
    assert [sent.failure for sent in traffic.failures] == []
    assert set(traffic.texts()) == {"blue"}, "somebody else answered"
    return p99(quiet), p99(traffic), answers


def test_no_request_of_a_tenant_fails_while_another_tenant_attacks(
    product: Product, chat: str, victim: str
) -> None:
    before = restarts(product)
    _, _, answers = attacked(product, victim, requests=300)
    assert {kind for kind, _ in answers} == KINDS
    assert restarts(product) == before, "an engine of the victim's namespace ended"
    assert product.settled("victim"), "the victim's pods were touched"


@pytest.mark.extended
@pytest.mark.timeout(1800)
def test_3000_requests_of_a_tenant_beside_five_minutes_of_attack(
    product: Product, chat: str, victim: str
) -> None:
    quiet, beside, answers = attacked(product, victim, requests=3000)
    print(dict(answers))
    goal = "ratio <= 1.5"
    write(
        "tenants",
        [
            Result("p99 of a tenant, quiet", quiet * 1e3, "ms"),
            Result(
                "p99 of a tenant while another attacks", beside * 1e3, "ms", "quiet", beside / quiet, goal
            ),
        ],
    )
