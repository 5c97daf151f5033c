"""docs/reference/cli.md: what `status` and `rollout history` print is what the page shows.

The output is compared with golden files: LLMENDPOINT_GOLDEN=write writes them anew.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from llmendpoint_cli.core.history import history_of
from llmendpoint_cli.core.presence import Presence, view_operator
from llmendpoint_cli.core.tree import as_json, phase_of, reasons, role_of, view_endpoint
from llmendpoint_cli.render import history_table, make_console, status_trees

from .samples import (
    BLUE,
    CONFLICT,
    GREEN,
    NO_GPU,
    NOW,
    READY,
    REJECTION,
    SCHEDULER_SAYS,
    TOO_MANY_ERRORS,
    UNRESPONSIVE,
    Json,
    condition,
    endpoint,
    hanging_pod,
    lease,
    loading_pod,
    pod,
    ready_pod,
    record,
    rolling,
    serving,
    unschedulable_pod,
)

GOLDEN = Path(__file__).parent / "golden"


def test_a_missing_adapter_is_a_cause_and_one_that_is_there_is_none() -> None:
    for status, told in ((True, ()), (False, ("LoadFailed: sql: no such adapter",))):
        found = endpoint(READY, condition("AdaptersReady", status, "LoadFailed", "sql: no such adapter"))
        assert reasons(found) == told
        assert phase_of(found) == phase_of(endpoint(READY)), "it is as ready as it was"


def check_golden(name: str, renderable: object) -> None:
    file = io.StringIO()
    make_console(file, width=120).print(renderable)
    check_golden_text(name, file.getvalue())


def check_golden_text(name: str, printed: str) -> None:
    text = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
    path = GOLDEN / name
    if os.environ.get("LLMENDPOINT_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


def observing(observation: Json) -> Json:
    found = rolling("Observing", weights=(0, 100), readyReplicas=1)
    found["status"]["rollout"]["observation"] = observation
    return found


CASES: dict[str, tuple[Json, list[Json]]] = {
    "serving.txt": (serving(), [ready_pod("chat-7d9f8c6b54-a", BLUE), ready_pod("chat-7d9f8c6b54-b", BLUE)]),
    "observing.txt": (
        observing({"requests": 37, "expectedRequests": 100, "expectedSeconds": 63.4}),
        [
            *(ready_pod(f"chat-7d9f8c6b54-{letter}", BLUE) for letter in "ab"),
            ready_pod("chat-0c1d2e3f4a-a", GREEN), loading_pod("chat-0c1d2e3f4a-b", GREEN),
        ],
    ),
    "canary.txt": (
        rolling("Observing", weights=(75, 25)),
        [ready_pod(f"chat-{revision}-{letter}", revision) for revision in (BLUE, GREEN) for letter in "ab"],
    ),
    "rejected.txt": (
        endpoint(
            READY,
            *(condition(kind, True, "RevisionRejected", REJECTION) for kind in ("Degraded", "Stalled")),
            activeRevision=BLUE, targetRevision=GREEN, readyReplicas=2, url="http://gateway.llm.svc/v1",
            rollout={"state": "RolledBack", "mode": "Surge", "blue": BLUE, "green": GREEN, "stateSince": "2026-11-21T11:30:00Z"},
            rejected={"revision": GREEN, "reason": "ErrorRateTooHigh", "message": TOO_MANY_ERRORS},
        ),
        [ready_pod(f"chat-7d9f8c6b54-{letter}", BLUE) for letter in "ab"],
    ),
    "hanging.txt": (
        endpoint(
            condition("Ready", False, "EngineUnresponsive", UNRESPONSIVE),
            condition("Degraded", True, "EngineUnresponsive", UNRESPONSIVE),
            condition("NameConflict", True, "NameTaken", CONFLICT),
            condition("Scaling", True, "FollowingSignals", "within 1 to 4"),
            condition("ScalingBlind", True, "NoFigures", "nobody has told load and demand for 3 polls or more"),
            activeRevision=BLUE, targetRevision=BLUE, replicas=1,
        ),
        [hanging_pod("chat-7d9f8c6b54-a", BLUE)],
    ),
    "adapters.txt": (
        serving(adapters=[
            {"name": "sql", "source": "hf://acme/sql", "readyReplicas": 2},
            {"name": "legal", "source": "s3://acme/legal", "message": "HTTP 404: no such adapter"},
        ]) | {"spec": {"replicas": 2}},
        [ready_pod(f"chat-7d9f8c6b54-{letter}", BLUE) for letter in "ab"],
    ),
    "no-accelerator.txt": (
        endpoint(
            condition("Ready", False, "NoAcceleratorAvailable", SCHEDULER_SAYS),
            condition("Degraded", True, "NoAcceleratorAvailable", SCHEDULER_SAYS),
            targetRevision=GREEN,
            rollout={"state": "Provisioning", "green": GREEN, "mode": "Surge", "stateSince": "2026-11-21T11:58:00Z"},
        ),
        [unschedulable_pod("chat-0c1d2e3f4a-a", GREEN, NO_GPU)],
    ),
    "too-large.txt": (
        endpoint(
            condition("Ready", False, "EngineCrashed", "pod chat-0c1d2e3f4a-a: the engine ended with exit code 1"),
            condition("CapacityFits", False, "WeightsTooLarge", "1 x Tesla-T4: weights 16.1 GB + overhead 3.2 GB of 16.1 GB: too large"),
            targetRevision=GREEN,
        ),
        [],
    ),
    "unseen.txt": (endpoint(generation=4), []),
    "markup.txt": (
        endpoint(condition("Ready", False, "EngineCrashed", "[bold]not markup[/bold] [/]"), targetRevision=GREEN),
        [pod("chat-0c1d2e3f4a-a", GREEN, phase="Failed", reason="Evicted", message="[red]disk[/red]")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_tree_is_what_the_golden_file_holds(name: str) -> None:
    found, pods = CASES[name]
    check_golden(name, status_trees([view_endpoint(found, pods)], NOW))


def test_every_number_of_ready_replicas_in_the_samples_agrees_with_the_pods() -> None:
    """The documentation shows these files: a sum that does not add up would be read as a meaning."""
    for name in ("serving.txt", "observing.txt", "canary.txt", "rejected.txt"):
        found, pods = CASES[name]
        view = view_endpoint(found, pods)
        assert view.ready == view.revisions[0].ready, name
        assert len(view.revisions[0].pods) == view.wanted, name


SHOWN = (
    "observing.txt",
    "rejected.txt",
    "no-accelerator.txt",
    "hanging.txt",
    "no-operator.txt",
    "history.txt",
    "top.txt",
)


@pytest.mark.parametrize("name", SHOWN)
def test_the_documentation_shows_what_is_printed(name: str) -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
    assert (GOLDEN / name).read_text() in page.read_text()


def test_without_an_operator_the_endpoint_is_not_called_ready() -> None:
    absent = view_operator([lease("11:50:00")], NOW)
    check_golden("no-operator.txt", status_trees([view_endpoint(serving(), [], absent)], NOW))


@pytest.mark.parametrize(
    ("leases", "presence"),
    [
        (None, Presence.UNKNOWN),
        ([], Presence.ABSENT),
        ([lease("11:59:50")], Presence.WORKING),
        ([lease("11:58:59")], Presence.ABSENT),
        ([lease("11:50:00"), lease("11:59:50", namespace="other")], Presence.WORKING),
        ([lease("11:59:50", holder="")], Presence.UNKNOWN),
        ([lease("11:58:00", holder="")], Presence.ABSENT),
        ([{"metadata": {"name": "llmendpoint-operator", "namespace": "llm"}}], Presence.ABSENT),
    ],
)
def test_an_operator_works_while_its_lease_is_renewed(leases: list[Json] | None, presence: Presence) -> None:
    found = view_operator(leases, NOW)
    assert found.presence is presence
    assert bool(found.why) is (presence is Presence.ABSENT)


def test_nothing_is_said_of_the_operator_where_the_servers_time_is_not_known() -> None:
    assert view_operator([lease("11:50:00")], None).presence is Presence.UNKNOWN


def test_history_is_what_the_golden_file_holds() -> None:
    records = [
        record(5, "bbbbbbbbbb", engine={"maxNumSeqs": 4}),
        record(4, GREEN, engine={"maxNumSeqs": 4}),
        record(3, BLUE, engine={"maxNumSeqs": 8}, runtime={"image": "engine:2"}),
        record(2, "aaaaaaaaaa"),
    ]
    check_golden("history.txt", history_table(history_of(rolling("Verifying"), records), NOW))


def test_pods_of_other_endpoints_and_namespaces_are_left_out() -> None:
    elsewhere = ready_pod("chat-1", BLUE)
    elsewhere["metadata"]["namespace"] = "team-b"
    view = view_endpoint(
        serving(), [pod("other-1", BLUE, owner="other"), elsewhere, ready_pod("chat-2", BLUE)]
    )
    assert [p.name for r in view.revisions for p in r.pods] == ["chat-2"]


def test_weights_come_from_the_assignment_and_without_one_all_go_to_the_active_revision() -> None:
    assert {
        r.name: r.weight for r in view_endpoint(rolling("Observing", weights=(90, 10)), []).revisions
    } == {BLUE: 90, GREEN: 10}
    assert {r.name: r.weight for r in view_endpoint(serving(), []).revisions} == {BLUE: 100}


def test_a_finished_rollout_shows_its_old_revision_only_as_long_as_it_has_pods() -> None:
    done = rolling("Idle", weights=(0, 100))
    assert [r.name for r in view_endpoint(done, []).revisions] == [GREEN]
    views = view_endpoint(done, [ready_pod("chat-a", BLUE)]).revisions
    assert [(r.name, r.role) for r in views] == [(GREEN, "active"), (BLUE, "old")]


def test_pods_that_leave_the_pick_are_marked() -> None:
    found = serving(
        traffic={"epoch": 2, "weights": [{"revision": BLUE, "weight": 100}], "draining": ["chat-b"]}
    )
    (revision,) = view_endpoint(found, [ready_pod("chat-a", BLUE), ready_pod("chat-b", BLUE)]).revisions
    assert [(p.name, p.draining) for p in revision.pods] == [("chat-a", False), ("chat-b", True)]


@pytest.mark.parametrize(
    ("found", "phase"),
    [
        (endpoint(generation=4), "Pending"),
        ({**endpoint(), "status": {}}, "Pending"),
        (endpoint(condition("Ready", False, "Starting")), "Starting"),
        (endpoint(condition("Ready", False, "EngineCrashed"), activeRevision=BLUE), "NotReady"),
        (endpoint(condition("Ready", False, "X"), condition("Stalled", True, "X")), "Stalled"),
        (rolling("Warming"), "RollingOut"),
        (endpoint(READY, condition("Degraded", True, "X"), activeRevision=BLUE), "Degraded"),
        (serving(), "Ready"),
    ],
)
def test_phase(found: Json, phase: str) -> None:
    assert phase_of(found) == phase


def test_an_endpoint_that_is_being_deleted_says_so_before_all_else() -> None:
    found = serving()
    found["metadata"]["deletionTimestamp"] = "2026-11-21T11:59:59Z"
    assert phase_of(found) == "Stopping"


def test_a_rejected_revision_that_serves_after_all_is_called_active() -> None:
    assert role_of(serving(rejected={"revision": BLUE}), BLUE) == "active"
    assert role_of(rolling("RolledBack", rejected={"revision": GREEN}), GREEN) == "rejected"


def test_json_has_the_apis_names_and_leaves_out_what_is_unknown() -> None:
    found = as_json([view_endpoint(serving(url=None), [ready_pod("chat-a", BLUE)])])[0]
    assert "url" not in found
    assert "rollout" not in found
    assert found["revisions"][0]["pods"][0]["phase"] == "Ready"
    assert {
        "namespace",
        "name",
        "phase",
        "operator",
        "wanted",
        "ready",
        "why",
        "revisions",
        "adapters",
    } == set(found)
    assert found["operator"] == "Unknown"
