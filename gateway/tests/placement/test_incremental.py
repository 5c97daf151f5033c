"""docs/concepts/gateway.md: what the gateway changes endpoint by endpoint is what would be made from nothing, after any sequence of changes."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tests.one_endpoint import parts_of, turn
from llmendpoint_gateway.core.endpoint.objects import Assignment, Endpoint, Replica, Slice
from llmendpoint_gateway.core.endpoint.view import Kind, Store, View, change_view
from llmendpoint_gateway.core.envoy.snapshot import make_clusters
from llmendpoint_gateway.core.placement.routing import Table, change_table
from llmendpoint_gateway.serve.envoy.ads import Ads

KEYS = ("a/x", "a/y", "b/x")
NAMES = ("x", "y", "gpt", "a/x")  # one has the form of an endpoint's key
REVISIONS = ("r1", "r2")
ADDRESSES = tuple(f"10.0.0.{n}:8000" for n in range(4))
Objects = dict[Kind, dict[str, Any]]

assignments = st.none() | st.builds(
    lambda epoch, one, other: Assignment(epoch, tuple(w for w in (("r1", one), ("r2", other)) if w[1])),
    st.integers(0, 3),
    st.sampled_from([0, 10, 100]),
    st.sampled_from([0, 90]),
)
replicas = st.builds(Replica, st.sampled_from(ADDRESSES), st.sampled_from("pq"), st.booleans(), st.booleans())
slices = st.builds(
    Slice, st.sampled_from(KEYS), st.sampled_from(REVISIONS), st.lists(replicas, max_size=3).map(tuple)
)


def endpoints(key: str) -> st.SearchStrategy[Endpoint]:
    return st.builds(
        Endpoint,
        st.just(key.split("/")[0]),
        st.just(key.split("/")[1]),
        st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
        st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(tuple),
        st.none() | st.sampled_from(REVISIONS),
        assignments,
        st.frozensets(st.sampled_from("pq")),
        st.none() | st.sampled_from(REVISIONS),
        expects=st.booleans(),
        judged=st.booleans(),
        paths=st.frozensets(st.sampled_from(["/pooling", "/score"])),
    )


lists = {
    Kind.ENDPOINT: st.fixed_dictionaries({}, optional={key: endpoints(key) for key in KEYS}),
    Kind.SLICE: st.dictionaries(st.sampled_from(["a/1", "a/2", "b/1"]), slices),
}
one_kind = st.sampled_from(Kind).flatmap(lambda kind: st.tuples(st.just(kind), lists[kind]))
relists = st.tuples(st.just("relisted"), one_kind)
changes = st.tuples(st.just("applied"), one_kind)
deletions = st.tuples(
    st.just("deleted"),
    st.one_of(
        st.tuples(st.just(Kind.ENDPOINT), st.sampled_from(KEYS)),
        st.tuples(st.just(Kind.SLICE), st.sampled_from(["a/1", "a/2", "b/1"])),
    ),
)
answers = st.tuples(
    st.just("acknowledged"),
    st.tuples(
        st.builds("{}/{}".format, st.sampled_from(KEYS), st.sampled_from(REVISIONS)),
        st.frozensets(st.sampled_from(ADDRESSES)),
    ),
)


class Acknowledging(Ads):
    """Envoy holds what it is told to hold."""

    def __init__(self) -> None:
        super().__init__()
        self.acknowledged_generation, self.started = 1, True
        self.held: dict[str, frozenset[str]] = {}

    def addresses(self, cluster: str) -> frozenset[str]:
        return self.held.get(cluster, frozenset())

    def acknowledge(self, cluster: str, addresses: frozenset[str]) -> None:
        self.held[cluster] = addresses
        self._news.add(cluster)
        self._answered.set()


def from_nothing(objects: Objects) -> View:
    store = Store()
    for kind, items in objects.items():
        store.relisted(kind, items)
    return change_view(View(), {key: store.part(key) for key in store.take_touched()})


def owners(known: dict[str, Endpoint]) -> dict[str, str]:
    """Whose each name is, by the rule as it is written."""
    found: dict[str, str] = {}
    for endpoint in sorted(known.values(), key=lambda e: (e.created, e.key)):
        for name in endpoint.served_names:
            found.setdefault(name, endpoint.key)
    return found | {key: key for key in known}


def change(objects: Objects, what: str, kind: Kind, value: Any) -> None:
    if what == "relisted":
        objects[kind] = dict(value)
    elif what == "applied":
        objects[kind] |= value
    else:
        objects[kind].pop(value, None)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(relists, changes, deletions, answers), max_size=25), st.data())
def test_after_any_changes_all_is_as_if_it_were_made_from_nothing(
    steps: list[Any], data: st.DataObject
) -> None:
    asyncio.run(follow(steps, lambda: data.draw(st.booleans(), "the changes are taken in one turn")))


async def follow(steps: list[Any], at_once: Callable[[], bool]) -> None:
    ads = Acknowledging()
    parts = parts_of(ads)
    control, placement = parts.control, parts.placement
    following = asyncio.create_task(control.run())
    objects: Objects = {kind: {} for kind in Kind}
    for kind in Kind:
        control.relisted(kind, {})
    table = Table()
    for what, (kind, value) in steps:
        if what == "acknowledged":
            ads.acknowledge(kind, value)
        elif what == "applied":
            for key, item in value.items():
                control.applied(kind, key, item)
        else:
            getattr(control, what)(kind, value)
        if what != "acknowledged":
            change(objects, what, kind, value)
        if what != "acknowledged" and at_once():
            continue
        for _ in range(3):
            await turn()
        view = from_nothing(objects)
        table = change_table(table, view, {*view.endpoints, *table.routes, *table.expecting}, ads.addresses)
        assert placement.view == view
        assert view.names == owners(objects[Kind.ENDPOINT])
        assert view.paths == {path for e in view.endpoints.values() for path in e.paths}
        assert placement.table == table
        wanted = [make_clusters(key, part) for key, part in view.parts.items()]
        published = ads._snapshot
        assert published is not None
        assert published.clusters == {name: hosts for clusters in wanted for name, hosts in clusters.items()}
        ready = {
            r.address
            for part in view.parts.values()
            for rs in part.revisions.values()
            for r in rs
            if r.routable
        }
        assert set(placement._addresses) == placement.loads._replicas.keys() == ready
        places = {(name, host.address) for name, hosts in published.clusters.items() for host in hosts}
        assert placement.tallies._of.keys() == places
    following.cancel()


def test_the_object_of_one_endpoint_leaves_the_parts_of_the_others_as_they_are() -> None:
    store, view = Store(), View()
    known = {key: Endpoint(*key.split("/"), "2026-01-01T00:00:00Z", ("x",), "r1") for key in KEYS}
    store.relisted(Kind.ENDPOINT, known)
    view = change_view(view, {key: store.part(key) for key in store.take_touched()})
    store.applied(Kind.ENDPOINT, "a/x", replace(known["a/x"], judged=True))
    assert store.take_touched() == {"a/x"}
    after = change_view(view, {"a/x": store.part("a/x")})
    assert after.part("a/y") is view.part("a/y")
    assert (after.names, after.claims) == (view.names, view.claims)
