"""docs/concepts/adapters.md: when adapters make a new revision, and when they do not."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.api import Adapter
from llmendpoint_operator.core.adapters.mounts import can_take, claims_of, engine_source, mount_path
from llmendpoint_operator.core.pods.revision import revision_hash

from ..adapters_stage import LEGAL, SQL, serving
from ..fake_cluster import make_spec

ON_A = {"name": "a", "source": "pvc://claim-a/one"}
ALSO_ON_A = {"name": "b", "source": "pvc://claim-a/two"}
ON_B = {"name": "c", "source": "pvc://claim-b/one"}


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("hf://acme/sql@v2", "hf://acme/sql@v2"),
        ("s3://acme/sql", "s3://acme/sql"),
        ("file:///data/sql", "/data/sql"),
        ("pvc://claim-a/sql/v2/", "/models/_adapters/claim-a/sql/v2"),
    ],
)
def test_the_engine_gets_a_folder_where_there_is_one_and_else_the_source(source: str, told: str) -> None:
    assert engine_source(source) == told


@pytest.mark.parametrize(
    ("before", "after", "restarts"),
    [
        ([], [SQL], True),
        ([SQL], [SQL, LEGAL], False),
        ([SQL, LEGAL], [LEGAL], False),
        ([SQL], [], False),
        ([SQL], [{**SQL, "source": "hf://acme/sql@v2"}], False),
        ([SQL], [SQL, ON_A], True),
        ([ON_A], [ON_A, ALSO_ON_A, SQL], False),
        ([ON_A, ON_B], [ON_B], False),
        ([ON_A], [ON_B], True),
    ],
)
def test_only_the_first_adapter_and_a_new_claim_restart_pods(
    before: list[Any], after: list[Any], restarts: bool
) -> None:
    stage = serving(*before)
    blue, pods = stage.active, copy.deepcopy(stage.by_revision("Deployment"))
    stage.with_adapters(*after)
    stage.settle()
    assert (stage.target != blue) == restarts
    if not restarts:
        assert stage.by_revision("Deployment") == pods


def test_adapters_come_back_without_a_restart_after_all_were_taken_away() -> None:
    stage = serving(SQL)
    blue = stage.active
    for adapters in ([], [LEGAL], [], [SQL, LEGAL]):
        stage.with_adapters(*adapters)
        stage.settle()
        assert stage.target == stage.active == blue


def test_a_claim_is_mounted_read_only_and_once() -> None:
    stage = serving(ON_A, ALSO_ON_A, ON_B, model={"source": "pvc://claim-b/model"})
    [deployment] = stage.by_revision("Deployment").values()
    pod = deployment["spec"]["template"]["spec"]
    mounts = {m["mountPath"]: m for m in pod["containers"][0]["volumeMounts"]}
    claims = [v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "persistentVolumeClaim" in v]
    assert sorted(claims) == ["claim-a", "claim-b"]
    assert mounts[mount_path("claim-a")]["readOnly"]
    assert mounts[mount_path("claim-b")]["name"] == mounts["/models/claim-b"]["name"]


def test_an_endpoint_without_adapters_has_the_hash_that_it_had() -> None:
    assert revision_hash(make_spec()) == revision_hash(make_spec(adapters=[]))
    assert revision_hash(make_spec(adapters=[SQL])) == revision_hash(make_spec(adapters=[LEGAL]))
    assert revision_hash(make_spec(adapters=[SQL])) != revision_hash(make_spec())


LISTS = st.lists(st.sampled_from([SQL, LEGAL, ON_A, ALSO_ON_A, ON_B]), unique_by=lambda a: a["name"])


@given(LISTS, LISTS)
def test_pods_take_what_their_claims_allow(
    recorded: list[dict[str, str]], wanted: list[dict[str, str]]
) -> None:
    then, now = ([Adapter.model_validate(one) for one in found] for found in (recorded, wanted))
    assert can_take(then, now) == (not now or (bool(then) and set(claims_of(now)) <= set(claims_of(then))))
    assert can_take(then, then)
    assert can_take(then, [])
