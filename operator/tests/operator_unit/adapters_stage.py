"""An endpoint with adapters, and pods that say what they have of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from llmendpoint_operator.api import Adapter, LLMRuntimeSpec
from llmendpoint_operator.core.adapters.moves import PodAdapters, wanted_adapters
from llmendpoint_operator.core.endpoint.snapshot import Snapshot

from .fake_cluster import AFTER_ALL, FakeCluster, make_spec

SQL = {"name": "sql", "source": "hf://acme/sql"}
LEGAL = {"name": "legal", "source": "s3://acme/legal"}
QUIET = {"rollout": {"observe": {"duration": 0}}}
LOADS = LLMRuntimeSpec.model_validate(
    {
        "image": "engine:1",
        "loadsAdapters": True,
        "args": [
            {"value": "--model=$(model.path)"},
            {"value": "--max-loras=$(engine.maxAdapters)", "when": "adapters"},
        ],
    }
)


@dataclass
class Stage(FakeCluster):
    """`told`: what pods say of adapters, by pod."""

    runtime: LLMRuntimeSpec | None = LOADS
    has: dict[str, PodAdapters] = field(default_factory=dict)

    def snapshot(self, now: datetime = AFTER_ALL) -> Snapshot:
        found = super().snapshot(now)
        return replace(found, observed=replace(found.observed, adapters=self.has))

    def names(self) -> list[str]:
        """The pods of the active revision."""
        return [str(pod["metadata"]["name"]) for pod in self.pods.get(self.active or "", [])]

    def with_adapters(self, *adapters: dict[str, str], **fields: Any) -> None:
        """An edit of the spec."""
        self.edit(make_spec(adapters=list(adapters), **QUIET, **fields))

    def entries(self) -> dict[str, tuple[int, str]]:
        """Ready replicas and message of each adapter in the status."""
        found = self.status.get("adapters", ())
        return {e["name"]: (e["readyReplicas"], e.get("message", "")) for e in found}


def having(*adapters: dict[str, str]) -> PodAdapters:
    """A pod that has these."""
    wanted = wanted_adapters(Adapter.model_validate(one) for one in adapters)
    return PodAdapters({one.name: one.source for one in wanted})


def serving(*adapters: dict[str, str], **fields: Any) -> Stage:
    """One revision, ready and at rest."""
    stage = Stage(make_spec(adapters=list(adapters), **QUIET, **fields))
    stage.settle()
    stage.make_ready(stage.target)
    stage.settle()
    return stage
