"""docs/decisions/kopf-for-little.md: whatever a watch loses, repeats or brings in another order, a list puts it right."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.kube.store import Store, key_of

Json = dict[str, Any]
Event = tuple[str, Json]

NAMES = ("a", "b", "c")


def pod(name: str, uid: int, version: int) -> Json:
    """An object as the API server holds it at `version`."""
    return {
        "metadata": {"namespace": "n", "name": name, "uid": str(uid), "resourceVersion": str(version)},
        "version": version,
    }


def happen(wishes: list[tuple[str, bool]]) -> tuple[list[Event], dict[str, Json]]:
    """The events of what is wished for, in the order of their versions, and what is there in the end."""
    events: list[Event] = []
    there: dict[str, Json] = {}
    for version, (name, delete) in enumerate(wishes, 1):
        known = there.get(name)
        uid = int(known["metadata"]["uid"]) if known else version
        item = pod(name, uid, version)
        if delete and known:
            del there[name]
            events.append(("DELETED", item))
        else:
            there[name] = item
            events.append(("MODIFIED" if known else "ADDED", item))
    return events, there


def contents(store: Store) -> dict[str, Json]:
    return {key_of(item)[1]: item for item in store}


WISHES = st.lists(st.tuples(st.sampled_from(NAMES), st.booleans()), min_size=1, max_size=12)


@given(WISHES, st.data())
def test_after_a_list_all_is_as_it_is_whatever_the_watch_brought(
    wishes: list[tuple[str, bool]], data: st.DataObject
) -> None:
    events, there = happen(wishes)
    told: list[Json] = []
    store = Store(told.append)
    for kind, item in data.draw(st.lists(st.sampled_from(events), max_size=20)):
        store.event(kind, item)
    before = contents(store)
    told.clear()
    store.replace(list(there.values()), str(len(wishes)))
    assert contents(store) == there
    differing = {name for name in NAMES if before.get(name) != there.get(name)}
    assert {item["metadata"]["name"] for item in told} == differing


@given(WISHES, st.data())
def test_repeated_events_and_early_answers_to_our_own_writes_change_nothing(
    wishes: list[tuple[str, bool]], data: st.DataObject
) -> None:
    events, there = happen(wishes)
    store = Store(lambda _: None)
    for number, (kind, item) in enumerate(events):
        if kind != "DELETED" and data.draw(st.booleans(), label="our own write"):
            store.remember(item)
        for _ in range(data.draw(st.integers(1, 2), label="times")):
            store.event(kind, item)
        late = data.draw(st.sampled_from(events[: number + 1]), label="an answer that comes late")
        if late[0] != "DELETED":
            store.remember(late[1])
    assert contents(store) == there
