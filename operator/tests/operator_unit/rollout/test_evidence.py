"""docs/concepts/rollouts.md: nothing is concluded from figures that are not there, or that are older than the switch."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from llmendpoint_operator.core.endpoint.plan import WriteStatus, make_plan
from llmendpoint_operator.core.rollout.evidence import Figures, Outcome, Verification
from llmendpoint_operator.core.rollout.wanted import Wanted, find_wanted
from llmendpoint_operator.observe.targets import targets_of

from ..fake_cluster import NOW, FakeCluster
from ..rollout_stage import PROMPTS, WATCHED, Rollout

RELATIVE = {"ttft": {"maxRatio": 1.5}}


def test_gateways_that_are_all_unready_for_a_moment_confirm_nothing() -> None:
    it = Rollout()
    green = it.switched()
    it.cluster.figures = {green: Figures(requests=4, errors=4, clumping=10, seconds=5)}
    gateways, it.cluster.gateways = it.cluster.gateways, {}
    it.cluster.gateways_known = False
    assert it.work(5) == "Observing"
    assert it.cluster.replicas()[it.blue] == 2
    it.cluster.gateways, it.cluster.gateways_known = gateways, True
    it.cluster.figures = {green: Figures(requests=20, errors=20, seconds=7)}
    assert it.work(2) == "RollingBack"


@pytest.mark.parametrize(
    ("observe", "patience", "expected"),
    [
        ({}, 60, "Idle"),
        ({**WATCHED, "onInconclusive": "Promote"}, 600, "Idle"),
        ({**WATCHED, "onInconclusive": "Rollback"}, 600, "RollingBack"),
        (WATCHED, 600, "Observing"),
    ],
)
def test_after_a_restart_in_mid_observation_nothing_follows_from_figures_that_are_not_read_yet(
    observe: dict[str, Any], patience: int, expected: str
) -> None:
    """The operator was away until after the observation's end: it must not take silence for a verdict."""
    it = Rollout(observe=observe)
    green = it.switched()
    it.cluster.figures, it.cluster.watched = {}, 0.1
    assert it.work(patience + 1) == "Observing"
    assert it.cluster.plan(it.now).requeue_after == pytest.approx(60 - 0.1), "spec.rollout.observe.duration"
    assert not any(told.startswith("Inconclusive") for told in it.told)
    it.cluster.figures, it.cluster.watched = {green: Figures(requests=1, seconds=patience)}, patience
    assert it.work(patience) == expected
    assert sum("no verdict" in told for told in it.told) == 1


def test_after_a_restart_a_bad_revision_is_still_found() -> None:
    it = Rollout()
    green = it.switched()
    it.cluster.watched = 0.1
    it.work(61)
    it.cluster.figures, it.cluster.watched = {green: Figures(requests=20, errors=20, seconds=4)}, 4
    assert it.work(4) == "RollingBack"


def wanted(cluster: FakeCluster) -> Wanted:
    found = find_wanted(cluster.snapshot())
    assert found is not None
    return found


def test_nothing_is_measured_of_a_first_revision_which_nothing_judges() -> None:
    cluster = FakeCluster(gateways={"gw-1": None})
    cluster.settle()
    assert wanted(cluster).measured == ()
    cluster.make_ready(cluster.target)
    cluster.settle()
    assert cluster.state == "Switching"
    assert wanted(cluster).measured == ()


@pytest.mark.parametrize("observe", [{}, RELATIVE, {"errorRate": {"maxIncrease": 0.01}}])
def test_before_the_switch_the_old_revision_is_measured_and_after_it_the_new_one(
    observe: dict[str, Any],
) -> None:
    it = Rollout(observe=observe)
    green = it.edit()
    assert wanted(it.cluster).measured == (it.blue,)
    it.cluster.make_ready(green)
    it.work()
    assert it.work(61) in ("Switching", "Observing")
    assert wanted(it.cluster).measured == (green,)


def test_pods_of_both_revisions_are_there_for_the_prompts() -> None:
    it = Rollout(verification={"prompts": PROMPTS})
    green = it.edit()
    it.cluster.make_ready(green)
    for revision, pods in it.cluster.pods.items():
        for pod in pods:
            pod["status"]["podIP"] = f"10.0.0.{1 + (revision == green)}"
    it.cluster.verification = Verification(green, Outcome.RUNNING)
    assert it.work() == "Verifying"
    found = wanted(it.cluster)
    assert found.measured == (it.blue,)
    assert {pod.revision for pod in targets_of(it.cluster.snapshot(), found.asked)} == {it.blue, green}


def test_while_both_revisions_get_requests_both_are_measured() -> None:
    it = Rollout(observe={"control": 20})
    green = it.edit()
    it.cluster.make_ready(green)
    it.work()
    assert it.work(61) in ("Switching", "Observing")
    assert wanted(it.cluster).measured == (green, it.blue)


