"""docs/concepts/models.md: what no recorded revision has used for the retention time leaves a shared cache, and nothing else does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.core.models.files import model_files
from llmendpoint_operator.core.models.jobs import FILES_ANNOTATION, make_remove_job
from llmendpoint_operator.core.models.retention import (
    Act,
    Kept,
    find_usage,
    is_download,
    marking,
    next_act,
    siblings_of,
)
from llmendpoint_operator.core.pods.revision import Revision

from ..fake_cluster import NOW
from ..model_stage import REVISION, RUNTIME
from .test_models import CACHED, DOWNLOAD_JOB, NODE, inputs

WEEK = 7 * 86_400.0


def job(complete: bool = True, unused_for: float | None = None, removing: bool = False) -> dict[str, Any]:
    annotations: dict[str, str] = {}
    if unused_for is not None:
        annotations |= marking(Act.MARK, NOW - timedelta(seconds=unused_for))["metadata"]["annotations"]
    if removing:
        annotations["llmendpoint.io/removing"] = "true"
    conditions = [{"type": "Complete", "status": "True"}] if complete else []
    return {**DOWNLOAD_JOB, "metadata": {**DOWNLOAD_JOB["metadata"], "annotations": annotations}, "status": {"conditions": conditions}}  # fmt: skip


def removal(complete: bool) -> dict[str, Any]:
    conditions = [{"type": "Complete", "status": "True"}] if complete else []
    return {**make_remove_job(DOWNLOAD_JOB), "status": {"conditions": conditions}}


def failed(reason: str) -> dict[str, Any]:
    return removal(False) | {
        "status": {"conditions": [{"type": "Failed", "status": "True", "reason": reason}]}
    }


FAILED, GIVEN_UP = failed("BackoffLimitExceeded"), failed("DeadlineExceeded")
ENDLESS = removal(False) | {"spec": {"backoffLimit": 3}}
"""As earlier operators made them."""


@pytest.mark.parametrize(
    ("kept", "act"),
    [
        (Kept(job(), None, used=True), None),
        (Kept(job(), None, used=False), Act.MARK),
        (Kept(job(unused_for=WEEK + 1), None, used=True), Act.UNMARK),
        (Kept(job(unused_for=WEEK - 1), None, used=False), None),
        (Kept(job(unused_for=WEEK + 1), None, used=False), Act.DOOM),
        (Kept(job(complete=False, unused_for=59), None, used=False), None),
        (Kept(job(complete=False, unused_for=61), None, used=False), Act.DOOM),
        (Kept(job(unused_for=WEEK, removing=True), None, used=True), Act.REMOVE),
        (Kept(job(unused_for=WEEK, removing=True) | {"status": {"active": 1}}, None, used=False), None),
        (Kept(job(unused_for=WEEK, removing=True) | {"status": {"terminating": 1}}, None, used=False), None),
        (Kept(job(unused_for=WEEK, removing=True), removal(False), used=False), None),
        (Kept(job(unused_for=WEEK, removing=True), removal(True), used=False), Act.DELETE),
        (Kept(job(unused_for=WEEK, removing=True), FAILED, used=False), Act.NOTE),
        (Kept(job(unused_for=WEEK, removing=True), GIVEN_UP, used=True), Act.DELETE),
        (Kept(job(unused_for=WEEK, removing=True), ENDLESS, used=False), Act.DELETE_REMOVAL),
        (Kept(job(), removal(True), used=True), Act.DELETE_REMOVAL),
    ],
)
def test_each_job_takes_one_step_at_a_time(kept: Kept, act: Act | None) -> None:
    assert next_act(kept, NOW, WEEK) is act


def named(name: str, job: dict[str, Any], removal: dict[str, Any] | None = None) -> Kept:
    """A Job of that name for the same files as all the others."""
    annotations = {**job["metadata"]["annotations"], FILES_ANNOTATION: "llm-model-x"}
    metadata = {**job["metadata"], "name": name, "annotations": annotations}
    return Kept({**job, "metadata": metadata}, removal, used=False)


REMOVING = job(unused_for=WEEK, removing=True)
NEVER_RAN = job(complete=False, unused_for=WEEK, removing=True)
RUNS = {"status": {"active": 1, "ready": 1}}


@pytest.mark.parametrize(
    ("kept", "others", "act"),
    [
        pytest.param(named("b", NEVER_RAN), [named("a", job())], Act.DELETE, id="goes alone"),
        pytest.param(named("b", REMOVING), [named("a", job())], Act.DELETE, id="goes alone though complete"),
        pytest.param(
            named("b", NEVER_RAN, removal(False)), [named("a", job())], Act.DELETE_REMOVAL, id="no removal"
        ),
        pytest.param(
            named("b", NEVER_RAN, removal(False) | RUNS), [named("a", job())], None, id="files half gone"
        ),
        pytest.param(named("a", REMOVING), [named("b", NEVER_RAN)], None, id="last waits for the others"),
        pytest.param(
            named("b", NEVER_RAN), [named("a", REMOVING)], Act.DELETE, id="the incomplete one first"
        ),
        pytest.param(named("a", REMOVING), [named("b", REMOVING)], Act.DELETE, id="one of two goes alone"),
        pytest.param(named("b", REMOVING), [named("a", REMOVING)], None, id="the other one not"),
        pytest.param(named("b", REMOVING), [], Act.REMOVE, id="last takes the files along"),
        pytest.param(
            named("a", job()), [named("b", NEVER_RAN, removal(True))], Act.DELETE, id="its files are gone"
        ),
        pytest.param(
            named("b", REMOVING, GIVEN_UP), [named("a", NEVER_RAN)], None, id="given up with the last only"
        ),
        pytest.param(named("b", NEVER_RAN, removal(True)), [named("a", job())], None, id="until all know"),
    ],
)
def test_only_the_last_job_takes_the_files_along(kept: Kept, others: list[Kept], act: Act | None) -> None:
    assert next_act(kept, NOW, WEEK, others) is act


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=4))
def test_of_jobs_with_the_same_files_one_and_only_one_is_left_in_the_end(
    jobs: list[tuple[bool, bool]],
) -> None:
    """All of them look at the same moment, as one sweep does."""
    made = [job(complete, WEEK, removing) for complete, removing in jobs]
    left = [named(f"job-{index}", one) for index, one in enumerate(made)]
    acts = [next_act(one, NOW, 2 * WEEK, siblings_of(one, left)) for one in left]
    assert acts.count(Act.DELETE) < len(left)
    assert Act.REMOVE not in acts or len(left) == 1


def test_siblings_are_the_other_jobs_of_the_files_in_the_namespace() -> None:
    one, other = named("a", job()), named("b", job())
    leaving, elsewhere = named("c", job()), named("d", job())
    leaving.job["metadata"]["deletionTimestamp"] = "x"
    elsewhere.job["metadata"]["namespace"] = "team-z"
    third = Kept(job(), None, used=False)
    assert siblings_of(one, [one, other, leaving, elsewhere, third]) == [other]


@given(st.floats(0, 1e9), st.booleans(), st.floats(0, 1e9))
def test_what_is_used_is_never_doomed(unused_for: float, complete: bool, retention: float) -> None:
    kept = Kept(job(complete, unused_for), None, used=True)
    assert next_act(kept, NOW, retention) is Act.UNMARK


@pytest.mark.parametrize("since", ["soon", "2026-01-01T00:00:00", ""])
def test_a_mark_that_is_no_time_deletes_nothing(since: str) -> None:
    marked = job(unused_for=10 * WEEK)
    marked["metadata"]["annotations"]["llmendpoint.io/unused-since"] = since
    with pytest.raises(ValueError, match="is no time"):
        next_act(Kept(marked, None, used=False), NOW, WEEK)


def test_a_job_that_is_being_deleted_is_left_alone() -> None:
    leaving = job(unused_for=2 * WEEK)
    leaving["metadata"]["deletionTimestamp"] = "x"
    assert next_act(Kept(leaving, None, used=False), NOW, WEEK) is None


def test_every_recorded_revision_uses_its_files_whether_it_serves_or_could() -> None:
    recorded = [
        ("team-a", Revision("a", 1, 1, inputs(CACHED), RUNTIME, commit=REVISION)),
        ("team-b", Revision("b", 1, 1, inputs(CACHED), RUNTIME, commit="5" * 40)),
        ("team-b", Revision("c", 1, 1, inputs(NODE), RUNTIME, commit=REVISION)),
        ("team-b", Revision("d", 1, 1, inputs({"source": "embedded://demo"}), RUNTIME)),
    ]
    used = find_usage(recorded, [("team-c", "awaited")])
    assert ("team-a", DOWNLOAD_JOB["metadata"]["name"]) in used
    assert ("team-b", DOWNLOAD_JOB["metadata"]["name"]) not in used
    assert ("team-b", model_files(inputs(NODE).model, REVISION).job_name) in used
    assert ("team-c", "awaited") in used
    assert len(used.jobs) == 4


def test_a_revision_that_cannot_be_read_may_use_anything_of_its_namespace() -> None:
    used = find_usage([("team-a", None)], [])
    assert ("team-a", "whichever") in used
    assert ("team-b", "whichever") not in used


def test_only_downloads_are_records_of_what_a_claim_holds() -> None:
    assert is_download(DOWNLOAD_JOB)
    assert not is_download(make_remove_job(DOWNLOAD_JOB))
