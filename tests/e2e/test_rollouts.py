"""docs/concepts/rollouts.md: good revisions take over without a failed request, and bad ones go back by themselves.

The engines are simulated, under 50 to 100 requests a second.
"""

import json
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from tests.bench.results import Result, save
from tests.cluster import wait_for
from tests.e2e.product import NAMESPACE, Object, Product, is_ready
from tests.e2e.traffic import Traffic, flowing

MIN_REQUESTS = 50
LIMIT_S = 90.0
OBSERVE: Object = {"duration": 5, "maxDuration": 60, "minRequests": MIN_REQUESTS}


def simulated(text: str, *flags: str, replicas: int = 2, **rollout: object) -> Object:
    """An endpoint whose engines answer every message with `text`."""
    limits = {"errorRate": {"max": 0.02}, "ttft": {"p95Seconds": 0.5}}
    return {
        "model": {"source": "embedded://simulated"},
        "runtime": {
            "name": "simulator",
            "args": [f"--answer==>{text}", "--ttft=0.02", "--itl=0.002", *flags],
        },
        "replicas": replicas,
        "progressDeadlineSeconds": 20,
        "terminationGracePeriodSeconds": 20,
        "rollout": {
            "scaleDownDelay": 2,
            "abortScaleDownDelay": 0,
            "observe": {**OBSERVE, **limits},
            **rollout,
        },
    }


@pytest.fixture
def sim(product: Product) -> Iterator[str]:
    with product.temporary("sim", simulated("blue")) as name:
        product.wait_settled(name)
        yield name


def rejected(product: Product, name: str) -> Object | None:
    """status.rejected once the revision that the spec asks for is in it."""
    status = product.status(name)
    found = status.get("rejected")
    return found if found and found["revision"] == status["targetRevision"] else None


def wait_rejected(product: Product, name: str) -> Object:
    try:
        return wait_for(f"{name} is rolled back", lambda: rejected(product, name), LIMIT_S)
    except Exception as error:
        error.add_note(json.dumps(product.endpoint(name).get("status"), indent=1)[:6000])
        raise


