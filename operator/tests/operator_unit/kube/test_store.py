"""docs/decisions/kopf-for-little.md: the caches are our own: a list finds what a watch has lost, and nothing stays that is gone."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from llmendpoint_operator.core.names import ENDPOINT_LABEL
from llmendpoint_operator.kube import parsed, resources
from llmendpoint_operator.kube.caches import Caches
from llmendpoint_operator.kube.client import KubeApi
from llmendpoint_operator.kube.store import Store
from llmendpoint_operator.kube.trimming import trim


def item(name: str, version: int, uid: str | None = None) -> dict[str, Any]:
    metadata = {"namespace": "a", "name": name, "uid": uid or name, "resourceVersion": str(version)}
    return {"metadata": {**metadata, "labels": {ENDPOINT_LABEL: "chat"}}}


class Told:
    def __init__(self) -> None:
        self.names: list[str] = []
        self.store = Store(lambda item: self.names.append(item["metadata"]["name"]))

    def take(self) -> list[str]:
        found, self.names[:] = list(self.names), []
        return found


def test_a_list_tells_of_what_is_new_changed_and_gone_and_of_nothing_else() -> None:
    told = Told()
    told.store.replace([item("same", 1), item("changed", 1), item("gone", 1)], "1")
    told.take()
    told.store.replace([item("same", 1), item("changed", 2), item("new", 3)], "3")
    assert sorted(told.take()) == ["changed", "gone", "new"]
    assert [i["metadata"]["name"] for i in told.store.of_endpoint("a", "chat")] == ["changed", "new", "same"]


def test_an_object_made_again_under_its_name_counts_as_gone_and_new() -> None:
    told = Told()
    told.store.replace([item("x", 1, uid="old")], "1")
    told.take()
    told.store.replace([item("x", 5, uid="new")], "5")
    assert told.take() == ["x", "x"]


def test_our_own_write_is_seen_at_once_and_its_event_tells_nobody() -> None:
    told = Told()
    told.store.replace([], "1")
    told.store.remember(item("x", 2))
    assert told.store.get("a", "x") is not None
    told.store.event("ADDED", item("x", 2))
    assert told.take() == []
    told.store.event("MODIFIED", item("x", 3))
    assert told.take() == ["x"]


def test_the_answer_to_a_write_that_the_watch_is_past_makes_no_ghost() -> None:
    told = Told()
    told.store.replace([], "1")
    told.store.event("ADDED", item("x", 2))
    told.store.event("DELETED", item("x", 3))
    told.store.remember(item("x", 2))
    assert told.store.get("a", "x") is None


def test_a_list_that_was_on_its_way_while_we_wrote_does_not_undo_our_write() -> None:
    told = Told()
    told.store.replace([item("x", 1), item("gone", 1)], "1")
    told.store.remember(item("x", 5))
    told.store.remember(item("made", 6))
    told.take()
    told.store.replace([item("x", 1)], "4")
    found = {i["metadata"]["name"]: i["metadata"]["resourceVersion"] for i in told.store}
    assert found == {"x": "5", "made": "6"}
    assert told.take() == ["gone"]


def test_a_store_that_went_back_in_time_is_taken_over_as_it_is() -> None:
    """As after a restore of etcd: what the watch told before is no write of ours."""
    told = Told()
    told.store.replace([], "1")
    told.store.event("ADDED", item("ghost", 900))
    told.store.replace([item("x", 3)], "3")
    assert [i["metadata"]["name"] for i in told.store] == ["x"]
    told.store.remember(item("y", 4))
    told.store.replace([item("x", 3)], "3")
    told.store.replace([item("x", 3)], "3")
    assert [i["metadata"]["name"] for i in told.store] == ["x"]


def test_what_was_deleted_by_others_since_our_write_goes_with_a_later_list() -> None:
    told = Told()
    told.store.replace([], "1")
    told.store.remember(item("x", 2))
    told.store.replace([], "3")
    assert list(told.store) == []


def test_a_kind_that_is_gone_leaves_nothing() -> None:
    told = Told()
    told.store.replace([], "1")
    told.store.remember(item("x", 2))
    told.store.clear()
    assert list(told.store) == []
    assert told.take() == ["x"]


def test_a_late_delete_of_a_former_object_leaves_its_successor() -> None:
    told = Told()
    told.store.replace([item("x", 5, uid="new")], "5")
    told.store.event("DELETED", item("x", 4, uid="old"))
    assert told.store.get("a", "x") is not None


def test_a_bookmark_only_moves_the_position() -> None:
    told = Told()
    told.store.replace([], "1")
    told.store.event("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    assert (told.take(), len(told.store)) == ([], 0)
    told.store.remember(item("x", 8))
    assert len(told.store) == 0


def test_objects_of_the_cache_share_their_names_and_short_texts() -> None:
    text = (
        '{"kind": "Service", "metadata": {"name": "x", "labels": {"app.kubernetes.io/name": "llmendpoint"}}}'
    )
    one, other = (trim(json.loads(text))["metadata"]["labels"] for _ in range(2))
    assert one is not other
    assert [id(part) for part in (*one, *one.values())] == [id(part) for part in (*other, *other.values())]


def test_trimming_keeps_what_causes_are_read_from() -> None:
    engine = {"name": "engine", "image": "i", "resources": {}, "env": [{"name": "A", "value": "secret"}]}
    pod = {
        "kind": "Pod",
        "metadata": {"name": "x", "managedFields": [1]},
        "spec": {"containers": [engine], "volumes": []},
        "status": {"phase": "Running"},
    }
    assert trim(pod) == {
        "kind": "Pod", "metadata": {"name": "x"}, "status": {"phase": "Running"},
        "spec": {"containers": [{"name": "engine", "image": "i", "resources": {}}]},
    }  # fmt: skip
    assert trim({"kind": "Pod", "metadata": {"resourceVersion": "1"}, "spec": {"containers": None}})[
        "spec"
    ] == {"containers": []}


def test_a_record_is_read_once_until_it_changes_and_none_is_kept_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    monkeypatch.setattr(
        parsed, "parse_revision", lambda record: read.append(record["metadata"]["resourceVersion"])
    )
    caches = Caches(cast(KubeApi, None), lambda key: None, None)
    store = caches.informers[resources.CONTROLLER_REVISIONS].store

    def look() -> list[str]:
        for record in caches.all(resources.CONTROLLER_REVISIONS):
            caches.revisions.of(record)
        return read

    store.replace([item("x", 1), item("y", 2)], "2")
    assert [look() for _ in range(3)][-1] == ["1", "2"]
    store.event("MODIFIED", item("x", 3))
    assert [look() for _ in range(3)][-1] == ["1", "2", "3"]
    caches.remember(resources.CONTROLLER_REVISIONS, item("x", 4))
    assert [look() for _ in range(3)][-1] == ["1", "2", "3", "4"]
    store.event("DELETED", item("x", 5))
    store.replace([], "6")
    assert len(caches.revisions) == 0


@pytest.mark.parametrize("labels", [{}, {ENDPOINT_LABEL: "another"}], ids=["taken off", "changed"])
def test_a_child_whose_endpoint_label_a_hand_changed_wakes_the_endpoint_that_owns_it(
    labels: dict[str, str],
) -> None:
    woken: list[tuple[str, str]] = []
    caches = Caches(cast(KubeApi, None), woken.append, None)
    child, owner = item("chat", 1), {"apiVersion": "llmendpoint.io/v1alpha1", "kind": "LLMEndpoint"}
    child["metadata"]["ownerReferences"] = [{**owner, "name": "chat", "uid": "u"}]
    store = caches.informers[resources.SERVICES].store
    store.event("ADDED", child)
    assert woken == [("a", "chat")]
    woken.clear()
    store.event("MODIFIED", {"metadata": {**child["metadata"], "labels": labels, "resourceVersion": "2"}})
    assert ("a", "chat") in woken
