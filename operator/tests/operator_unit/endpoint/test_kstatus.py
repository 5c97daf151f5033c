"""docs/concepts/rollouts.md: tools that read kstatus, such as Flux, see a rollout in progress and a rejected revision as failed.

The real kstatus library is asked.
"""

from __future__ import annotations

import json
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from llmendpoint_operator.core.rollout.evidence import Outcome, Verification
from tests.cluster.binaries import build_kstatus

from ..fake_cluster import NOW, FakeCluster, make_spec

pytestmark = pytest.mark.integration

LATER = NOW + timedelta(hours=1)


@pytest.fixture(scope="module")
def kstatus() -> Path:
    return build_kstatus()


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(make_spec(replicas=2))


def computed(kstatus: Path, cluster: FakeCluster) -> str:
    """What the library says of the endpoint as it is now."""
    found: dict[str, Any] = {
        "apiVersion": "llmendpoint.io/v1alpha1",
        "kind": "LLMEndpoint",
        "metadata": {"name": "chat", "namespace": "team-a", "generation": cluster.generation},
        "status": cluster.status,
    }
    answer = subprocess.run([kstatus], input=json.dumps(found), capture_output=True, text=True, check=True)
    return str(json.loads(answer.stdout)["status"])


def serving(cluster: FakeCluster) -> FakeCluster:
    cluster.settle()
    cluster.make_ready(cluster.target)
    cluster.settle()
    return cluster


def test_an_endpoint_that_comes_up_is_in_progress(kstatus: Path, cluster: FakeCluster) -> None:
    cluster.settle()
    assert computed(kstatus, cluster) == "InProgress"


def test_one_that_serves_is_current(kstatus: Path, cluster: FakeCluster) -> None:
    assert computed(kstatus, serving(cluster)) == "Current"


def test_an_edit_that_nobody_has_seen_yet_is_in_progress(kstatus: Path, cluster: FakeCluster) -> None:
    serving(cluster).edit(make_spec(replicas=2, engine={"maxNumSeqs": 4}))
    assert computed(kstatus, cluster) == "InProgress"


def test_a_rollout_is_in_progress_though_the_old_revision_serves(kstatus: Path, cluster: FakeCluster) -> None:
    serving(cluster).edit(make_spec(replicas=2, engine={"maxNumSeqs": 4}))
    cluster.settle(LATER)
    assert cluster.condition("Ready")["status"] == "True"
    assert computed(kstatus, cluster) == "InProgress"


def test_one_that_is_scaled_to_zero_is_current(kstatus: Path, cluster: FakeCluster) -> None:
    serving(cluster).edit(make_spec(replicas=0))
    cluster.settle(LATER)
    assert cluster.condition("Ready")["reason"] == "ScaledToZero"
    assert computed(kstatus, cluster) == "Current"


def test_what_cannot_get_better_by_itself_has_failed(kstatus: Path, cluster: FakeCluster) -> None:
    cluster.runtime = None
    cluster.settle()
    assert cluster.condition("Stalled")["reason"] == "RuntimeNotFound"
    assert computed(kstatus, cluster) == "Failed"


def test_a_rejected_revision_has_failed_at_once_though_the_old_one_serves(
    kstatus: Path, cluster: FakeCluster
) -> None:
    prompt = {"name": "capital", "prompt": "Capital of France?", "expect": {"contains": ["Paris"]}}
    golden = {"verification": {"prompts": [prompt]}}
    serving(cluster).edit(make_spec(replicas=2, engine={"maxNumSeqs": 4}, rollout=golden))
    cluster.settle(LATER)
    rejected = cluster.target
    cluster.make_ready(rejected)
    cluster.settle(LATER)
    cluster.verification = Verification(rejected, Outcome.FAILED, "capital: expected Paris, got Lyon")
    cluster.settle(LATER)
    assert cluster.condition("Ready")["status"] == "True"
    assert cluster.condition("Stalled")["reason"] == "RevisionRejected"
    assert cluster.status["observedGeneration"] == cluster.generation
    assert computed(kstatus, cluster) == "Failed"
