"""docs/concepts/identity.md: to a caller, the cluster has only the endpoints that it may use."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.tests.keys import key_text, llm_key
from llmendpoint_gateway.core.endpoint.departed import GRACE_SECONDS
from llmendpoint_gateway.core.endpoint.model_objects import model_list, one_model
from llmendpoint_gateway.core.endpoint.names import Meant, split_adapter
from llmendpoint_gateway.core.endpoint.objects import Endpoint, parse_endpoint
from llmendpoint_gateway.core.endpoint.permits import MOST_CALLERS, MOST_NAMES_OF_ONE, Permits
from llmendpoint_gateway.core.endpoint.view import Part, View, change_view
from llmendpoint_gateway.core.identity.credentials import proof_of
from llmendpoint_gateway.core.identity.grants import ANONYMOUS, Identity
from llmendpoint_gateway.core.identity.key_objects import parse_key
from llmendpoint_gateway.core.identity.keys import Keys
from llmendpoint_gateway.serve.request.models import ModelLists


def body_of(message: bytes) -> Any:
    return json.loads(pb.ProcessingResponse.FromString(message).immediate_response.body)


CHAT = Endpoint("a", "chat", "2026-01-01T00:00:00Z", ("chat",), "r1")


class World:
    """A view, and the permits that follow it."""

    def __init__(self) -> None:
        self.view, self.permits, self.now, self.keys = View(), Permits(), 0.0, Keys()

    def put(self, *endpoints: Endpoint) -> None:
        self._change({endpoint.key: Part(endpoint) for endpoint in endpoints})

    def delete(self, key: str) -> None:
        self._change({key: Part()})

    def _change(self, parts: dict[str, Part]) -> None:
        self.view = change_view(self.view, parts)
        self.permits.follow(self.view, list(parts), self.now)

    def who(self, *grants: dict[str, Any], namespace: str = "a", name: str = "ci") -> Identity:
        text = key_text()
        self.keys.put(parse_key(llm_key(text, name, namespace, grants=list(grants))))
        found = self.keys.judge(proof_of(text.encode()), 0)
        assert isinstance(found, Identity)
        return found

    def means(self, name: str, who: Identity) -> str | None:
        meant = self.permits.meaning(name, who, self.now)
        return None if meant is None else str(meant)


def test_a_bare_name_means_the_oldest_of_those_that_the_caller_may_use() -> None:
    world = World()
    world.put(CHAT, replace(CHAT, namespace="b", created="2025-01-01T00:00:00Z"))
    assert world.view.names["chat"] == "b/chat"
    assert world.means("chat", world.who({})) == "a/chat"
    assert world.means("b/chat", world.who({})) is None


def test_a_key_of_another_namespace_needs_the_grant_and_the_access() -> None:
    world = World()
    granted, without = world.who({"namespace": "b"}), world.who({}, name="other")
    endpoint = replace(CHAT, namespace="b")
    for access, allowed in ((None, False), ({"x"}, False), (set(), False), ({"x", "a"}, True), ({"*"}, True)):
        world.put(replace(endpoint, access=None if access is None else frozenset(access)))
        assert (world.means("chat", granted) == "b/chat") is allowed
        assert world.means("chat", without) is None


def test_a_grant_may_name_an_endpoint_or_its_labels() -> None:
    world = World()
    world.put(
        CHAT,
        replace(CHAT, name="gold", served_names=("gold",), labels=frozenset({("tier", "gold"), ("x", "y")})),
    )
    by_name, by_label = world.who({"name": "chat"}), world.who({"matchLabels": {"tier": "gold"}}, name="b")
    assert [world.means(name, by_name) for name in ("chat", "gold")] == ["a/chat", None]
    assert [world.means(name, by_label) for name in ("chat", "gold")] == [None, "a/gold"]
    nothing = world.who(name="c")
    assert [world.means(name, nothing) for name in ("chat", "gold", "a/chat")] == [None, None, None]


def test_a_caller_without_a_key_may_use_what_sets_no_access() -> None:
    world = World()
    world.put(CHAT)
    assert world.means("chat", ANONYMOUS) == "a/chat"
    world.put(replace(CHAT, access=frozenset()))
    assert world.means("chat", ANONYMOUS) is None


def test_an_adapter_is_that_of_an_endpoint_that_the_caller_may_use() -> None:
    world = World()
    world.put(
        replace(CHAT, adapters=frozenset({"sql"})), replace(CHAT, namespace="b", served_names=("a/chat:sql",))
    )
    who = world.who({})
    assert (
        world.permits.meaning("chat:sql", who, 0)
        == world.permits.meaning("a/chat:sql", who, 0)
        == Meant("a/chat", "sql")
    )
    assert world.permits.meaning("b/chat:sql", who, 0) is None


def test_a_deleted_endpoint_keeps_its_callers_for_some_seconds() -> None:
    world = World()
    world.put(CHAT, replace(CHAT, namespace="b", access=frozenset()))
    who, other = world.who({}), world.who({}, namespace="c", name="o")
    world.delete("a/chat")
    assert (world.means("chat", who), world.means("chat", other)) == ("a/chat", None)
    world.put(replace(CHAT, served_names=("new",)))
    assert (world.means("chat", who), world.means("new", who)) == (None, "a/chat")
    world.delete("a/chat")
    world.now += GRACE_SECONDS
    assert world.means("new", who) is None


def test_what_is_kept_for_callers_has_a_bound() -> None:
    world = World()
    world.put(*(replace(CHAT, name=f"e{n}", served_names=(f"e{n}",)) for n in range(2 * MOST_NAMES_OF_ONE)))
    for n in range(MOST_CALLERS + 10):
        world.means("e0", world.who({}, name=f"k{n}"))
    who = world.who({})
    for n in range(2 * MOST_NAMES_OF_ONE):
        assert world.means(f"e{n}", who) == f"a/e{n}"
        world.means(f"nobody{n}", who)
    assert len(world.permits._found) == MOST_CALLERS
    assert len(world.permits._found[who.key].names) <= MOST_NAMES_OF_ONE


NAMESPACES, NAMES, SERVED = ("a", "b", "c"), ("x", "y"), ("x", "y", "m", "a/x", "x:sql", "b/y:sql")
LABELS = st.dictionaries(st.sampled_from("st"), st.sampled_from("12"), max_size=2)
GRANTS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "namespace": st.sampled_from(NAMESPACES),
            "name": st.sampled_from(NAMES),
            "matchLabels": LABELS,
        },
    ),
    max_size=3,
)


class Permitting(RuleBasedStateMachine):
    """Permits and keys that change by the event, beside a model that makes each answer anew from the raw objects."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.endpoints: dict[str, dict[str, Any]] = {}
        self.bodies: dict[str, dict[str, Any]] = {}
        self.texts = {f"{namespace}/k{n}": key_text() for namespace in NAMESPACES for n in range(2)}

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        name=st.sampled_from(NAMES),
        second=st.integers(0, 3),
        served=st.lists(st.sampled_from(SERVED), max_size=2, unique=True),
        labels=LABELS,
        access=st.none() | st.lists(st.sampled_from([*NAMESPACES, "*"]), max_size=2),
        adapters=st.booleans(),
    )
    def put(
        self, namespace: str, name: str, second: int, served: Any, labels: Any, access: Any, adapters: bool
    ) -> None:
        body = {
            "metadata": {"namespace": namespace, "name": name, "labels": labels, "creationTimestamp": f"2026-01-01T00:00:0{second}Z"},
            "spec": {"model": {"servedNames": served}, "adapters": [{"name": "sql"}] if adapters else []},
        }  # fmt: skip
        if access is not None:
            body["spec"]["access"] = {"namespaces": access}
        self.endpoints[f"{namespace}/{name}"] = body
        self.world.put(parse_endpoint(body))

    @rule(namespace=st.sampled_from(NAMESPACES), name=st.sampled_from(NAMES))
    def delete(self, namespace: str, name: str) -> None:
        if self.endpoints.pop(f"{namespace}/{name}", None):
            self.world.delete(f"{namespace}/{name}")
            self.world.now += GRACE_SECONDS

    @rule(
        namespace=st.sampled_from(NAMESPACES), number=st.integers(0, 1), grants=GRANTS, disabled=st.booleans()
    )
    def key(self, namespace: str, number: int, grants: Any, disabled: bool) -> None:
        name = f"{namespace}/k{number}"
        self.bodies[name] = llm_key(
            self.texts[name], f"k{number}", namespace, grants=grants, disabled=disabled
        )
        self.world.keys.put(parse_key(self.bodies[name]))

    @rule(namespace=st.sampled_from(NAMESPACES), number=st.integers(0, 1))
    def revoke(self, namespace: str, number: int) -> None:
        self.bodies.pop(f"{namespace}/k{number}", None)
        self.world.keys.drop(f"{namespace}/k{number}")

    def allowed(self, namespace: str, grants: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for body in self.endpoints.values():
            metadata, access = body["metadata"], body["spec"].get("access", {}).get("namespaces", [])
            wanted = any(
                grant.get("namespace", namespace) == metadata["namespace"]
                and grant.get("name", metadata["name"]) == metadata["name"]
                and all(metadata["labels"].get(k) == v for k, v in grant.get("matchLabels", {}).items())
                for grant in grants
            )
            if wanted and (metadata["namespace"] == namespace or namespace in access or "*" in access):
                yield body

    def check(self, who: Identity, bodies: list[dict[str, Any]]) -> None:
        parsed = [parse_endpoint(body) for body in bodies]
        alone = change_view(View(), {endpoint.key: Part(endpoint) for endpoint in parsed})
        keys = [f"{namespace}/{name}" for namespace in NAMESPACES for name in NAMES]
        for base in {*SERVED, *keys}:
            for name in (base, f"{base}:sql", f"{base}:"):
                model, adapter = split_adapter(name, alone.names.__contains__)
                wanted = Meant(alone.names[model], adapter) if model in alone.names else None
                assert self.world.permits.meaning(name, who, self.world.now) == wanted, name
        assert {endpoint.key for endpoint in self.world.permits.endpoints(who)} == set(alone.endpoints)
        lists = ModelLists(self.world.permits)
        assert body_of(lists.answer(who)) == model_list(alone)
        for name in {*SERVED, *(f"{key}:sql" for key in keys)}:
            found, wanted_model = lists.one(name, who, self.world.now), one_model(name, alone)
            assert (body_of(found) if found else None) == (
                wanted_model if isinstance(wanted_model, dict) else None
            )

    @invariant()
    def every_answer_is_that_of_the_model(self) -> None:
        for name, text in self.texts.items():
            found, body = self.world.keys.judge(proof_of(text.encode()), 0), self.bodies.get(name)
            if body is None or body["spec"]["disabled"]:
                assert not isinstance(found, Identity)
            else:
                assert isinstance(found, Identity)
                self.check(found, list(self.allowed(name.split("/")[0], body["spec"]["grants"])))
        self.check(ANONYMOUS, [body for body in self.endpoints.values() if "access" not in body["spec"]])


TestPermitting = Permitting.TestCase
TestPermitting.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)