def test_without_gateways_figures_from_before_the_switch_do_not_judge_it() -> None:
    it = Rollout(observe={**WATCHED, **RELATIVE})
    it.cluster.gateways = {}
    green = it.edit()
    it.cluster.make_ready(green)
    assert it.work() == "AwaitingPromotion"
    it.cluster.figures = {green: Figures(requests=50, errors=50)}
    it.cluster.reconcile(it.now + timedelta(seconds=61))
    assert it.cluster.state == "Observing"
    assert it.cluster.weights() == {green: 100}
    assert it.work(61) == "RolledBack", "what is read in the window counts"


def test_a_canarys_step_is_not_judged_by_the_figures_of_the_step_before() -> None:
    steps = [{"weight": 10, "duration": 0}, {"weight": 50, "duration": 60}]
    it = Rollout(strategy="Canary", canary={"steps": steps}, observe=WATCHED)
    green = it.edit()
    it.cluster.make_ready(green)
    assert it.work() == "Switching"
    it.cluster.figures = {green: Figures(requests=50, errors=50)}
    it.cluster.gateways = {}
    it.cluster.reconcile(it.now)
    assert it.cluster.status["rollout"]["step"] == 1
    assert it.cluster.state == "Observing"


def set_ready(pod: dict[str, Any], ready: bool, at: datetime) -> None:
    """As a kubelet writes it; a new pod's condition begins False when its node takes it."""
    pod["status"]["conditions"] = [
        {"type": "Ready", "status": str(ready), "lastTransitionTime": text(at)},
        {"type": "Initialized", "status": "True", "lastTransitionTime": text(NOW)},
    ]


def end_engine(pod: dict[str, Any], at: datetime, code: int = 1) -> None:
    """The engine ended once; it runs again, or waits to."""
    ended = {"exitCode": code, "message": "CUDA error", "finishedAt": text(at)}
    pod["status"]["containerStatuses"] = [
        {"name": "engine", "state": {"running": {}}, "lastState": {"terminated": ended}}
    ]


def text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_crash_in_the_second_of_the_switch_counts_though_kubelets_write_whole_seconds() -> None:
    it = Rollout()
    it.now += timedelta(seconds=0.7)
    green = it.switched()
    [pod, _] = it.cluster.pods[green]
    end_engine(pod, it.now)
    set_ready(pod, False, it.now)
    assert it.work(1) == "RollingBack"


def test_an_engine_that_ended_while_it_loaded_and_a_blip_after_the_switch_are_no_crash() -> None:
    it = Rollout()
    before = it.now
    it.now += timedelta(seconds=60)
    green = it.switched()
    [pod, _] = it.cluster.pods[green]
    end_engine(pod, before)
    set_ready(pod, False, it.now + timedelta(seconds=5))
    assert it.work(5) == "Observing"
    assert "rejected" not in it.cluster.status


def test_the_first_load_of_a_replica_that_was_added_after_the_switch_is_no_crash() -> None:
    it = Rollout()
    green = it.switched()
    it.cluster.edit(it.cluster.spec.model_copy(update={"replicas": 3}))
    it.work()
    added = it.cluster.pods[green][2]
    end_engine(added, it.now + timedelta(seconds=20))
    set_ready(added, False, NOW)
    assert it.work(21) == "Observing"
    assert it.cluster.condition("Degraded")["reason"] == "EngineCrashed", "it is told all the same"


@pytest.mark.parametrize("code", [None, 143])
def test_a_pod_that_its_node_took_off_is_no_crash_and_no_replica(code: int | None) -> None:
    it = Rollout()
    green = it.switched()
    gone = copy.deepcopy(it.cluster.pods[green][0])
    gone["metadata"]["name"] += "-gone"
    gone["status"] |= {"phase": "Failed", "reason": "Terminated", "message": "Pod was terminated"}
    set_ready(gone, False, it.now + timedelta(seconds=5))
    if code is not None:
        end_engine(gone, it.now + timedelta(seconds=5), code)
    it.cluster.pods[green].append(gone)
    before = it.cluster.status["replicas"]
    snapshot = replace(it.cluster.snapshot(), pods={h: tuple(p) for h, p in it.cluster.pods.items()})
    plan = make_plan(snapshot, it.now + timedelta(seconds=6))
    [status] = [step.status for step in plan.steps if isinstance(step, WriteStatus)] or [it.cluster.status]
    assert status["rollout"]["state"] == "Observing"
    assert status["replicas"] == before
    [degraded] = [c for c in status["conditions"] if c["type"] == "Degraded"]
    assert degraded["status"] == "False"
