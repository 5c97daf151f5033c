"""docs/concepts/rollouts.md: what is promoted, what rolls itself back, and who may die meanwhile, on a real API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import yaml

from llmendpoint_cli.core.requests import Action, Request, patch_for
from llmendpoint_cli.core.respec import spec_patch
from llmendpoint_operator.kube.resources import CONTROLLER_REVISIONS, ENDPOINTS
from tests.cluster import Cluster
from tests.integration.mortal_operator import Operator
from tests.integration.operator_process import OperatorProcess
from tests.integration.rollout_players import Behaviour
from tests.integration.rollout_stage import QUICK, Stage, Stages, open_stages
from tests.integration.valve import Valve

pytestmark = pytest.mark.integration

GOLDEN = {
    "prompts": [{"name": "capital", "prompt": "Capital of France?", "expect": {"contains": ["Paris"]}}],
    "timeoutSeconds": 5,
}
VARYING = {
    "prompts": [
        {
            "name": "tone",
            "prompt": "Say it.",
            "temperature": 1,
            "samples": 5,
            "compare": {"mode": "Similarity"},
        }
    ]
}


async def first_revision(stage: Stage, **fields: Any) -> str:
    """Revision 1 serves."""
    await stage.edit(1, **fields)
    return await stage.at_rest()


def one_at_a_time(stage: Stage) -> bool:
    """In Surge no assignment ever named two revisions."""
    return all(len([w for w in found["weights"] if w["weight"]]) == 1 for found in stage.history)


async def still(operator: Operator) -> None:
    """At rest nothing is written: not for two seconds, once the last pods have gone."""
    for _ in range(10):
        writes = operator.api.writes
        await asyncio.sleep(2)
        if operator.api.writes == writes:
            return
    raise AssertionError("the operator goes on writing though nothing changes")


async def test_a_good_revision_is_promoted_and_no_request_is_lost(stages: Stages) -> None:
    async with stages.stage() as stage:
        operator = await Operator(stage).start()
        fields = {"replicas": 2, "rollout": {"verification": GOLDEN}}
        first = await first_revision(stage, **fields)
        await stage.edit(2, **fields)
        second = await stage.at_rest()
        assert second != first
        assert stage.states[-1] == "Idle"
        assert "Observing" in stage.states
        assert "RollingBack" not in stage.states
        assert stage.lost == stage.failed == 0
        assert one_at_a_time(stage)
        assert "rejected" not in stage.status
        assert stage.condition("Ready")["status"] == "True"
        await still(operator)


async def test_an_undo_takes_its_spec_along_and_is_nothing_without_it(stages: Stages) -> None:
    """The API server fills defaults in; the operator knows its own revision again all the same."""
    async with stages.stage() as stage:
        await Operator(stage).start()
        first = await first_revision(stage)
        resources = {"nodeSelector": {"a.example/b": "c"}, "cpu": "1m"}
        await stage.edit(2, resources=resources, terminationGracePeriodSeconds=30)
        second = await stage.at_rest()
        await stage.ask("undo", revision=first)
        await stage.until("an answer", lambda: "request" in stage.status)
        assert stage.status["request"]["outcome"] == "Refused"
        assert stage.active == second

        records = (await stage.api.list(CONTROLLER_REVISIONS, stage.namespace))["items"]
        [record] = [r for r in records if r["metadata"]["labels"]["llmendpoint.io/revision"] == first]
        path = ENDPOINTS.path(stage.namespace, "chat")
        live = await stage.api._call("GET", path)
        change = patch_for(live, Request("undo-1", Action.UNDO, first), spec_patch(live["spec"], record["data"]["inputs"]))  # fmt: skip
        stage.endpoint = await stage.api._call("PATCH", path, {}, change, "application/merge-patch+json")
        assert await stage.at_rest() == first
        assert (stage.status["request"]["id"], stage.status["request"]["outcome"]) == ("undo-1", "Accepted")
        assert stage.endpoint["spec"]["resources"] == {}
        assert stage.lost == stage.failed == 0


REJECTED = {
    "slow": (
        Behaviour(ttft=0.8),
        {"observe": {**QUICK["observe"], "ttft": {"p95Seconds": 0.2}}},
        "TimeToFirstTokenTooHigh",
        "time to first token p95",
    ),
    "slower than before": (
        Behaviour(ttft=0.8),
        {"observe": {**QUICK["observe"], "duration": 10, "ttft": {"maxRatio": 2}}},
        "TimeToFirstTokenIncreased",
        "times the old revision's",
    ),
    "erroring": (Behaviour(error_every=10), {}, "ErrorRateTooHigh", "is above the limit of 5.0%"),
    "wrong": (
        Behaviour(answer="It is Lyon."),
        {"verification": GOLDEN},
        "VerificationFailed",
        "prompt capital: expected to contain 'Paris', got 'It is Lyon.'",
    ),
    "unlike before": (
        Behaviour(answer="Zq xw."),
        {"verification": VARYING},
        "VerificationFailed",
        "its own answers reach 1.00 among themselves; 1 in 126 by chance",
    ),
}


@pytest.mark.parametrize("name", REJECTED)
async def test_a_bad_revision_is_rolled_back_and_the_status_names_the_figure(
    stages: Stages, name: str
) -> None:
    behaviour, rollout, reason, figure = REJECTED[name]
    async with stages.stage(behaviours={2: behaviour}) as stage:
        operator = await Operator(stage).start()
        first = await first_revision(stage, rollout=rollout)
        await asyncio.sleep(1)
        await stage.edit(2, rollout=rollout)
        assert await stage.at_rest("RolledBack") == first
        rejected = stage.status["rejected"]
        assert rejected["reason"] == reason
        assert figure in rejected["message"]
        assert stage.condition("Ready")["status"] == "True"
        stalled = stage.condition("Stalled")
        assert (stalled["status"], stalled["reason"]) == ("True", "RevisionRejected")
        assert figure in stalled["message"]
        assert stage.lost == 0
        assert one_at_a_time(stage)
        await still(operator)
        assert stage.rollout["state"] == "RolledBack"


async def test_a_revision_that_crashes_after_the_switch_is_rolled_back(stages: Stages) -> None:
    behaviour = Behaviour()
    async with stages.stage(behaviours={2: behaviour}, traffic=False) as stage:
        await Operator(stage).start()
        observe = {**QUICK["observe"], "duration": 60, "maxDuration": 60}
        first = await first_revision(stage, rollout={"observe": observe})
        await stage.edit(2, rollout={"observe": observe})
        await stage.until("the new revision to be observed", lambda: stage.rollout["state"] == "Observing")
        behaviour.crashed = True
        assert await stage.at_rest("RolledBack") == first
        assert stage.status["rejected"]["reason"] == "RevisionCrashed"
        assert "device lost" in stage.status["rejected"]["message"]


async def test_a_revision_that_never_becomes_ready_is_rolled_back_after_its_deadline(stages: Stages) -> None:
    async with stages.stage(behaviours={2: Behaviour(ready=False)}) as stage:
        await Operator(stage).start()
        first = await first_revision(stage)
        await stage.edit(2, progressDeadlineSeconds=10)
        assert await stage.at_rest("RolledBack") == first
        assert stage.status["rejected"]["reason"] == "ProgressDeadlineExceeded"
        assert len({str(found["weights"]) for found in stage.history}) == 1, "it never got a request"


async def test_an_edit_after_a_rejection_is_tried(stages: Stages) -> None:
    async with stages.stage(behaviours={2: Behaviour(error_every=3)}) as stage:
        await Operator(stage).start()
        first = await first_revision(stage)
        await stage.edit(2)
        assert await stage.at_rest("RolledBack") == first
        await stage.edit(3)
        assert await stage.at_rest() != first
        assert "rejected" not in stage.status
        assert stage.condition("Stalled") == {}


async def test_a_gateway_that_never_acknowledges_keeps_the_old_pods_and_stops_nobody(stages: Stages) -> None:
    """The switch goes on after ten seconds; the old pods stay until that gateway follows."""
    async with stages.stage() as stage:
        await Operator(stage).start()
        first = await first_revision(stage)
        stage.deaf.add("gateway-1")
        await stage.edit(2)
        await stage.until("the switch to go on", lambda: stage.rollout["state"] == "Draining")
        await asyncio.sleep(3)
        assert stage.rollout["state"] == "Draining"
        assert (await stage.replicas())[first] == 1
        told = stage.gateways["gateway-1"].told
        assert told
        assert set(told[-1].values()) == {stage.status["traffic"]["epoch"]}
        assert stage.gateways["gateway-0"].told == []
        stage.deaf.clear()
        assert await stage.at_rest() != first
        assert stage.lost == 0


async def test_a_gateway_that_hangs_is_not_waited_for_longer_than_its_time(stages: Stages) -> None:
    async with stages.stage() as stage:
        await Operator(stage).start()
        await first_revision(stage)
        stuck = stage.gateways["gateway-1"]
        stuck.hanging = True
        stage.deaf.add("gateway-1")
        await stage.edit(2)
        await stage.until("the switch to go on", lambda: stage.rollout["state"] == "Draining")
        stuck.hanging = False
        stage.deaf.clear()
        await stage.at_rest()
        assert stage.lost == 0


async def test_without_a_gateway_a_revision_is_promoted_too(stages: Stages) -> None:
    async with stages.stage(gateways=0) as stage:
        await Operator(stage).start()
        first = await first_revision(stage, rollout={"observe": {"duration": 1}})
        await stage.edit(2, rollout={"observe": {"duration": 1}})
        assert await stage.at_rest() != first


async def test_a_canary_gets_its_shares_step_by_step(stages: Stages) -> None:
    canary = {
        "strategy": "Canary",
        "canary": {"steps": [{"weight": 20, "duration": 1}, {"weight": 50, "duration": 1}]},
    }
    async with stages.stage() as stage:
        await Operator(stage).start()
        first = await first_revision(stage, rollout=canary)
        await stage.edit(2, rollout=canary)
        second = await stage.at_rest()
        shares = [
            {w["revision"]: w["weight"] for w in found["weights"]}.get(second, 0) for found in stage.history
        ]
        assert shares == [0, 20, 50, 100]
        assert second != first
        assert stage.lost == stage.failed == 0


async def test_the_old_revision_keeps_a_share_for_comparison_until_the_verdict(stages: Stages) -> None:
    control = {
        "observe": {**QUICK["observe"], "control": 25, "errorRate": {"max": 0.05, "maxIncrease": 0.05}}
    }
    async with stages.stage() as stage:
        operator = await Operator(stage).start()
        first = await first_revision(stage, rollout=control)
        await stage.edit(2, rollout=control)
        second = await stage.at_rest()
        shares = [
            {w["revision"]: w["weight"] for w in found["weights"]}.get(second, 0) for found in stage.history
        ]
        assert shares == [0, 75, 100]
        assert second != first
        assert stage.lost == stage.failed == 0
        await still(operator)


async def test_another_operator_goes_on_with_the_counts_of_the_one_before(stages: Stages) -> None:
    observe = {"observe": {"duration": 20, "maxDuration": 120, "errorRate": {"max": 0.05}}}
    async with stages.stage() as stage:
        operator = await Operator(stage).start()
        await first_revision(stage, rollout=observe)
        await stage.edit(2, rollout=observe)
        await stage.until("counts in the status", lambda: "observation" in stage.rollout)
        await operator.stop()
        counted = stage.rollout["observation"]["requests"]
        assert counted > 0
        began, before = len(stage.history), stage.history[-1]["weights"]
        operator = await Operator(stage).start()

        def gone_on() -> bool:
            told = stage.rollout.get("observation")
            return told is not None and told["requests"] > counted

        await stage.until("more counts", gone_on)
        assert stage.rollout["observation"]["history"][0]["seconds"] < 10, "the course of the evidence too"
        assert await stage.at_rest() == stage.active
        assert stage.status["activeRevision"] == stage.status["targetRevision"]
        assert stage.lost == stage.failed == 0
        assert all(one["weights"] == before for one in stage.history[began:]), "no request went back"
        await still(operator)


async def test_an_exchange_in_place_keeps_enough_pods_and_loses_no_request(stages: Stages) -> None:
    in_place = {"capacity": "InPlace", "minAvailable": 2}
    async with stages.stage() as stage:
        await Operator(stage).start()
        first = await first_revision(stage, replicas=3, rollout=in_place)
        stage.ready_counts.clear()
        await stage.edit(2, replicas=3, rollout=in_place)
        assert await stage.at_rest() != first
        assert min(stage.ready_counts) >= 2
        shares = [len(found["weights"]) for found in stage.history]
        assert max(shares) == 2, "for a while both got requests"
        assert stage.lost == stage.failed == 0


async def test_an_edit_during_a_rollout_replaces_the_one_that_never_came_up(stages: Stages) -> None:
    async with stages.stage(behaviours={2: Behaviour(ready=False)}) as stage:
        await Operator(stage).start()
        first = await first_revision(stage)
        await stage.edit(2)
        await stage.until("the second revision to come up", lambda: stage.rollout["state"] == "Warming")
        abandoned = stage.rollout["green"]
        await stage.edit(3)
        assert await stage.at_rest() not in (first, abandoned)
        assert (await stage.replicas())[abandoned] == 0
        assert stage.lost == stage.failed == 0


async def test_a_revert_while_the_new_revision_is_observed_goes_back_at_once(stages: Stages) -> None:
    observe = {"observe": {**QUICK["observe"], "duration": 60, "maxDuration": 60}}
    async with stages.stage() as stage:
        await Operator(stage).start()
        first = await first_revision(stage, rollout=observe)
        await stage.edit(2, rollout=observe)
        await stage.until("the new revision to be observed", lambda: stage.rollout["state"] == "Observing")
        await stage.edit(1, rollout=observe)
        assert await stage.at_rest() == first
        assert "rejected" not in stage.status
        assert stage.lost == stage.failed == 0
        assert one_at_a_time(stage)


async def test_a_manual_promotion_waits_for_the_request_and_an_abort_goes_back(stages: Stages) -> None:
    manual = {"promotion": "Manual"}
    async with stages.stage() as stage:
        await Operator(stage).start()
        first = await first_revision(stage, rollout=manual)
        await stage.edit(2, rollout=manual)

        def waiting() -> bool:
            return bool(stage.rollout.get("state") == "AwaitingPromotion")

        await stage.until("the promotion to be awaited", waiting)
        await asyncio.sleep(1)
        assert stage.active == first
        await stage.ask("promote", revision=stage.rollout["green"])
        second = await stage.at_rest()
        assert second != first
        await stage.edit(3, rollout=manual)
        await stage.until("the promotion to be awaited", waiting)
        await stage.ask("abort", revision=stage.rollout["green"])
        assert await stage.at_rest("RolledBack") == second
        assert stage.status["rejected"]["reason"] == "Aborted"
        assert stage.lost == 0


async def life_and_death(stages: Stages, behaviour: Behaviour, state: str, die_after: int | None) -> Any:
    """A rollout whose operator dies after its n-th write, and another one that finds what is there. The writes of an
    operator that lives, and the final state."""
    async with stages.stage(behaviours={2: Behaviour(**vars(behaviour))}) as stage:
        fields = {"rollout": {"verification": GOLDEN}}
        before = await Operator(stage).start()
        await first_revision(stage, **fields)
        await before.stop()
        operator = await Operator(stage, die_after).start()
        await stage.edit(2, **fields)
        if die_after is not None:
            await dead_or_done(operator, stage, state)
            await operator.stop()
            operator = await Operator(stage).start()
        await stage.at_rest(state, 90)
        found = await stage.final()
        assert stage.lost == 0
        assert one_at_a_time(stage)
        return operator.api.writes, found


async def dead_or_done(operator: Operator, stage: Stage, state: str) -> None:
    """Until it has died, or has had the time for all its writes. How many changes one write of the status tells of depends
    on how busy the machine is, so that a life may have fewer writes than another."""
    dead = asyncio.ensure_future(operator.api.dead.wait())
    rest = asyncio.ensure_future(stage.at_rest(state, 60))
    await asyncio.wait({dead, rest}, return_when=asyncio.FIRST_COMPLETED)
    if rest.done():
        rest.result()
        await asyncio.wait({dead}, timeout=5)
    for task in (dead, rest):
        task.cancel()


@pytest.mark.parametrize(
    ("behaviour", "state"), [(Behaviour(), "Idle"), (Behaviour(error_every=3), "RolledBack")]
)
async def test_an_operator_killed_after_any_write_leaves_a_rollout_that_ends_the_same(
    stages: Stages, behaviour: Behaviour, state: str
) -> None:
    writes, expected = await life_and_death(stages, behaviour, state, None)
    assert writes >= 8, "a rollout has many writes to die after"
    at_once = asyncio.Semaphore(6)

    async def die(number: int) -> tuple[int, Any]:
        async with at_once:
            return number, (await life_and_death(stages, behaviour, state, number))[1]

    # The last write may be a record that another life makes no more; every one before it is a point to die at.
    results = await asyncio.gather(*(die(number) for number in range(1, writes)))
    assert [(number, found) for number, found in results if found != expected] == []


async def test_an_api_server_that_goes_away_in_mid_rollout_costs_time_and_no_request(
    prepared: Cluster, tmp_path: Any
) -> None:
    """A real process: it loses its lease, ends as it must, and is started again as a kubelet does."""
    async with open_stages(prepared) as stages, stages.stage() as stage:
        host = prepared.api_url.removeprefix("https://").rpartition(":")[0]
        async with Valve(host, prepared.port) as valve:
            config = yaml.safe_load(prepared.kubeconfig.read_text())
            config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{valve.port}"
            kubeconfig = tmp_path / "kubeconfig"
            kubeconfig.write_text(yaml.safe_dump(config))
            operator = OperatorProcess(
                prepared, "--kubeconfig", str(kubeconfig), "--watch-namespace", stage.namespace,
                "--gateway-namespace", stage.namespace, "--gateway-state-port", str(stage.gateway_port),
            )  # fmt: skip
            with await asyncio.to_thread(operator.start):
                first = await first_revision(stage)
                await stage.edit(2, rollout={"observe": {**QUICK["observe"], "duration": 4}})
                await stage.until("the switch", lambda: stage.rollout["state"] in ("Switching", "Observing"))
                valve.shut()
                ended = await asyncio.to_thread(operator.wait)
                assert ended == 1, "who cannot renew the lease must end"
                valve.reopen()
                await asyncio.to_thread(operator.start)
                assert await stage.at_rest() != first
                assert stage.lost == stage.failed == 0
