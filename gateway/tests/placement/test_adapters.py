"""docs/concepts/adapters.md: `chat:sql` goes to a replica that has the adapter sql, and requests for it hold up no others."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tests.ext_proc_caller import Caller
from gateway.tests.one_endpoint import (
    ADDRESSES,
    CHAT,
    REPLICAS,
    UNREACHABLE,
    Holding,
    parts_of,
    request_of,
    turn,
)
from llmendpoint_gateway.core.endpoint.loads import Load
from llmendpoint_gateway.core.endpoint.model_objects import model_list, one_model
from llmendpoint_gateway.core.endpoint.names import split_adapter
from llmendpoint_gateway.core.endpoint.objects import Assignment, Endpoint, parse_endpoint
from llmendpoint_gateway.core.endpoint.view import Kind, Part, View, change_view
from llmendpoint_gateway.core.placement.adapters import holding
from llmendpoint_gateway.core.placement.pick import Picked
from llmendpoint_gateway.core.placement.routing import Route, Target
from llmendpoint_gateway.core.request.refusals import Rejected
from llmendpoint_gateway.serve.parts import Parts

A, B = ADDRESSES
ADAPTED = replace(CHAT, adapters=frozenset({"sql", "legal"}))


async def ready(endpoint: Endpoint = ADAPTED, **has: str) -> Parts:
    """A picker that routes to two replicas; `has`: the adapters of a and of b, with spaces between."""
    parts = parts_of(Holding(), hold_seconds=5.0)
    parts.control.relisted(Kind.ENDPOINT, {endpoint.key: endpoint})
    parts.control.relisted(Kind.SLICE, {"a/chat-1": REPLICAS})
    await turn()
    for address, names in zip(ADDRESSES, (has.get("a", ""), has.get("b", "")), strict=True):
        tell(parts, address, *names.split())
    return parts


def tell(parts: Parts, address: str, *adapters: str, running: int = 0) -> None:
    """What the replica says in its /load."""
    parts.placement.note_load(address, Load(running, 0, 0.0, 8, 0, frozenset(adapters)), 0.0)


def first(parts: Parts, name: str, count: int = 8) -> Counter[str]:
    """The replicas that so many requests get."""
    found: Counter[str] = Counter()
    for _ in range(count):
        decision = parts.placement.place(name, 0.0)
        assert isinstance(decision, Picked), decision
        found[decision.addresses[0]] += 1
    return found


def refused(parts: Parts, name: str) -> Rejected:
    decision = parts.placement.place(name, 0.0)
    assert isinstance(decision, Rejected), decision
    return decision


async def test_a_request_for_an_adapter_goes_only_to_replicas_that_have_it() -> None:
    parts = await ready(a="sql", b="legal")
    for base in ("chat", "a/chat"):
        assert set(first(parts, f"{base}:sql")) == {A}
        assert set(first(parts, f"{base}:legal")) == {B}
        assert set(first(parts, base)) == {A, B}
    decision = parts.placement.place("chat:sql", 0.0)
    assert isinstance(decision, Picked)
    assert decision.addresses == (A,), "its retry goes to no replica without it"


async def test_an_adapter_that_is_in_no_spec_is_no_model() -> None:
    parts = await ready(a="sql other", b="sql")
    for name in ("chat:other", "chat:", "chat:sql:sql", "nobody:sql", ":sql", "sql"):
        found = refused(parts, name)
        assert (found.status, found.code, found.awaited) == (404, "model_not_found", None), name


async def test_a_name_with_a_colon_that_an_endpoint_claims_keeps_its_meaning() -> None:
    claims = replace(
        ADAPTED, name="other", served_names=("chat:sql", "llama:8b"), adapters=frozenset({"sql"})
    )
    parts = await ready(a="sql", b="sql")
    parts.control.applied(Kind.ENDPOINT, claims.key, claims)
    await turn()
    table = parts.placement.table
    assert table.names["chat:sql"] == "a/other"
    assert refused(parts, "chat:sql").code == "no_ready_replica", "it is the other endpoint's"
    assert set(first(parts, "a/chat:sql")) == {A, B}
    assert refused(parts, "llama:8b:sql").code == "no_ready_replica", "the adapter of that endpoint"
    assert refused(parts, "llama:8b:legal").code == "model_not_found"


async def test_without_a_replica_that_has_it_a_request_waits_and_then_gets_503_with_retry_after() -> None:
    parts = await ready()
    found = refused(parts, "chat:sql")
    assert (found.status, found.code, found.awaited) == (503, "adapter_not_loaded", "a/chat")
    assert found.retry_after
    assert "`sql`" in found.message
    assert "AdaptersReady" in found.message


async def test_nobody_waits_for_an_adapter_that_no_replica_could_load() -> None:
    parts = await ready(replace(ADAPTED, missing=frozenset({"sql"})))
    assert refused(parts, "chat:sql").awaited is None
    assert refused(parts, "chat:legal").awaited == "a/chat"


async def test_what_waits_for_an_adapter_holds_up_no_other_request() -> None:
    """Neither those without an adapter, nor those for another one."""
    parts = await ready(b="legal")
    answered: list[str] = []
    for name in ("chat:sql", "chat:legal", "chat", "chat:sql"):
        none = Rejected(503, "queue_timeout", "", awaited="a/chat")
        assert parts.held.hold(Played(name, answered), request_of(), name, none)  # type: ignore[arg-type]
    parts.held.retry("a/chat")
    assert answered == ["chat:legal", "chat"]
    tell(parts, A, "sql")
    parts.held.retry("a/chat")
    assert answered == ["chat:legal", "chat", "chat:sql", "chat:sql"]
    assert parts.held.waiting.count("a/chat") == 0


class Played:
    """A stream of Envoy's; it notes that its request got an answer."""

    def __init__(self, name: str, answered: list[str]) -> None:
        self.name, self.answered, self.state, self.sent = name, answered, None, 0

    def send(self, _: bytes) -> None:
        self.sent += 1
        if self.sent > 1:  # the first tells Envoy to wait
            self.answered.append(self.name)


