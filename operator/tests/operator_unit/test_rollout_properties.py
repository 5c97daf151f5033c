"""Random edits, reverts, scalings, pod failures, waits and crashes: requests always have somewhere to go."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from llmendpoint_operator.core.names import REVISION_LABEL

from .fake_cluster import NOW, FakeCluster, make_spec


class Rollouts(RuleBasedStateMachine):
    """One endpoint in a fake cluster. Time only goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = FakeCluster()
        self.now = NOW

    def reconcile(self, stop_after: int = 1000) -> None:
        cluster = self.cluster
        for step in cluster.plan(self.now).steps[:stop_after]:
            active, had, ready = (
                cluster.active,
                cluster.replicas(),
                {r: cluster.ready(r) for r in cluster.replicas()},
            )
            cluster.do(step)
            if cluster.active != active:
                new = str(cluster.active)
                assert ready.get(new, 0) >= cluster.spec.replicas or (
                    ready.get(new) and not ready.get(str(active))
                ), f"{active} -> {new} while {ready} were ready"
            kept = min(had.get(str(cluster.active), 0), cluster.spec.replicas)
            assert cluster.replicas().get(str(cluster.active), 0) >= kept, "the active revision lost pods"

    @rule(seqs=st.integers(1, 4))
    def edit_or_revert(self, seqs: int) -> None:
        spec = self.cluster.spec
        self.cluster.edit(
            make_spec(replicas=spec.replicas, engine={"maxNumSeqs": seqs}, revisionHistoryLimit=1)
        )

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

    @rule(seconds=st.integers(0, 20))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def the_operator_works(self) -> None:
        self.reconcile()

    @rule(steps=st.integers(0, 6))
    def the_operator_dies_in_between(self, steps: int) -> None:
        self.reconcile(stop_after=steps)

    @rule()
    def the_status_is_lost(self) -> None:
        self.cluster.settle(self.now)
        before = self.cluster.active
        self.cluster.status, self.cluster.version = {}, self.cluster.version + 1
        self.cluster.reconcile(self.now)
        assert self.cluster.active == before

    @rule()
    def a_settled_cluster_serves_from_the_active_revision(self) -> None:
        cluster = self.cluster
        cluster.settle(self.now)
        assert cluster.plan(self.now).steps == ()
        selected = cluster.objects["Service", "chat"]["spec"]["selector"][REVISION_LABEL]
        assert selected == (cluster.active or "none")
        if cluster.active is not None:
            assert cluster.replicas()[cluster.active] == cluster.spec.replicas

    def teardown(self) -> None:
        cluster = self.cluster
        for _ in range(3):
            cluster.settle(self.now)
            cluster.make_ready(cluster.target)
            self.now += timedelta(seconds=11)
        cluster.settle(self.now)
        assert cluster.active == cluster.target
        assert {r: n for r, n in cluster.replicas().items() if n} == (
            {cluster.active: cluster.spec.replicas} if cluster.spec.replicas else {}
        )
        assert len(cluster.by_revision("ControllerRevision")) <= 1 + cluster.spec.revision_history_limit


TestRollouts = Rollouts.TestCase
TestRollouts.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)
