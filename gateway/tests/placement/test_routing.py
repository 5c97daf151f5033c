"""docs/contribute/contracts.md: an assignment is applied when Envoy has acknowledged routable replicas of every revision in it."""

import time
from dataclasses import replace

import pytest

from llmendpoint_gateway.core.endpoint.endpoint_settings import DEFAULT_CIRCUIT
from llmendpoint_gateway.core.endpoint.objects import Assignment, Endpoint, Replica
from llmendpoint_gateway.core.endpoint.view import Part, View, change_view
from llmendpoint_gateway.core.envoy.snapshot import Health, Host, Hosts
from llmendpoint_gateway.core.envoy.snapshot import make_clusters as clusters_of
from llmendpoint_gateway.core.placement.routing import Route, Table, Target, change_table, make_route

A, B, C = (f"10.0.0.{n}:8000" for n in (1, 2, 3))


def view(active: str | Assignment | None, draining: str = "", **revisions: list[Replica]) -> View:
    """`active`: a revision for all, as before there was status.traffic, or how it is shared; `draining`: one pod."""
    traffic = active if isinstance(active, Assignment) else None
    active = None if isinstance(active, Assignment) else active
    pods = frozenset({draining} - {""})
    endpoint = Endpoint("a", "chat", "2026-01-01T00:00:00Z", ("chat",), active, traffic, pods)
    known = {revision: tuple(replicas) for revision, replicas in revisions.items()}
    return change_view(View(), {"a/chat": Part(endpoint, known)})


def make_table(view: View, acknowledged: dict[str, frozenset[str]], previous: Table) -> Table:
    """After the view, or what is acknowledged, has changed."""
    return change_table(previous, view, ["a/chat"], lambda cluster: acknowledged.get(cluster, frozenset()))


def make_clusters(view: View) -> dict[str, Hosts]:
    return clusters_of("a/chat", view.part("a/chat"))


def replica(address: str, ready: bool = True, terminating: bool = False) -> Replica:
    return Replica(address, address, ready, terminating)


def acked(**clusters: set[str]) -> dict[str, frozenset[str]]:
    return {f"a/chat/{revision}": frozenset(addresses) for revision, addresses in clusters.items()}


def everything(revision: str) -> Assignment:
    return Assignment(None, ((revision, 100),))


def on(revision: str, *addresses: str) -> Table:
    """All requests go to this revision, as it was assigned; others are not shown."""
    names = {"chat": "a/chat", "a/chat": "a/chat"}
    targets = (Target(revision, f"a/chat/{revision}", addresses),) if addresses else ()
    return Table(names, {"a/chat": Route(everything(revision), targets, circuit=DEFAULT_CIRCUIT)})


def table(view: View, acknowledged: dict[str, frozenset[str]], previous: Table) -> Table:
    made = make_table(view, acknowledged, previous)
    return Table(made.names, {key: replace(route, others=()) for key, route in made.routes.items()})


def shares(
    view: View, acknowledged: dict[str, frozenset[str]], previous: Table
) -> tuple[Table, dict[str, int]]:
    """-> (the table, weight by revision that requests follow now)."""
    made = make_table(view, acknowledged, previous)
    return made, {target.revision: target.weight for target in made.routes["a/chat"].targets}


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
    made = make_table(view("r1", r1=known), acked(r1=held), Table())
    assert made.routes["a/chat"].targets == on("r1", *(routed or ())).routes["a/chat"].targets


def test_no_active_revision_routes_nothing_though_replicas_are_ready() -> None:
    assert make_table(view(None, r1=[replica(A)]), acked(r1={A}), Table()).routes == {}


def test_a_switch_waits_until_envoy_has_acknowledged_the_new_revision() -> None:
    both = view("r2", r1=[replica(A)], r2=[replica(B)])
    assert table(both, acked(r1={A}), on("r1", A)) == on("r1", A)
    assert table(both, acked(r1={A}, r2=set()), on("r1", A)) == on("r1", A)
    assert table(both, acked(r1={A}, r2={B}), on("r1", A)) == on("r2", B)


def test_a_revision_never_routed_before_is_not_a_fallback() -> None:
    both = view("r2", r1=[replica(A)], r2=[])
    assert make_table(both, acked(r1={A}), Table()).routes["a/chat"].targets == ()


def test_a_rollback_is_a_switch_like_any_other() -> None:
    both = view("r1", r1=[replica(A)], r2=[replica(B)])
    assert table(both, acked(r1={A}, r2={B}), on("r2", B)) == on("r1", A)


CANARY = Assignment(2, (("r1", 90), ("r2", 10)))


def test_weights_apply_together_once_every_revision_is_routable() -> None:
    both = view(CANARY, r1=[replica(A)], r2=[replica(B)])
    waiting, weights = shares(both, acked(r1={A}), on("r1", A))
    assert (waiting.routes["a/chat"].assignment, weights) == (everything("r1"), {"r1": 100})
    applied, weights = shares(both, acked(r1={A}, r2={B}), waiting)
    assert (applied.routes["a/chat"].assignment, weights) == (CANARY, {"r1": 90, "r2": 10})


def test_a_revision_that_loses_its_replicas_gives_its_share_to_the_others_and_the_epoch_stays() -> None:
    both = view(CANARY, r1=[replica(A)], r2=[replica(B)])
    applied, _ = shares(both, acked(r1={A}, r2={B}), Table())
    lost = view(CANARY, r1=[replica(A)], r2=[replica(B, ready=False)])
    after, weights = shares(lost, acked(r1={A}, r2={B}), applied)
    assert (after.routes["a/chat"].assignment, weights) == (CANARY, {"r1": 90})
    _, weights = shares(both, acked(r1={A}, r2={B}), after)
    assert weights == {"r1": 90, "r2": 10}


