"""docs/contribute/contracts.md: the recorded grace period covers the longest generation that the spec allows."""

from __future__ import annotations

from typing import Any

import pytest

from llmendpoint_operator.core.pods.deployment import make_deployment
from llmendpoint_operator.core.pods.grace import derived_grace, too_short
from llmendpoint_operator.core.pods.manifests import Owner
from llmendpoint_operator.core.pods.revision import (
    TEMPLATE_VERSION,
    Revision,
    parse_revision,
    revision_data,
    revision_hash,
)

from ..fake_cluster import RUNTIME, make_spec


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({}, None),
        ({"engine": {"maxModelLen": 512}}, None),
        ({"engine": {"maxModelLen": 8192}}, 420),
        ({"engine": {"maxModelLen": 8192}, "slo": {"itlSeconds": 0.02, "ttftSeconds": 2}}, 176),
        ({"engine": {"maxModelLen": 1_000_000}}, 3600),
        ({"engine": {"maxModelLen": 8192}, "terminationGracePeriodSeconds": 30}, None),
        ({"engine": {"maxModelLen": 8192}, "terminationGracePeriodSeconds": 7200}, None),
    ],
)
def test_the_default_is_raised_to_what_the_longest_generation_takes(
    spec: dict[str, Any], seconds: int | None
) -> None:
    assert derived_grace(make_spec(**spec)) == seconds


def test_a_written_time_that_cuts_allowed_generations_is_warned_of_with_the_figures() -> None:
    event = too_short(make_spec(engine={"maxModelLen": 8192}, terminationGracePeriodSeconds=30))
    assert event is not None
    assert event.type == "Warning"
    assert "maxModelLen=8192 tokens may take 410 s" in event.message
    assert "has 30 s" in event.message
    assert "terminationGracePeriodSeconds to 420" in event.message


@pytest.mark.parametrize("spec", [{}, {"engine": {"maxModelLen": 8192}}, {"engine": {"maxModelLen": 64}, "terminationGracePeriodSeconds": 15}])  # fmt: skip
def test_a_time_that_is_long_enough_is_not_warned_of(spec: dict[str, Any]) -> None:
    assert too_short(make_spec(**spec)) is None


def test_the_time_is_recorded_and_no_part_of_the_hash_so_that_a_change_of_slo_restarts_nothing() -> None:
    spec = make_spec(engine={"maxModelLen": 8192})
    assert revision_hash(spec) == revision_hash(
        make_spec(engine={"maxModelLen": 8192}, slo={"itlSeconds": 0.2})
    )
    made = Revision("a", 1, TEMPLATE_VERSION, spec, RUNTIME, grace_seconds=derived_grace(spec))
    metadata = {"name": "chat-a", "labels": {"llmendpoint.io/revision": "a"}}
    read = parse_revision({"metadata": metadata, "revision": 1, "data": revision_data(made)})
    assert read is not None
    assert seconds_of(read) == seconds_of(made) == 420
    assert revision_hash(read.inputs) == revision_hash(spec)


def test_a_revision_that_recorded_none_keeps_what_its_pods_have() -> None:
    old = Revision("a", 1, TEMPLATE_VERSION, make_spec(engine={"maxModelLen": 8192}), RUNTIME)
    assert seconds_of(old) == 60


def seconds_of(revision: Revision) -> int:
    deployment = make_deployment(Owner("team-a", "chat", "uid-1"), revision, 1)
    return int(deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])
