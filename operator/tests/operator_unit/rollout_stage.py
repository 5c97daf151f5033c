"""A rollout that a test takes from state to state."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from llmendpoint_operator.core.endpoint.snapshot import Request
from llmendpoint_operator.core.endpoint.steps import events_of
from llmendpoint_operator.core.rollout.evidence import Figures, Outcome, Verification

from .fake_cluster import NOW, FakeCluster, make_spec
from .figures import figures

PROMPTS = [{"name": "capital", "prompt": "Capital of France?", "expect": {"contains": ["Paris"]}}]
GOOD = figures(requests=1000, errors=1, ttft=0.2)
WATCHED = {"errorRate": {"max": 0.02}}


class Rollout:
    """A first revision that serves with two replicas through two gateways, and an edit of it."""

    def __init__(self, replicas: int = 2, **rollout: Any) -> None:
        self.rollout, self.replicas = rollout, replicas
        self.cluster = FakeCluster(self.spec(1), gateways={"gw-1": None, "gw-2": None})
        self.now: datetime = NOW
        self.told: list[str] = []
        self.work()
        self.cluster.make_ready(self.cluster.target)
        self.cluster.verification = Verification(self.cluster.target, Outcome.PASSED)
        self.work()
        self.cluster.follow()
        self.work(20)
        assert self.cluster.state == "Idle"
        self.blue = str(self.cluster.active)
        self.told.clear()

    def spec(self, seqs: int) -> Any:
        return make_spec(replicas=self.replicas, engine={"maxNumSeqs": seqs}, rollout=self.rollout)

    def edit(self, seqs: int = 2) -> str:
        """The new revision's hash."""
        self.cluster.edit(self.spec(seqs))
        self.work()
        self.cluster.verification = None
        return self.cluster.target

    def work(self, after: float = 0) -> str:
        """Let the operator work until nothing is left, `after` seconds later; the state."""
        self.now += timedelta(seconds=after)
        for _ in range(10):
            plan = self.cluster.plan(self.now)
            for step in plan.steps:
                self.cluster.do(step)
                self.told += [f"{event.reason}: {event.message}" for event in events_of(step)]
            if not plan.steps:
                return self.cluster.state
        raise AssertionError("still writing")

    def switched(self, seqs: int = 2) -> str:
        """To where the new revision gets requests and every gateway follows."""
        green = self.edit(seqs)
        self.cluster.make_ready(green)
        self.cluster.verification = Verification(green, Outcome.PASSED)
        self.work()
        self.cluster.follow()
        self.work()
        return green

    def switched_after(self, before: Figures) -> str:
        """To where the new revision gets requests. `before`: figures of the old one, which it is compared with."""
        green = self.edit()
        self.cluster.figures = {self.blue: before}
        self.cluster.make_ready(green)
        self.work()
        self.cluster.follow()
        self.work()
        return green

    def ask(self, action: str, revision: str | None, id_: str = "r-1") -> dict[str, Any]:
        """Annotate, and let it be answered."""
        self.cluster.request = Request(id_, action, revision)
        self.work()
        return dict(self.cluster.status["request"])

    @property
    def rejected(self) -> dict[str, Any]:
        return dict(self.cluster.status["rejected"])
