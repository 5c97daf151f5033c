"""docs/contribute/contracts.md: operator and gateway decide alike which endpoint has a bare name; the others have NameConflict."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_gateway.core.endpoint.objects import parse_endpoint
from llmendpoint_gateway.core.endpoint.view import Part, View, change_view
from llmendpoint_operator.core.endpoint.plan import WriteStatus
from llmendpoint_operator.core.endpoint.served import (
    Conflict,
    Key,
    ServedNames,
    claimed_names,
    conflict_message,
)

from ..fake_cluster import NOW, FakeCluster

OLD, NEW = ("team-a", "chat"), ("team-b", "chat")


def test_the_older_endpoint_has_the_name_and_the_other_is_told_whose_it_is() -> None:
    names = ServedNames()
    assert names.claim(NEW, "2026-01-02T00:00:00Z", {"chat"}) == set()
    assert names.claim(OLD, "2026-01-01T00:00:00Z", {"chat"}) == {NEW}
    assert names.conflicts(OLD) == ()
    assert names.conflicts(NEW) == (Conflict("chat", "team-a/chat"),)
    said = conflict_message(NEW, names.conflicts(NEW))
    for part in ("'chat'", "team-a/chat", "'team-b/chat'", "spec.model.servedNames"):
        assert part in said


def test_an_endpoint_that_is_made_again_finds_its_name_taken() -> None:
    names = ServedNames()
    names.claim(OLD, "2026-01-01T00:00:00Z", {"chat"})
    names.claim(NEW, "2026-01-02T00:00:00Z", {"chat"})
    assert names.drop(OLD) == {NEW}
    assert names.conflicts(NEW) == ()
    names.claim(OLD, "2026-01-03T00:00:00Z", {"chat"})
    assert names.conflicts(OLD) == (Conflict("chat", "team-b/chat"),)


def test_an_event_that_changes_no_claim_tells_nobody() -> None:
    names = ServedNames()
    names.claim(OLD, "1", {"chat"})
    names.claim(NEW, "2", {"chat"})
    assert names.claim(OLD, "1", {"chat"}) == set()
    assert names.claim(NEW, "2", {"chat", "own"}) == set()


def test_a_message_about_many_names_is_bounded() -> None:
    conflicts = tuple(Conflict(f"name-{i}", "a/b") for i in range(50))
    said = conflict_message(NEW, conflicts)
    assert "45 more" in said
    assert len(said) < 2048


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ({}, {"chat"}),
        ({"servedNames": []}, {"chat"}),
        ({"servedNames": ["a", "b"]}, {"a", "b"}),
        ({"servedNames": "a"}, {"chat"}),
        ({"servedNames": [1]}, {"chat"}),
        ("x", {"chat"}),
    ],
)
def test_names_are_read_from_whatever_is_stored(model: Any, names: set[str]) -> None:
    assert claimed_names({"metadata": {"name": "chat"}, "spec": {"model": model}}) == names


KEYS = st.sampled_from([("a", "x"), ("a", "y"), ("b", "x"), ("c", "z")])
STEPS = st.lists(
    st.tuples(KEYS, st.none() | st.tuples(st.sampled_from("123"), st.frozensets(st.sampled_from("pqx"), max_size=3))),
    max_size=15,
)  # fmt: skip


@given(STEPS)
def test_operator_and_gateway_decide_alike_and_everybody_concerned_is_told(
    steps: list[tuple[Key, tuple[str, frozenset[str]] | None]],
) -> None:
    names, there = ServedNames(), dict[Key, tuple[str, frozenset[str]]]()
    for key, claim in steps:
        before = {other: names.conflicts(other) for other in there}
        if claim is None:
            there.pop(key, None)
            told = names.drop(key)
        else:
            wanted = claim[1] or frozenset({key[1]})
            there[key] = claim[0], wanted
            told = names.claim(key, claim[0], wanted)
        changed = {o for o in there if o in before and names.conflicts(o) != before[o]}
        assert changed - {key} <= told
        for other in there:
            conflicts = {c.name: c.holder for c in names.conflicts(other)}
            parsed = [parse_endpoint(manifest(k, *c)) for k, c in there.items()]
            gateways = change_view(View(), {endpoint.key: Part(endpoint) for endpoint in parsed}).names
            lost = {n: gateways[n] for n in there[other][1] if gateways[n] != "/".join(other)}
            assert conflicts == lost


def manifest(key: Key, created: str, names: frozenset[str]) -> dict[str, Any]:
    metadata = {"namespace": key[0], "name": key[1], "creationTimestamp": created}
    return {
        "metadata": metadata,
        "spec": {"model": {"source": "embedded://demo", "servedNames": sorted(names)}},
    }


def test_the_condition_and_one_event_tell_it_and_the_endpoint_stays_ready() -> None:
    cluster = FakeCluster()
    cluster.settle()
    cluster.make_ready(cluster.target)
    cluster.settle()
    cluster.conflicts = (Conflict("chat", "team-0/chat"),)
    [step] = cluster.reconcile(NOW).steps
    assert isinstance(step, WriteStatus)
    assert [(e.reason, e.type) for e in step.events] == [("NameConflict", "Warning")]
    assert "team-0/chat" in cluster.condition("NameConflict")["message"]
    assert cluster.condition("Ready")["status"] == "True"
    assert cluster.condition("Degraded")["status"] == "False"
    assert cluster.plan().steps == ()
    cluster.conflicts = ()
    cluster.settle()
    assert cluster.condition("NameConflict") == {}


def test_a_runtime_that_is_gone_is_told_and_what_runs_goes_on() -> None:
    cluster = FakeCluster()
    cluster.settle()
    cluster.make_ready(cluster.target)
    cluster.settle()
    cluster.runtime, cluster.runtime_gone = None, "LLMRuntime demo does not exist: make it again"
    cluster.settle()
    assert "LLMRuntime demo does not exist" in cluster.condition("RuntimeMissing")["message"]
    assert cluster.condition("Ready")["status"] == "True"