def test_a_gateway_that_starts_in_the_middle_uses_what_is_there_and_claims_no_epoch() -> None:
    made, weights = shares(view(CANARY, r1=[replica(A)], r2=[]), acked(r1={A}), Table())
    assert (made.routes["a/chat"].assignment, weights) == (None, {"r1": 90})


def test_a_revision_without_weight_gets_nothing_and_holds_nothing_up() -> None:
    both = view(Assignment(3, (("r2", 100),)), r1=[replica(A)], r2=[replica(B)])
    made, weights = shares(both, acked(r1={A}, r2={B}), on("r1", A))
    assert weights == {"r2": 100}
    assert [target.revision for target in made.routes["a/chat"].others] == ["r1"]


@pytest.mark.parametrize("restored", [Assignment(1, (("r1", 100),)), Assignment(2, (("r1", 100),))])
def test_after_a_restored_backup_a_lower_epoch_or_other_weights_of_the_same_are_applied(
    restored: Assignment,
) -> None:
    both = {"r1": [replica(A)], "r2": [replica(B)]}
    applied, _ = shares(view(CANARY, **both), acked(r1={A}, r2={B}), Table())
    after, weights = shares(view(restored, **both), acked(r1={A}, r2={B}), applied)
    assert (after.routes["a/chat"].assignment, weights) == (restored, {"r1": 100})


def test_when_neither_the_applied_nor_all_of_the_wanted_is_there_what_is_there_of_the_wanted_serves() -> None:
    gone = view(CANARY, r0=[], r1=[replica(A)], r2=[])
    made, weights = shares(gone, acked(r1={A}), on("r0", C))
    assert (made.routes["a/chat"].assignment, weights) == (everything("r0"), {"r1": 90})


def test_the_revision_that_a_rollout_goes_back_to_stands_by_while_it_is_ready() -> None:
    ready = {"r0": (C,), "r1": (A,), "r2": (B,)}
    green = Assignment(4, (("r2", 100),))
    assert make_route("a/chat", green, ready, None, "r1").standby == Target("r1", "a/chat/r1", (A,))
    assert make_route("a/chat", green, {"r2": (B,)}, None, "r1").standby is None
    assert make_route("a/chat", green, ready, None, "r2").standby is None
    assert make_route("a/chat", green, ready, None).standby is None


def test_a_draining_pod_leaves_the_pick_and_envoys_fallback_at_once() -> None:
    known = view(everything("r1"), draining=A, r1=[replica(A), replica(B)])
    made = make_table(known, acked(r1={A, B}), on("r1", A, B))
    assert made.routes["a/chat"].targets[0].addresses == (B,)
    assert make_clusters(known)["a/chat/r1"] == (Host(A, Health.DRAINING), Host(B, Health.HEALTHY))


def test_an_epoch_that_only_drains_is_followed_though_a_revision_is_away() -> None:
    both = view(CANARY, r1=[replica(A)], r2=[replica(B)])
    applied, _ = shares(both, acked(r1={A}, r2={B}), Table())
    later = Assignment(3, CANARY.weights)
    after, weights = shares(
        view(later, draining=B, r1=[replica(A)], r2=[replica(B)]), acked(r1={A}, r2={B}), applied
    )
    assert (after.routes["a/chat"].assignment, weights) == (later, {"r1": 90})


def test_clusters_are_held_for_active_and_populated_revisions() -> None:
    known = view("r3", r1=[replica(A, ready=False)], r2=[], r3=[])
    clusters = make_clusters(known)
    assert clusters == {
        "a/chat/r1": (Host(A, Health.UNHEALTHY),),
        "a/chat/r3": (),
    }


def test_an_old_cluster_goes_with_its_last_pod() -> None:
    drained = view("r2", r2=[replica(B)])
    assert "a/chat/r1" not in make_clusters(drained)
    draining = view("r2", r1=[replica(A, terminating=True)], r2=[replica(B)])
    assert make_clusters(draining)["a/chat/r1"] == (Host(A, Health.DRAINING),)


def test_the_endpoints_breaker_stays_closed_while_a_rollout_judges_or_has_where_to_go_back_to() -> None:
    calm = view("r1", r1=[replica(A)], r2=[replica(B)])
    held = acked(r1={A}, r2={B})
    assert make_table(calm, held, Table()).routes["a/chat"].circuit == DEFAULT_CIRCUIT
    for change in ({"judged": True}, {"proven": "r2"}):
        endpoint = replace(calm.endpoints["a/chat"], **change)  # type: ignore[arg-type]
        judged = change_view(calm, {"a/chat": replace(calm.part("a/chat"), endpoint=endpoint)})
        assert make_table(judged, held, Table()).routes["a/chat"].circuit is None


def test_the_table_of_many_endpoints_costs_as_much_for_each_as_that_of_few() -> None:
    def seconds(number: int) -> float:
        keys = [f"a/{n}" for n in range(number)]
        known = {
            key: Endpoint("a", key[2:], "2026-01-01T00:00:00Z", (key[2:],), "r1", expects=True)
            for key in keys
        }
        everything = change_view(View(), {key: Part(endpoint) for key, endpoint in known.items()})
        taken = []
        for _ in range(3):
            begun = time.process_time()
            table = change_table(Table(), everything, keys, lambda _: frozenset())
            taken.append(time.process_time() - begun)
            assert table.expecting == set(keys)
        return min(taken)

    assert seconds(8000) < 8 * 4 * seconds(1000)
