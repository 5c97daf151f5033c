"""From view and acknowledgements to the table: which revision and which replicas are routed."""

import pytest

from llmendpoint_gateway.core.objects import Endpoint, Replica
from llmendpoint_gateway.core.routing import Table, Target, make_table
from llmendpoint_gateway.core.snapshot import Health, Host, make_clusters
from llmendpoint_gateway.core.view import View

A, B, C = (f"10.0.0.{n}:8000" for n in (1, 2, 3))


def view(active: str | None, **revisions: list[Replica]) -> View:
    endpoint = Endpoint("a", "chat", "2026-01-01T00:00:00Z", ("chat",), active)
    return View(
        {"a/chat": endpoint},
        {"chat": "a/chat", "a/chat": "a/chat"},
        {("a/chat", revision): tuple(replicas) for revision, replicas in revisions.items()},
    )


def replica(address: str, ready: bool = True, terminating: bool = False) -> Replica:
    return Replica(address, address, ready, terminating)


def acked(**clusters: set[str]) -> dict[str, frozenset[str]]:
    return {f"a/chat/{revision}": frozenset(addresses) for revision, addresses in clusters.items()}


def on(revision: str, *addresses: str) -> Table:
    names = {"chat": "a/chat", "a/chat": "a/chat"}
    return Table(names, {"a/chat": Target(revision, f"a/chat/{revision}", addresses)})


@pytest.mark.parametrize(
    ("known", "held", "routed"),
    [
        ([replica(A), replica(B)], {A, B}, (A, B)),
        ([replica(A), replica(B, ready=False)], {A, B}, (A,)),
        ([replica(A, terminating=True), replica(B)], {A, B}, (B,)),
        ([replica(A), replica(B)], {A}, (A,)),  # B is not in the endpoints that Envoy acknowledged
        ([replica(A, ready=False)], {A}, None),
        ([], set(), None),
    ],
)
def test_only_ready_acknowledged_replicas_that_do_not_terminate_are_routed(
    known: list[Replica], held: set[str], routed: tuple[str, ...] | None
) -> None:
    table = make_table(view("r1", r1=known), acked(r1=held), Table())
    assert table == (on("r1", *routed) if routed else Table(table.names))


def test_no_active_revision_routes_nothing_though_replicas_are_ready() -> None:
    assert make_table(view(None, r1=[replica(A)]), acked(r1={A}), Table()).targets == {}


def test_a_switch_waits_until_envoy_has_acknowledged_the_new_revision() -> None:
    both = view("r2", r1=[replica(A)], r2=[replica(B)])
    assert make_table(both, acked(r1={A}), on("r1", A)) == on("r1", A)
    assert make_table(both, acked(r1={A}, r2=set()), on("r1", A)) == on("r1", A)
    assert make_table(both, acked(r1={A}, r2={B}), on("r1", A)) == on("r2", B)


def test_a_revision_never_routed_before_is_not_a_fallback() -> None:
    both = view("r2", r1=[replica(A)], r2=[])
    assert make_table(both, acked(r1={A}), Table()).targets == {}


def test_a_rollback_is_a_switch_like_any_other() -> None:
    both = view("r1", r1=[replica(A)], r2=[replica(B)])
    assert make_table(both, acked(r1={A}, r2={B}), on("r2", B)) == on("r1", A)


def test_clusters_are_held_for_active_populated_and_busy_revisions() -> None:
    known = view("r3", r1=[replica(A, ready=False)], r2=[], r3=[])
    clusters = make_clusters(known, {"a/chat/r0"})
    assert clusters == {
        "a/chat/r0": (),
        "a/chat/r1": (Host(A, Health.UNHEALTHY),),
        "a/chat/r3": (),
    }


def test_an_old_cluster_goes_with_its_last_request_and_its_last_pod() -> None:
    drained = view("r2", r2=[replica(B)])
    assert "a/chat/r1" in make_clusters(drained, {"a/chat/r1"})
    assert "a/chat/r1" not in make_clusters(drained, frozenset())
    draining = view("r2", r1=[replica(A, terminating=True)], r2=[replica(B)])
    assert make_clusters(draining, frozenset())["a/chat/r1"] == (Host(A, Health.DRAINING),)
