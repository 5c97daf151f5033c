"""docs/contribute/where-to-change.md: one subject, one folder. A plan that goes to and fro between them is hard to follow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from types import FrameType

import pytest

from llmendpoint_operator.core.endpoint.plan import make_plan
from llmendpoint_operator.core.endpoint.snapshot import Snapshot

from ..fake_cluster import NOW, FakeCluster

SUBJECTS = {"adapters", "capacity", "endpoint", "models", "pods", "rollout", "scaling"}
CORE = "llmendpoint_operator.core."


def new() -> FakeCluster:
    return FakeCluster()


def at_rest() -> FakeCluster:
    cluster = FakeCluster()
    cluster.settle()
    cluster.make_ready(cluster.target)
    for minutes in range(4):
        cluster.settle(NOW + timedelta(minutes=minutes))
    return cluster


def way(snapshot: Snapshot) -> list[str]:
    """The folder of each call into the core, in order; helpers beside the folders and constructors are left out."""
    found: list[str] = []

    def called(frame: FrameType, event: str, _: object) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        folder = module.removeprefix(CORE).split(".")[0] if module.startswith(CORE) else ""
        if event == "call" and folder in SUBJECTS and frame.f_code.co_name != "__init__":
            found.append(folder)

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        make_plan(snapshot, NOW + timedelta(minutes=5))
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize(("cluster", "most"), [(at_rest, 60), (new, 80)])
def test_a_plan_seldom_goes_back_to_a_subject_that_it_had_left(
    cluster: Callable[[], FakeCluster], most: int
) -> None:
    """What belongs together is decided together, and passed on as a value. 104 and 137 before the core was divided so."""
    calls = way(cluster().snapshot())
    entered = 1 + sum(before != now for before, now in pairwise(calls))
    assert set(calls) == SUBJECTS
    assert entered - len(SUBJECTS) <= most
