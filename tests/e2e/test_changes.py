"""docs/concepts/architecture.md: edits, restarts, kills and somebody's kubectl lose no request; a pod gets none before its warm-up."""

import json
import time
from collections.abc import Callable
from typing import Any

from tests.cluster import wait_for
from tests.demo.product import NAMESPACE as SYSTEM
from tests.e2e.load import streaming
from tests.e2e.product import NAMESPACE, START_LIMIT_S, Object, Product, is_ready, names, uids

MODEL = f"{NAMESPACE}/chat"
CHILDREN = "deployments,services,serviceaccounts,controllerrevisions"


def active_deployment(product: Product, endpoint: str) -> Object:
    revision = product.status(endpoint)["activeRevision"]
    return product.cluster.get("deployment", f"{endpoint}-{revision}", "-n", NAMESPACE)


def edit(product: Product, endpoint: str, path: str, value: Any) -> None:
    """A user's change of one field of the spec."""
    patch: Any = value
    for key in reversed(path.split(".")):
        patch = {key: patch}
    product.cluster.kubectl(
        "patch", "llmendpoint", endpoint, "-n", NAMESPACE, "--type=merge", "-p", json.dumps({"spec": patch})
    )


def test_a_child_deployment_edited_by_hand_is_put_back(product: Product, chat: str) -> None:
    deployment = active_deployment(product, chat)
    name, pods = deployment["metadata"]["name"], uids(product.pods(chat))
    product.cluster.kubectl("scale", "deployment", name, "-n", NAMESPACE, "--replicas=3")
    wait_for("replicas are put back", lambda: active_deployment(product, chat)["spec"]["replicas"] == 2, 30)
    product.wait_settled(chat)
    assert pods == uids(product.pods(chat)), "pods that served were replaced"


def test_an_operator_that_starts_again_writes_nothing(product: Product, chat: str) -> None:
    def versions() -> dict[tuple[str, str], str]:
        found = [*product.children(chat, CHILDREN), product.endpoint(chat)]
        return {(o["kind"], o["metadata"]["name"]): o["metadata"]["resourceVersion"] for o in found}

    def operators() -> list[Object]:
        return product.cluster.get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=operator")[
            "items"
        ]

    product.wait_settled(chat)
    before, [old] = versions(), operators()
    product.cluster.kubectl("delete", "pod", old["metadata"]["name"], "-n", SYSTEM, timeout=90)

    def next_one_leads() -> bool:
        lease = product.cluster.get("lease", "llmendpoint-operator", "-n", SYSTEM)
        holder = lease["spec"].get("holderIdentity") or ""
        return any(
            is_ready(pod) and pod["metadata"]["name"] in holder
            for pod in operators()
            if uids([pod]) != uids([old])
        )

    wait_for("the next operator is Ready and holds the lease", next_one_leads, START_LIMIT_S)
    # Another endpoint that gets its status proves that this operator has gone through its queue.
    with product.temporary("probe", {"model": {"source": "embedded://demo"}, "replicas": 0}) as probe:
        product.cluster.wait_for("the next operator reconciles", lambda: product.status(probe), 60)
    assert versions() == before


def test_a_killed_pod_is_replaced_and_takes_no_traffic_before_its_warm_up(
    product: Product, chat: str
) -> None:
    product.wait_settled(chat)
    before = product.pods(chat)
    with streaming(product, MODEL, clients=4) as load:
        victim = before[0]["metadata"]["name"]
        product.cluster.kubectl("delete", "pod", victim, "-n", NAMESPACE, "--grace-period=0", "--force")

        def replaced() -> bool:
            # The gateway is read first: what it takes for routable must by then have been Ready.
            replicas = product.gateway_state()["endpoints"][MODEL]["replicas"]
            pods = {pod["metadata"]["name"]: pod for pod in product.pods(chat)}
            for replica in replicas:
                pod = pods.get(replica["pod"])
                if pod and uids([pod]) - uids(before) and not is_ready(pod):
                    assert not replica["ready"], f"{replica} is routable before it is Ready"
                    assert replica["in_flight"] == 0, f"{replica} got a request before it was Ready"
            return product.settled(chat) is not None

        wait_until_true(replaced)
        cut = len(load.failures)
        load.wait_for_more(8)
        assert len(load.failures) == cut, load.failures[cut:]
    assert cut <= 4, f"more than the streams that ran on the killed pod failed: {load.failures}"
    assert uids(product.pods(chat)) != uids(before)


def wait_until_true(condition: Callable[[], bool]) -> None:
    """Unlike `wait_for`, a failed assertion inside the condition ends the test."""
    deadline = time.monotonic() + START_LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "the killed pod was not replaced in time"
        time.sleep(0.2)


def test_a_rolling_restart_under_8_streams_loses_no_request(product: Product, chat: str) -> None:
    product.wait_settled(chat)
    before = uids(product.pods(chat))
    name = active_deployment(product, chat)["metadata"]["name"]
    with streaming(product, MODEL) as load:
        product.cluster.kubectl("rollout", "restart", "deployment", name, "-n", NAMESPACE)
        wait_for(
            "every pod is another one",
            lambda: not before & uids(product.pods(chat)) and product.settled(chat),
            START_LIMIT_S,
            every_s=0.5,
        )
        load.wait_for_more(8)
    assert load.failures == []
    assert load.completed >= 24


def test_an_edit_makes_a_new_revision_and_a_revert_reuses_the_old_one(product: Product, chat: str) -> None:
    """Both under 8 streaming clients, none of which loses a request."""
    first = product.wait_settled(chat)["activeRevision"]
    old = active_deployment(product, chat)["metadata"]["uid"]
    known = names(product.children(chat, "controllerrevisions"))
    with streaming(product, MODEL) as load:
        edit(product, chat, "engine.maxNumSeqs", 8)
        wait_for("a new revision is asked for", lambda: product.status(chat)["targetRevision"] != first, 30)
        second = product.wait_settled(chat)["activeRevision"]
        assert second != first
        assert names(product.children(chat, "controllerrevisions")) == known | {f"{chat}-{second}"}
        edit(product, chat, "engine.maxNumSeqs", 16)
        product.wait_settled(chat, revision=first)
        load.wait_for_more(8)
    assert load.failures == []
    assert active_deployment(product, chat)["metadata"]["uid"] == old, (
        "the old revision's Deployment was made anew"
    )
    assert names(product.children(chat, "controllerrevisions")) == known | {f"{chat}-{second}"}


def test_an_endpoint_can_be_scaled_with_kubectl(product: Product, chat: str) -> None:
    product.wait_settled(chat)
    product.cluster.kubectl("scale", "llmendpoint", chat, "-n", NAMESPACE, "--replicas=1")
    product.wait_settled(chat)
    assert len(product.pods(chat)) == 1
    answer = product.openai().chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Who are you?"}], max_tokens=4
    )
    assert answer.choices[0].message.content