async def test_a_rollback_target_takes_the_requests_while_the_new_revision_lacks_the_adapter() -> None:
    green, blue = Target("r2", "a/chat/r2", (A,)), Target("r1", "a/chat/r1", (B,))
    route = Route(Assignment(2, (("r2", 100),)), (green,), (blue,), blue)

    def holds(address: str, _: str) -> bool:
        return address == B

    found = holding(route, "sql", holds)
    assert (found.targets, found.standby) == ((), blue)
    assert holding(route, "sql", lambda *_: True) == route


async def test_replicas_without_the_adapter_keep_the_endpoints_breaker_closed() -> None:
    """The breaker opens when all replicas are ejected, not when all are that have one adapter."""
    parts = await ready(a="sql")
    for _ in range(10):
        parts.outcomes.settle(replace(UNREACHABLE, over=True))
    assert A in parts.placement.breakers.ejected
    parts.placement.place("chat:sql", 0.0)
    assert not parts.placement.circuits.open
    assert set(first(parts, "chat")) == {B}


async def test_counts_are_kept_for_what_a_spec_names_and_for_nothing_else() -> None:
    parts = await ready(a="sql", b="sql")
    for name in ("chat:sql", "chat:sql", "chat", "chat:unknown"):
        decision = parts.placement.place(name, 0.0)
        if isinstance(decision, Picked):
            parts.placement.take(decision, request_of(), 0.0)
    assert parts.placement.adapters.requests == {("a/chat", "sql"): 2}
    parts.control.applied(Kind.ENDPOINT, "a/chat", replace(CHAT, adapters=frozenset({"legal"})))
    await turn()
    assert not parts.placement.adapters.requests


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("sql", "a/chat:sql"),
        ("chat:sql", "a/chat:sql"),
        ("a/chat:legal", "a/chat:legal"),
        ("chat", "a/chat"),
        ("", "a/chat"),
        ("other:sql", "a/chat"),
        ("chat:other", "a/chat"),
    ],
)
def test_where_the_path_names_the_endpoint_the_body_names_the_adapter(model: str, name: str) -> None:
    assert str(view_of(ADAPTED).with_adapter("a/chat", model)) == name


