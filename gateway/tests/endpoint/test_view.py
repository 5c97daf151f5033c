"""docs/contribute/contracts.md: a gateway is synced once both kinds were listed; a later list removes what was deleted unseen."""

from llmendpoint_gateway.core.endpoint.objects import Endpoint, Replica, Slice
from llmendpoint_gateway.core.endpoint.view import Kind, Store, make_view

CHAT = Endpoint("a", "chat", "2026-01-01T00:00:00Z", ("chat",), "r1")


def replica(n: int, pod: str = "", ready: bool = True, terminating: bool = False) -> Replica:
    return Replica(f"10.0.0.{n}:8000", pod or f"p{n}", ready, terminating)


def test_a_store_is_synced_only_when_both_kinds_were_listed_even_if_empty() -> None:
    store = Store().relisted(Kind.ENDPOINT, {})
    assert not store.synced
    assert store.relisted(Kind.SLICE, {}).synced


def test_a_relist_drops_what_was_deleted_while_nobody_watched() -> None:
    store = Store().relisted(Kind.SLICE, {"a/x": Slice("a/chat", "r1", (replica(1),))})
    store = store.applied(Kind.SLICE, "a/y", Slice("a/chat", "r1", (replica(2),)))
    assert len(make_view(store).replicas["a/chat", "r1"]) == 2
    store = store.relisted(Kind.SLICE, {"a/y": Slice("a/chat", "r1", (replica(2),))})
    assert make_view(store).replicas == {("a/chat", "r1"): (replica(2),)}


def test_replicas_of_several_slices_are_joined_by_revision_in_order_of_address() -> None:
    store = Store().relisted(
        Kind.SLICE,
        {
            "a/2": Slice("a/chat", "r1", (replica(3), replica(1))),
            "a/1": Slice("a/chat", "r1", (replica(2),)),
            "a/3": Slice("a/chat", "r2", (replica(4),)),
        },
    )
    replicas = make_view(store).replicas
    assert [r.address for r in replicas["a/chat", "r1"]] == [f"10.0.0.{n}:8000" for n in (1, 2, 3)]
    assert [r.address for r in replicas["a/chat", "r2"]] == ["10.0.0.4:8000"]


def test_a_pod_in_two_slices_counts_once_and_is_ready_only_when_both_say_so() -> None:
    store = Store().relisted(
        Kind.SLICE,
        {
            "a/1": Slice("a/chat", "r1", (replica(1, "p"),)),
            "a/2": Slice("a/chat", "r1", (replica(1, "p", ready=False),)),
        },
    )
    (only,) = make_view(store).replicas["a/chat", "r1"]
    assert not only.routable


def test_a_deleted_endpoint_leaves_the_view_while_its_replicas_drain() -> None:
    store = Store().relisted(Kind.ENDPOINT, {"a/chat": CHAT})
    store = store.relisted(Kind.SLICE, {"a/1": Slice("a/chat", "r1", (replica(1),))})
    view = make_view(store.deleted(Kind.ENDPOINT, "a/chat"))
    assert view.endpoints == {}
    assert view.names == {}
    assert view.replicas
