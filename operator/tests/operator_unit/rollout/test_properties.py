"""docs/concepts/rollouts.md: whatever happens in whatever order, one revision gets requests and the end is what the spec asks for.

Random edits, reverts, scalings, pod failures, requests, lagging gateways, late and lost events, clock jumps, lost
status and crashes after any write. The revision that gets requests keeps its pods.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from llmendpoint_operator.core.endpoint.plan import WriteStatus, make_plan
from llmendpoint_operator.core.endpoint.snapshot import Request, Snapshot
from llmendpoint_operator.core.names import REVISION_LABEL
from llmendpoint_operator.core.rollout.evidence import Figures, Outcome, Verification

from ..fake_cluster import NOW, FakeCluster, make_spec
from ..operator_rules import OperatorRules

PROMPTS = [{"name": "capital", "prompt": "Capital of France?", "expect": {"contains": ["Paris"]}}]


class Rollouts(OperatorRules):
    """One endpoint in a fake cluster, with two gateways."""

    ROLLOUT: dict[str, Any] = {"capacity": "Surge", "verification": {"prompts": PROMPTS}}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.cluster = FakeCluster(self.spec(), gateways={"gw-1": None, "gw-2": None})
        self.now = NOW
        self.epochs: dict[int, dict[str, int]] = {}
        self.asked = 0
        self.late: Snapshot | None = None

    def spec(self, seqs: int = 1, replicas: int = 1) -> Any:
        return make_spec(
            replicas=replicas, engine={"maxNumSeqs": seqs}, revisionHistoryLimit=1, rollout=self.ROLLOUT
        )

    def reconcile(self, stop_after: int = 1000) -> int:
        cluster, heard = self.cluster, self.heard()
        steps = make_plan(heard, self.now).steps
        for step in steps[:stop_after]:
            if isinstance(step, WriteStatus) and step.resource_version != str(cluster.version):
                break  # the API server refuses it: somebody was faster
            ready = {r: ready_of(pods) for r, pods in heard.pods.items()}
            had, before, weights = cluster.replicas(), cluster.active, cluster.weights()
            cluster.do(step)
            self.check_switch(before, ready)
            self.check_pods(had)
            self.check_traffic(weights)
        return len(steps)

    def heard(self) -> Snapshot:
        """What the caches hold: the operator's own writes at once, what others did as late as its events."""
        now = self.cluster.snapshot()
        if self.late is None:
            return now
        status_is_ours = self.late.endpoint.status == now.endpoint.status
        return replace(
            now, pods=self.late.pods, endpoint=self.late.endpoint if status_is_ours else now.endpoint
        )

    @rule()
    def events_are_late(self) -> None:
        self.late = self.late or copy.deepcopy(self.cluster.snapshot())

    @rule()
    def events_arrive(self) -> None:
        self.late = None

    def check_switch(self, before: str | None, ready: dict[str, int]) -> None:
        """Requests go to who answers; to fewer pods only when nobody answers otherwise, or back."""
        new = self.cluster.active
        if new == before:
            return
        wanted = self.cluster.spec.replicas
        assert (
            wanted == 0
            or ready.get(str(new), 0) >= 1
            or not ready.get(str(before))
            or self.cluster.state in ("RollingBack", "RolledBack", "Idle")
        ), f"{before} -> {new} while {ready} were ready"

    def check_pods(self, had: dict[str, int]) -> None:
        cluster = self.cluster
        kept = min(had.get(str(cluster.active), 0), cluster.spec.replicas)
        assert cluster.replicas().get(str(cluster.active), 0) >= kept, "the active revision lost pods"
        for name, epoch in cluster.gateways.items():
            for revision in self.epochs.get(epoch or 0, {}) if cluster.spec.replicas else ():
                if had.get(revision):
                    assert cluster.replicas().get(revision), (
                        f"{name} sends requests to {revision}, whose pods went"
                    )

    def check_traffic(self, before: dict[str, int]) -> None:
        """In Surge exactly one revision gets new requests, and each assignment has an epoch of its own."""
        traffic = self.cluster.status.get("traffic")
        if traffic is None:
            return
        weights = self.cluster.weights()
        assert list(weights.values()) == [100]
        assert list(weights) == [self.cluster.active]
        known = self.epochs.setdefault(traffic["epoch"], weights)
        assert known == weights, f"epoch {traffic['epoch']} stood for {known}, now for {weights}"
        assert traffic["epoch"] == max(self.epochs), "an epoch went back"

    @rule(seqs=st.integers(1, 4))
    def edit_or_revert(self, seqs: int) -> None:
        self.cluster.edit(self.spec(seqs, self.cluster.spec.replicas))

    @rule(count=st.integers(0, 3))
    def scale(self, count: int) -> None:
        self.cluster.edit(self.cluster.spec.model_copy(update={"replicas": count}))

    @rule(pick=st.integers(0, 100), count=st.integers(1, 3))
    @precondition(lambda self: self.cluster.pods)
    def pods_become_ready(self, pick: int, count: int) -> None:
        revisions = sorted(self.cluster.pods)
        self.cluster.make_ready(revisions[pick % len(revisions)], count)

    @rule(pick=st.integers(0, 100))
    @precondition(lambda self: self.cluster.pods)
    def a_pod_dies(self, pick: int) -> None:
        revisions = sorted(self.cluster.pods)
        self.cluster.pods[revisions[pick % len(revisions)]].pop(0)
        self.cluster.run_deployments()

    @rule(seconds=st.integers(-20, 40))
    def the_clock_moves(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(name=st.sampled_from(["gw-1", "gw-2"]))
    def a_gateway_follows(self, name: str) -> None:
        self.cluster.gateways[name] = self.cluster.status.get("traffic", {}).get("epoch")

    @rule(action=st.sampled_from(["promote", "abort", "undo", "restart"]), pick=st.integers(0, 100))
    @precondition(lambda self: self.cluster.replicas())
    def somebody_asks(self, action: str, pick: int) -> None:
        self.asked += 1
        revisions = sorted(self.cluster.replicas())
        revision = revisions[pick % len(revisions)]
        self.cluster.request = Request(f"request-{self.asked}", action, revision)

    @rule(passed=st.booleans())
    @precondition(lambda self: self.cluster.status)
    def the_prompts_are_answered(self, passed: bool) -> None:
        outcome = Outcome.PASSED if passed else Outcome.FAILED
        self.cluster.verification = Verification(self.cluster.target, outcome, "prompt capital: not Paris")

    @rule()
    def the_status_is_lost(self) -> None:
        cluster = self.cluster
        self.settle()
        before = cluster.active
        cluster.follow()
        cluster.status, cluster.version = {}, cluster.version + 1
        self.reconcile()
        assert cluster.active in (before, cluster.target)

    def settle(self) -> None:
        self.events_arrive()
        for _ in range(12):
            if not self.reconcile():
                return
        raise AssertionError(f"still writing in {self.cluster.state}")

    @rule()
    def a_settled_cluster_serves_from_the_active_revision(self) -> None:
        cluster = self.cluster
        self.settle()
        before = copy.deepcopy((cluster.status, cluster.objects))
        assert cluster.plan(self.now).steps == ()
        assert before == (cluster.status, cluster.objects)
        selected = cluster.objects["Service", "chat"]["spec"]["selector"][REVISION_LABEL]
        assert selected == (cluster.active or "none")

    def teardown(self) -> None:
        """All goes well from here: what the spec asks for is there, and nothing else; or it was rejected."""
        cluster = self.cluster
        for _ in range(10):
            self.settle()
            cluster.verification = Verification(cluster.target, Outcome.PASSED)
            for revision in list(cluster.pods):
                cluster.make_ready(revision)
            cluster.follow()
            self.now += timedelta(seconds=61)
        self.settle()
        cluster.follow()
        self.now += timedelta(seconds=61)
        self.settle()
        rejected = cluster.status.get("rejected", {}).get("revision")
        assert cluster.state == ("RolledBack" if rejected else "Idle")
        assert (cluster.active == cluster.target) != (rejected == cluster.target)
        serving = {cluster.active: cluster.spec.replicas} if cluster.active and cluster.spec.replicas else {}
        left = {r: n for r, n in cluster.replicas().items() if n}
        assert left == serving, f"{left} in {cluster.status}"
        override = cluster.status.get("override", {})
        undone = bool(override) and "salt" not in override
        limit = 1 + cluster.spec.revision_history_limit + bool(rejected) + undone
        assert len(cluster.by_revision("ControllerRevision")) <= limit


def ready_of(pods: tuple[dict[str, Any], ...]) -> int:
    return sum(pod["status"]["conditions"][0]["status"] == "True" for pod in pods)


class WatchedRollouts(Rollouts):
    """With a limit, and figures that keep it, break it, or are too few; zero and edits come in mid-observation."""

    ROLLOUT = Rollouts.ROLLOUT | {
        "observe": {"errorRate": {"max": 0.02}, "maxDuration": 60, "onInconclusive": "Promote"}
    }

    @rule(requests=st.sampled_from([0, 15, 20]), failed=st.booleans())
    @precondition(lambda self: self.cluster.status)
    def callers_come(self, requests: int, failed: bool) -> None:
        figures = Figures(requests=requests, errors=requests * failed)
        self.cluster.figures = {self.cluster.target: figures}

    def teardown(self) -> None:
        self.cluster.figures = {}
        super().teardown()


TestRollouts = Rollouts.TestCase
TestRollouts.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
TestWatchedRollouts = WatchedRollouts.TestCase
TestWatchedRollouts.settings = settings(TestRollouts.settings)