async def test_a_path_means_its_endpoint_also_if_another_one_claims_its_name_with_the_adapter() -> None:
    parts = parts_of(Holding())
    thief = replace(CHAT, namespace="b", served_names=("a/chat:sql", "chat:sql"))
    parts.control.relisted(Kind.ENDPOINT, {"a/chat": ADAPTED, "b/chat": thief})
    parts.control.relisted(Kind.SLICE, {})
    await turn()
    caller = Caller()
    caller.asks(parts.picker, b'{"model": "sql"}', path="/a/chat/v1/chat/completions")
    assert b"b/chat" not in caller.replies[-1].SerializeToString()
    assert b"a/chat" in caller.replies[-1].SerializeToString()


def view_of(*endpoints: Endpoint) -> View:
    return change_view(View(), {endpoint.key: Part(endpoint) for endpoint in endpoints})


def test_the_list_of_models_has_the_adapters_and_changes_with_them() -> None:
    view = view_of(ADAPTED)
    listed: dict[str, dict[str, Any]] = {item["id"]: item for item in model_list(view)["data"]}
    assert list(listed) == ["a/chat", "a/chat:legal", "a/chat:sql", "chat", "chat:legal", "chat:sql"]
    assert listed["chat:sql"]["parent"] == "chat"
    assert "parent" not in listed["chat"]
    assert one_model("chat:sql", view) == listed["chat:sql"]
    assert isinstance(one_model("chat:other", view), Rejected)
    assert isinstance(one_model("other:sql", view), Rejected)
    several = view_of(replace(ADAPTED, served_names=("chat", "other")))
    assert "other:sql" not in {item["id"] for item in model_list(several)["data"]}, "it would be a long list"
    assert one_model("other:sql", several) == {**listed["chat:sql"], "id": "other:sql", "parent": "other"}
    fewer = change_view(view, {"a/chat": Part(CHAT)})
    assert fewer.names is not view.names, "a list that is kept is made anew"
    assert [item["id"] for item in model_list(fewer)["data"]] == ["a/chat", "chat"]


def test_a_name_for_an_adapter_passes_declared_paths_like_its_endpoint() -> None:
    view = view_of(replace(ADAPTED, paths=frozenset({"/tokenize"})))
    assert view.takes("chat:sql", "/tokenize")
    assert not view.takes("chat:sql", "/pooling")


def test_adapters_of_a_spec_and_of_a_status_are_read_and_nonsense_is_left_out() -> None:
    metadata = {"namespace": "a", "name": "chat", "creationTimestamp": "2026-01-01T00:00:00Z"}
    told = [
        {"name": "sql", "readyReplicas": 0, "message": "no"},
        {"name": "legal", "readyReplicas": 1, "message": "no"},
        {"name": "new", "readyReplicas": 0},
        "nonsense",
        {"name": 7},
    ]
    spec = {"adapters": [{"name": "sql"}, {"name": "legal"}, None, {"source": "x"}]}
    found = parse_endpoint({"metadata": metadata, "spec": spec, "status": {"adapters": told}})
    assert (found.adapters, found.missing) == ({"sql", "legal"}, {"sql"})
    for nonsense in ("sql", 7, {"sql": 1}, None):
        body = {"metadata": metadata, "spec": {"adapters": nonsense}, "status": {"adapters": nonsense}}
        assert parse_endpoint(body).adapters == frozenset()


NAMES = st.text("ab:", max_size=5)


@given(NAMES, st.sets(NAMES))
def test_a_known_name_names_no_adapter_and_any_other_one_at_most_its_last_part(
    name: str, known: set[str]
) -> None:
    base, adapter = split_adapter(name, known.__contains__)
    if name in known:
        assert (base, adapter) == (name, "")
    else:
        assert name in (base, f"{base}:{adapter}")
        assert ":" not in adapter
        assert not adapter or base in known


async def test_a_request_for_a_deleted_endpoints_adapter_waits_as_one_for_the_endpoint_does() -> None:
    parts = await ready(a="sql")
    parts.control.deleted(Kind.ENDPOINT, "a/chat")
    await turn()
    assert refused(parts, "chat:sql").awaited == "a/chat"
    await asyncio.sleep(0)
