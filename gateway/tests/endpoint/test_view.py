"""docs/contribute/contracts.md: a gateway is synced once both kinds were listed; a later list removes what was deleted unseen."""

from collections.abc import Mapping

from llmendpoint_gateway.core.endpoint.objects import Endpoint, Replica, Slice
from llmendpoint_gateway.core.endpoint.view import Kind, Store, View, change_view

CHAT = Endpoint("a", "chat", "2026-01-01T00:00:00Z", ("chat",), "r1")


def replica(n: int, pod: str = "", ready: bool = True, terminating: bool = False) -> Replica:
    return Replica(f"10.0.0.{n}:8000", pod or f"p{n}", ready, terminating)


class Watched:
    """A store, and the view that follows it."""

    def __init__(self) -> None:
        self.store = Store()
        self._view = View()

    @property
    def view(self) -> View:
        self._view = change_view(self._view, {k: self.store.part(k) for k in self.store.take_touched()})
        return self._view

    @property
    def replicas(self) -> Mapping[str, tuple[Replica, ...]]:
        """Of a/chat, by revision."""
        return self.view.part("a/chat").revisions


def test_a_store_is_synced_only_when_both_kinds_were_listed_even_if_empty() -> None:
    store = Store()
    store.relisted(Kind.ENDPOINT, {})
    assert not store.synced
    store.relisted(Kind.SLICE, {})
    assert store.synced


def test_a_relist_drops_what_was_deleted_while_nobody_watched() -> None:
    watched = Watched()
    watched.store.relisted(Kind.SLICE, {"a/x": Slice("a/chat", "r1", (replica(1),))})
    watched.store.applied(Kind.SLICE, "a/y", Slice("a/chat", "r1", (replica(2),)))
    assert len(watched.replicas["r1"]) == 2
    watched.store.relisted(Kind.SLICE, {"a/y": Slice("a/chat", "r1", (replica(2),))})
    assert watched.replicas == {"r1": (replica(2),)}


def test_replicas_of_several_slices_are_joined_by_revision_in_order_of_address() -> None:
    watched = Watched()
    watched.store.relisted(
        Kind.SLICE,
        {
            "a/2": Slice("a/chat", "r1", (replica(3), replica(1))),
            "a/1": Slice("a/chat", "r1", (replica(2),)),
            "a/3": Slice("a/chat", "r2", (replica(4),)),
        },
    )
    replicas = watched.replicas
    assert [r.address for r in replicas["r1"]] == [f"10.0.0.{n}:8000" for n in (1, 2, 3)]
    assert [r.address for r in replicas["r2"]] == ["10.0.0.4:8000"]


def test_a_pod_in_two_slices_counts_once_and_is_ready_only_when_both_say_so() -> None:
    watched = Watched()
    watched.store.relisted(
        Kind.SLICE,
        {
            "a/1": Slice("a/chat", "r1", (replica(1, "p"),)),
            "a/2": Slice("a/chat", "r1", (replica(1, "p", ready=False),)),
        },
    )
    (only,) = watched.replicas["r1"]
    assert not only.routable


def test_a_deleted_endpoint_leaves_the_view_while_its_replicas_drain() -> None:
    watched = Watched()
    watched.store.relisted(Kind.ENDPOINT, {"a/chat": CHAT})
    watched.store.relisted(Kind.SLICE, {"a/1": Slice("a/chat", "r1", (replica(1),))})
    assert watched.view.endpoints == {"a/chat": CHAT}
    watched.store.deleted(Kind.ENDPOINT, "a/chat")
    assert watched.view.endpoints == {}
    assert watched.view.names == {}
    assert watched.replicas


def test_what_says_the_same_again_touches_nothing() -> None:
    store = Store()
    store.relisted(Kind.ENDPOINT, {"a/chat": CHAT})
    assert store.take_touched() == {"a/chat"}
    store.applied(Kind.ENDPOINT, "a/chat", CHAT)
    store.relisted(Kind.ENDPOINT, {"a/chat": CHAT})
    assert store.take_touched() == set()