def check_rolled_back(product: Product, name: str, blue: str, traffic: Traffic) -> Object:
    """Blue serves, the status says so as GitOps tools read it, and further requests go well."""
    verdict = wait_rejected(product, name)
    assert product.status(name)["activeRevision"] == blue
    assert product.condition(name, "Ready")["status"] == "True"
    stalled = product.condition(name, "Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "RevisionRejected"), stalled
    time.sleep(1)  # what was in flight at the verdict ends
    before = len(traffic.failures)
    traffic.wait_for_more(100)
    assert traffic.failures[before:] == []
    return verdict


def test_a_good_revision_takes_over_and_not_one_of_2000_requests_fails(product: Product, sim: str) -> None:
    with flowing(product, f"{NAMESPACE}/{sim}", per_second=100) as traffic:
        product.apply(sim, simulated("green"))
        wait_for("green takes over", lambda: product.switched(sim), LIMIT_S)
        wait_for("the gateway follows", lambda: _followed(product, sim), 10)
        switched = time.monotonic()
        product.wait_settled(sim)
        traffic.wait_for_more(max(50, 2000 - len(traffic.done)))
    assert traffic.failures == []
    assert set(traffic.texts()) == {"blue", "green"}
    assert set(traffic.texts(since=switched)) == {"green"}, (
        "blue got new requests after the acknowledged switch"
    )


def _followed(product: Product, name: str) -> bool:
    seen = product.gateway_state()["endpoints"][f"{NAMESPACE}/{name}"]
    return seen["epoch"] == product.status(name)["traffic"]["epoch"]


@pytest.fixture(scope="module")
def figures() -> Iterator[list[Result]]:
    """Times that nothing asserts, for docs/benchmarks.md: build/bench/rollout.json."""
    found: list[Result] = []
    yield found
    save("rollout", found)


def write_down(figures: list[Result], kind: str, verdict: Object, traffic: Traffic) -> int:
    """Times around a verdict; how many requests green got after there was enough to judge it by."""
    at = datetime.fromisoformat(verdict["at"]).timestamp() - time.time() + time.monotonic()
    green = [sent for sent in traffic.done if sent.failure or sent.text == "green"]
    enough = sorted(sent.ended for sent in green)[MIN_REQUESTS - 1]
    last = max(sent.at for sent in green)
    said = f"revision that is {kind}" if kind == "slow" else f"revision with {kind}"
    figures += [
        Result(
            f"{said}: verdict after its {MIN_REQUESTS}th answer",
            at - enough,
            "s",
            goal="<= 4 s (one sample every 2 s)",
        ),
        Result(f"{said}: last request that it got, after the verdict", last - at, "s", goal="<= 5 s"),
        Result(f"{said}: failed requests", len(traffic.failures), f"of the {len(green)} that it got"),
    ]
    return sum(sent.at > enough for sent in green)


def test_a_slow_revision_is_rolled_back_and_the_status_names_the_figure(
    product: Product, sim: str, figures: list[Result]
) -> None:
    blue = product.status(sim)["activeRevision"]
    with flowing(product, f"{NAMESPACE}/{sim}") as traffic:
        product.apply(sim, simulated("green", "--ttft=0.9"))
        verdict = check_rolled_back(product, sim, blue, traffic)
    assert "above the limit of 500 ms" in verdict["message"], verdict
    assert traffic.failures == []
    write_down(figures, "slow", verdict, traffic)


def test_a_revision_that_fails_one_in_ten_is_rolled_back_for_its_error_rate(
    product: Product, sim: str, figures: list[Result]
) -> None:
    blue = product.status(sim)["activeRevision"]
    with flowing(product, f"{NAMESPACE}/{sim}") as traffic:
        product.apply(sim, simulated("green", "--error-rate=0.1"))
        verdict = check_rolled_back(product, sim, blue, traffic)
    assert "%" in verdict["message"], verdict
    after = write_down(figures, "10 % errors", verdict, traffic)
    assert len(traffic.failures) <= 2 * MIN_REQUESTS * 0.1 + after, traffic.failures[:5]


@pytest.mark.extended
def test_of_twenty_good_revisions_with_some_errors_none_is_rolled_back(product: Product) -> None:
    """0.5 % of the requests fail at every revision, and 2 % are allowed."""
    flags = ("--error-rate=0.005",)
    with product.temporary("again", simulated("0", *flags)) as name:
        product.wait_settled(name)
        with flowing(product, f"{NAMESPACE}/{name}") as traffic:
            for number in range(1, 21):
                product.apply(name, simulated(str(number), *flags))
                wait_for(f"revision {number} takes over", lambda: product.switched(name), LIMIT_S)
                product.wait_settled(name)
                assert "rejected" not in product.status(name)
    assert {str(number) for number in range(21)} <= set(traffic.texts())
    assert traffic.failures, "the simulator fails some"


def test_a_revision_that_never_is_ready_gets_no_request_and_is_rejected(product: Product, sim: str) -> None:
    blue = product.status(sim)["activeRevision"]
    with flowing(product, f"{NAMESPACE}/{sim}") as traffic:
        product.apply(sim, simulated("green", "--never-ready"))
        check_rolled_back(product, sim, blue, traffic)
    assert traffic.failures == []
    assert set(traffic.texts()) == {"blue"}


def test_a_revision_that_crashes_after_its_warm_up_is_rolled_back(product: Product, sim: str) -> None:
    blue = product.status(sim)["activeRevision"]
    with flowing(product, f"{NAMESPACE}/{sim}") as traffic:
        product.apply(sim, simulated("green", "--crash-after=20"))
        check_rolled_back(product, sim, blue, traffic)
    assert len(traffic.failures) <= 2 * 10, traffic.failures[:5]


def test_a_revision_that_answers_a_golden_prompt_wrongly_gets_no_request(product: Product, sim: str) -> None:
    blue = product.status(sim)["activeRevision"]
    prompt = {
        "name": "capital",
        "prompt": "What is the capital of France?",
        "expect": {"contains": ["Paris"]},
    }
    with flowing(product, f"{NAMESPACE}/{sim}") as traffic:
        product.apply(sim, simulated("green", verification={"prompts": [prompt]}))
        verdict = check_rolled_back(product, sim, blue, traffic)
    assert "capital" in verdict["message"]
    assert "Paris" in verdict["message"]
    assert traffic.failures == []
    assert set(traffic.texts()) == {"blue"}


def test_a_canary_gets_its_share_and_then_everything(product: Product, sim: str) -> None:
    steps = {"steps": [{"weight": 20, "duration": 30}]}
    with flowing(product, f"{NAMESPACE}/{sim}", per_second=100) as traffic:
        product.apply(sim, simulated("green", strategy="Canary", canary=steps))
        wait_for("a fifth goes to the canary", lambda: _canary_weight(product, sim) == 20, LIMIT_S)
        since = time.monotonic()
        traffic.wait_for_more(2000)
        shares = traffic.texts(since)
        product.wait_settled(sim)
    assert traffic.failures == []
    share = shares["green"] / shares.total()
    assert abs(share - 0.20) <= 0.02, shares


def _canary_weight(product: Product, name: str) -> int | None:
    """The canary's share as the gateway follows it now."""
    seen = product.gateway_state()["endpoints"][f"{NAMESPACE}/{name}"]
    return seen["weights"].get(product.status(name)["targetRevision"])


def test_a_manual_promotion_waits_until_it_is_asked_for(product: Product, sim: str) -> None:
    blue = product.status(sim)["activeRevision"]
    product.apply(sim, simulated("green", promotion="Manual"))
    wait_for("it waits", lambda: product.status(sim)["rollout"]["state"] == "AwaitingPromotion", LIMIT_S)
    assert product.status(sim)["activeRevision"] == blue
    green = product.status(sim)["targetRevision"]
    request = json.dumps({"id": datetime.now().isoformat(), "action": "promote", "revision": green})
    product.cluster.kubectl(
        "annotate", "llmendpoint", sim, "-n", NAMESPACE, "--overwrite", f"llmendpoint.io/request={request}"
    )
    wait_for("green takes over", lambda: product.switched(sim), LIMIT_S)


@pytest.mark.usefixtures("chat")
def test_where_there_is_room_for_one_replica_alone_requests_are_held_and_none_fails(product: Product) -> None:
    """Of four accelerators the shared endpoint has one or two, so that two replicas with two each find no room: with
    capacity Recreate the old pod goes first, and requests wait for the new one."""
    whole = {"accelerator": {"kind": "nvidia.com/gpu", "count": 2}}
    first = {**simulated("blue", "--load-time=2", replicas=1), "resources": whole}
    second = {**simulated("green", "--load-time=2", replicas=1, capacity="Recreate"), "resources": whole}
    with product.temporary("single", first) as name:
        product.wait_settled(name)
        with flowing(product, f"{NAMESPACE}/{name}", per_second=20) as traffic:
            product.apply(name, second)
            wait_for("green takes over", lambda: product.switched(name), LIMIT_S)
            product.wait_settled(name)
            traffic.wait_for_more(100)
        assert traffic.failures == []
        assert set(traffic.texts()) == {"blue", "green"}
        longest = max(sent.ended - sent.at for sent in traffic.done)
        assert longest > 2, "no request had to wait for the model to load"


def test_in_a_full_cluster_pods_are_exchanged_in_place_and_no_request_fails(
    product: Product, chat: str
) -> None:
    """What the shared endpoint leaves of four accelerators is taken by the old revision to the last one."""
    free = 4 - len(product.pods(chat))
    one = {"accelerator": {"kind": "nvidia.com/gpu", "count": 1}}
    fewest = free

    def exchanged() -> bool:
        nonlocal fewest
        fewest = min(fewest, sum(map(is_ready, product.pods(name))))
        return product.switched(name) and product.settled(name) is not None

    with product.temporary("full", {**simulated("blue", replicas=free), "resources": one}) as name:
        product.wait_settled(name)
        with flowing(product, f"{NAMESPACE}/{name}") as traffic:
            green = simulated("green", replicas=free, unschedulableSeconds=2)
            product.apply(name, {**green, "resources": one})
            wait_for("every pod is exchanged", exchanged, LIMIT_S)
            traffic.wait_for_more(100)
        assert product.status(name)["rollout"]["mode"] == "InPlace"
        assert fewest >= 1, "for a moment no pod of either revision was ready"
        assert traffic.failures == []
        assert set(traffic.texts()) == {"blue", "green"}
