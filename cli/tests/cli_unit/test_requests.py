"""docs/reference/cli.md: a rollout command that makes no sense is refused before it asks; only the answer with its id counts."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_cli.core.history import changes_between, find_entry, history_of
from llmendpoint_cli.core.requests import (
    Action,
    Answer,
    Request,
    aborted_revision,
    answer_to,
    patch_for,
    pending,
    promoted_revision,
    restarted_revision,
    undone_to,
)
from llmendpoint_cli.errors import NotFound, Refused

from .samples import BLUE, GREEN, Json, endpoint, record, rolling, serving

OLDEST = "aaaaaaaaaa"
STATES = (
    "Idle",
    "Provisioning",
    "Warming",
    "Verifying",
    "AwaitingPromotion",
    "Switching",
    "Observing",
    "Draining",
    "RollingBack",
    "RolledBack",
)
RECORDS = [record(1, OLDEST), record(2, BLUE), record(3, GREEN)]
REQUEST = Request("id-1", Action.PROMOTE, GREEN)


def accepted_in(about: Callable[[Json], str]) -> set[str]:
    """The states in which a request is let by; all others must be refused."""
    accepted = set()
    for state in STATES:
        try:
            about(rolling(state))
        except Refused:
            continue
        accepted.add(state)
    return accepted


def test_promote_is_asked_only_of_what_may_wait_and_names_the_state_otherwise() -> None:
    assert accepted_in(promoted_revision) == {"AwaitingPromotion", "Observing"}
    assert promoted_revision(rolling("AwaitingPromotion")) == GREEN
    with pytest.raises(
        Refused,
        match=f"there is no revision to promote; the rollout of {GREEN} is in state Warming, and revision {BLUE} serves",
    ):
        promoted_revision(rolling("Warming"))


def test_abort_is_asked_only_while_a_rollout_is_under_way() -> None:
    assert accepted_in(aborted_revision) == set(STATES) - {"Idle", "RollingBack", "RolledBack"}
    assert aborted_revision(rolling("Warming")) == GREEN


@pytest.mark.parametrize("found", [rolling("Warming"), rolling("RolledBack", rejected={"revision": GREEN})])
def test_undo_while_another_revision_is_asked_for_goes_to_the_active_one(found: Json) -> None:
    assert undone_to(found, history_of(found, RECORDS), None) == BLUE


def test_undo_goes_to_the_last_revision_before_the_active_one() -> None:
    found = rolling("Idle", weights=(0, 100))
    assert undone_to(found, history_of(found, RECORDS), None) == BLUE


def test_undo_passes_over_a_rejected_revision() -> None:
    found = serving(rejected={"revision": GREEN})
    assert undone_to(found, history_of(found, RECORDS), None) == OLDEST


@pytest.mark.parametrize("wanted", ["1", OLDEST, "aaa"])
def test_undo_takes_a_number_a_hash_or_its_beginning(wanted: str) -> None:
    assert undone_to(serving(), history_of(serving(), RECORDS), wanted) == OLDEST


def test_undo_without_a_revision_waits_until_the_operator_has_seen_the_spec() -> None:
    """What the spec asks for is unknown until then: the revision before the active one would be one too far back."""
    found = serving(observedGeneration=2)
    with pytest.raises(Refused, match="the operator has not seen the latest change"):
        undone_to(found, history_of(found, RECORDS), None)
    assert undone_to(found, history_of(found, RECORDS), "1") == OLDEST


def test_undo_to_what_is_not_kept_lists_what_is() -> None:
    with pytest.raises(NotFound, match=f"no revision 9; it keeps 1 \\({OLDEST}\\), 2 \\({BLUE}\\)"):
        undone_to(serving(), history_of(serving(), RECORDS), "9")


def test_undo_to_what_is_asked_for_already_is_refused() -> None:
    with pytest.raises(Refused, match="the spec already asks for revision"):
        undone_to(serving(), history_of(serving(), RECORDS), BLUE)


def test_undo_to_a_rejected_revision_is_refused_before_the_spec_is_written() -> None:
    found = serving(rejected={"revision": GREEN})
    with pytest.raises(Refused, match=f"revision {GREEN} was rejected"):
        undone_to(found, history_of(found, RECORDS), GREEN)


def test_undo_without_anything_before_is_refused() -> None:
    with pytest.raises(Refused, match="no earlier revision is kept"):
        undone_to(serving(), history_of(serving(), [record(2, BLUE)]), None)


def test_restart_is_about_what_is_asked_for_even_when_it_was_rejected() -> None:
    assert restarted_revision(serving()) == BLUE
    assert restarted_revision(rolling("RolledBack", rejected={"revision": GREEN})) == GREEN
    with pytest.raises(Refused, match="there is no revision to restart"):
        restarted_revision(endpoint())


def test_the_patch_touches_one_annotation_and_depends_on_what_was_read() -> None:
    patch = patch_for(rolling("AwaitingPromotion"), REQUEST)
    assert patch["metadata"].pop("resourceVersion") == "41"
    assert patch == {"metadata": {"annotations": {"llmendpoint.io/request": REQUEST.as_annotation()}}}
    assert json.loads(REQUEST.as_annotation()) == {"id": "id-1", "action": "promote", "revision": GREEN}


def test_an_undo_brings_its_spec_along_in_the_same_write() -> None:
    patch = patch_for(serving(), Request("id-1", Action.UNDO, OLDEST), {"engine": {"maxNumSeqs": 8}})
    assert patch["spec"] == {"engine": {"maxNumSeqs": 8}}
    assert set(patch["metadata"]) == {"resourceVersion", "annotations"}


def with_request(text: str, answered: Json | None = None) -> Json:
    return endpoint(
        annotations={"llmendpoint.io/request": text}, **({"request": answered} if answered else {})
    )


@pytest.mark.parametrize("action", list(Action))
def test_what_an_undo_has_written_stays_though_it_is_refused_or_taken_back(action: Action) -> None:
    said = Request("id-1", action, OLDEST).left
    assert (f"spec is already that of revision {OLDEST}" in said) == (action is Action.UNDO)


def test_a_request_that_waits_for_its_answer_is_not_overwritten() -> None:
    with pytest.raises(Refused, match=r"has not answered an earlier request yet \(promote\)"):
        patch_for(with_request(REQUEST.as_annotation()), Request("id-2", Action.ABORT, GREEN))


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", "null", '"x"'])
def test_an_annotation_that_is_no_request_is_in_nobodys_way(text: str) -> None:
    assert pending(with_request(text)) is None
    assert patch_for(with_request(text), REQUEST)


def test_the_answer_is_the_one_with_our_id() -> None:
    annotation = REQUEST.as_annotation()
    assert answer_to(with_request(annotation, {"id": "id-0", "outcome": "Accepted"}), REQUEST) is None
    assert answer_to(
        with_request(annotation, {"id": "id-1", "outcome": "Accepted", "message": "m"}), REQUEST
    ) == Answer(True, "m")
    assert answer_to(
        with_request(annotation, {"id": "id-1", "outcome": "Refused", "message": "m"}), REQUEST
    ) == Answer(False, "m")


def test_a_request_that_was_overwritten_before_its_answer_is_reported() -> None:
    other = Request("id-2", Action.ABORT, GREEN)
    with pytest.raises(Refused, match=r"another request \(abort\) replaced this one"):
        answer_to(with_request(other.as_annotation()), REQUEST)


def test_history_is_ordered_by_number_and_tells_what_changed() -> None:
    records = [
        record(7, GREEN, engine={"maxNumSeqs": 4}),
        record(2, BLUE, engine={"maxNumSeqs": 8, "dtype": "float32"}),
    ]
    first, second = history_of(rolling("Warming"), records)
    assert (first.number, first.role, first.changes) == (2, "active", ())
    assert (second.number, second.role) == (7, "new")
    assert second.changes == ("engine.dtype: float32 -> default", "engine.maxNumSeqs: 8 -> 4")


def test_a_beginning_that_two_hashes_share_names_none() -> None:
    entries = history_of(serving(), [record(1, "ab11111111"), record(2, "ab22222222")])
    assert find_entry(entries, "ab") is None
    assert find_entry(entries, "") is None


leaves = st.one_of(st.integers(), st.text(max_size=5), st.lists(st.integers(), max_size=2))
trees = st.recursive(
    leaves, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
)
documents = st.dictionaries(st.sampled_from("abc"), trees, max_size=3)


@given(documents, documents)
def test_there_are_changes_exactly_between_what_differs(a: Json, b: Json) -> None:
    assert bool(changes_between(a, b)) == (a != b)
    assert len(changes_between(a, b)) == len(changes_between(b, a))
