"""A cluster with room for few pods, an endpoint that fills it, and the random events that befall both."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from .fake_cluster import NOW, FakeCluster, make_spec
from .operator_rules import OperatorRules

FULL = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


class SmallCluster(FakeCluster):
    """With `room` for so many pods. Like Kubernetes it removes pods first that serve least."""

    room: int = 2

    def run_deployments(self) -> None:
        for pods in self.pods.values():
            pods.sort(key=lambda pod: (not ready(pod), waits(pod)))
        super().run_deployments()
        every = [pod for revision in sorted(self.pods) for pod in self.pods[revision]]
        placed = [pod for pod in every if len(pod["status"]["conditions"]) > 1 and not waits(pod)]
        free = self.room - len(placed)
        for pod in every:
            if any(pod is one for one in placed):
                continue
            del pod["status"]["conditions"][1:]
            fits, free = free > 0, free - 1
            pod["status"]["conditions"].append(
                {"type": "PodScheduled", "status": "True"} if fits else dict(FULL)
            )

    def make_ready(self, revision: str, count: int = 1000) -> None:
        pods = [pod for pod in self.pods.get(revision, []) if not waits(pod)]
        for pod in pods[:count]:
            pod["status"]["conditions"][0]["status"] = "True"

    @property
    def all_ready(self) -> int:
        return sum(self.ready(revision) for revision in self.pods)


def ready(pod: dict[str, Any]) -> bool:
    return bool(pod["status"]["conditions"][0]["status"] == "True")


def waits(pod: dict[str, Any]) -> bool:
    return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in pod["status"]["conditions"])


class Small:
    """An endpoint that fills its cluster."""

    def __init__(self, replicas: int, **rollout: Any) -> None:
        self.replicas, self.rollout = replicas, {"observe": {"duration": 0}, **rollout}
        self.cluster = SmallCluster(self.spec(1))
        self.cluster.room = replicas
        self.now = NOW
        self.least = replicas
        self.cluster.settle(self.now)
        self.cluster.make_ready(self.cluster.target)
        self.cluster.settle(self.now)
        self.blue = str(self.cluster.active)

    def spec(self, seqs: int) -> Any:
        return make_spec(replicas=self.replicas, engine={"maxNumSeqs": seqs}, rollout=self.rollout)

    def edit(self, seqs: int = 2) -> str:
        self.cluster.edit(self.spec(seqs))
        self.work()
        return self.cluster.target

    def work(self, after: float = 0) -> str:
        self.now += timedelta(seconds=after)
        for _ in range(10):
            steps = self.cluster.plan(self.now).steps
            for step in steps:
                self.cluster.do(step)
                self.least = min(self.least, self.cluster.all_ready)
            if not steps:
                return self.cluster.state
        raise AssertionError("still writing")


class SmallRooms(OperatorRules):
    """Random edits, deaths and crashes in a full cluster. Subclasses say what `it` is, what holds at each step of a
    reconcile, and how time passes: it only goes on."""

    it: Small

    @rule(seqs=st.integers(1, 3))
    def edit_or_revert(self, seqs: int) -> None:
        self.it.cluster.edit(self.it.spec(seqs))

    @rule(pick=st.integers(0, 100), count=st.integers(1, 4))
    @precondition(lambda self: self.it.cluster.pods)
    def pods_become_ready(self, pick: int, count: int) -> None:
        self.it.cluster.make_ready(self.revision(pick), count)

    @rule(pick=st.integers(0, 100))
    @precondition(lambda self: self.it.cluster.pods)
    def a_pod_dies(self, pick: int) -> None:
        self.it.cluster.pods[self.revision(pick)].pop(0)
        self.it.cluster.run_deployments()

    def revision(self, pick: int) -> str:
        """One that has pods: 0 is blue while it has some, whatever the hashes are."""
        revisions = sorted(self.it.cluster.pods, key=lambda revision: revision != self.it.blue)
        return revisions[pick % len(revisions)]

    def teardown(self) -> None:
        """Where every pod becomes ready that has room, what the spec asks for is there in the end, or it was rejected."""
        cluster = self.it.cluster
        for _ in range(20):
            for _ in range(4):
                self.reconcile()
                for revision in list(cluster.pods):
                    cluster.make_ready(revision)
            self.it.now += timedelta(seconds=31)
            plan = cluster.plan(self.it.now)
            if not plan.steps and plan.requeue_after is None:
                break
        left = {r: n for r, n in cluster.replicas().items() if n}
        assert left == {cluster.active: self.it.replicas}, f"{left} in {cluster.status['rollout']}"
        rejected = cluster.status.get("rejected", {}).get("revision")
        assert cluster.target in (cluster.active, rejected)
