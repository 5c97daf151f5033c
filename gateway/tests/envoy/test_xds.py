"""docs/concepts/architecture.md: the picker is Envoy's configuration server; a model of Envoy checks each stream."""

from collections import deque
from collections.abc import Hashable

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llmendpoint_gateway.core.envoy.xds import CLUSTER, ENDPOINTS, Request, Response, Subscription, Versions


def versions(clusters: dict[str, tuple[int, int]]) -> Versions:
    """name -> (version of the cluster, version of its endpoints)."""
    return {
        CLUSTER: {name: cluster for name, (cluster, _) in clusters.items()},
        ENDPOINTS: {name: endpoints for name, (_, endpoints) in clusters.items()},
    }


class ModelEnvoy:
    """Envoy as far as this protocol goes: a new or changed cluster warms until endpoints arrive for it."""

    def __init__(self) -> None:
        self.clusters: dict[str, Hashable] = {}
        self.endpoints: dict[str, Hashable] = {}
        self.warming: set[str] = set()
        self.nonces: dict[str, str] = {}
        self.answered = False

    def hello(self) -> list[Request]:
        """The first requests of a stream, with the names that it kept over a reconnect."""
        self.nonces = {}
        first = [Request(CLUSTER)]
        return [*first, Request(ENDPOINTS, frozenset(self.clusters))] if self.clusters else first

    def take(self, response: Response, sent: dict[str, Hashable]) -> list[Request]:
        self.nonces[response.type_url] = response.nonce
        if response.type_url == ENDPOINTS:
            for name, version in sent.items():
                if name in self.clusters:
                    self.endpoints[name] = version
                    self.warming.discard(name)
            return [Request(ENDPOINTS, frozenset(self.clusters), response.nonce)]
        self.answered = True
        before = set(self.clusters)
        self.warming |= {name for name, version in sent.items() if self.clusters.get(name) != version}
        self.warming &= set(sent)
        self.clusters = dict(sent)
        self.endpoints = {name: v for name, v in self.endpoints.items() if name in sent}
        ack = Request(CLUSTER, frozenset(), response.nonce)
        if before == set(sent):
            return [ack]
        return [ack, Request(ENDPOINTS, frozenset(sent), self.nonces.get(ENDPOINTS, ""))]


class Stream(RuleBasedStateMachine):
    """Publishes, deliveries and reconnects in any order; messages on each way keep theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.envoy = ModelEnvoy()
        self.now: Versions | None = None
        self.delivered: dict[str, set[Hashable]] = {}
        self.connect()

    def connect(self) -> None:
        self.subscription = Subscription()
        self.contents: dict[str, Versions] = {}
        if self.now is not None:
            self.subscription.publish(self.now)
        self.to_server: deque[Request] = deque(self.envoy.hello())
        self.to_envoy: deque[tuple[Response, dict[str, Hashable]]] = deque()

    def send(self, responses: list[Response]) -> None:
        for response in responses:
            assert self.now is not None
            known = self.now[response.type_url]
            self.to_envoy.append((response, {name: known[name] for name in response.names}))

    @rule(clusters=st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(0, 1), st.integers(0, 3))))
    def publish(self, clusters: dict[str, tuple[int, int]]) -> None:
        self.now = versions(clusters)
        self.send(self.subscription.publish(self.now))

    @precondition(lambda self: self.to_server)
    @rule()
    def server_reads(self) -> None:
        self.send(self.subscription.receive(self.to_server.popleft()))

    @precondition(lambda self: self.to_envoy)
    @rule()
    def envoy_reads(self) -> None:
        response, sent = self.to_envoy.popleft()
        if response.type_url == ENDPOINTS:
            for name, version in sent.items():
                self.delivered.setdefault(name, set()).add(version)
        self.to_server.extend(self.envoy.take(response, sent))

    @rule()
    def reconnect(self) -> None:
        self.connect()

    @rule()
    def all_is_delivered(self) -> None:
        for _ in range(200):
            if self.to_envoy:
                self.envoy_reads()
            elif self.to_server:
                self.server_reads()
            else:
                break
        else:
            raise AssertionError("the two never come to rest")
        if self.now is not None:
            assert self.envoy.clusters == self.now[CLUSTER]
            assert self.envoy.endpoints == self.now[ENDPOINTS]
            assert not self.envoy.warming
            assert self.subscription.holds(self.now)

    @invariant()
    def nothing_is_answered_before_there_is_a_state(self) -> None:
        assert self.now is not None or not self.to_envoy

    @invariant()
    def what_counts_as_acknowledged_was_delivered(self) -> None:
        for name, version in self.subscription.acknowledged(ENDPOINTS).items():
            assert version in self.delivered[name]


TestStream = Stream.TestCase
TestStream.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def connected(now: Versions) -> Subscription:
    """A stream on which Envoy has acknowledged all of `now`."""
    stream, envoy = Subscription(), ModelEnvoy()
    stream.publish(now)
    queue = deque(envoy.hello())
    while queue:
        for response in stream.receive(queue.popleft()):
            known = now[response.type_url]
            queue.extend(envoy.take(response, {name: known[name] for name in response.names}))
    assert stream.holds(now)
    return stream


def test_trap_4_a_restarted_picker_says_nothing_until_it_knows_the_state() -> None:
    stream = Subscription()
    assert stream.receive(Request(CLUSTER)) == []
    assert stream.receive(Request(ENDPOINTS, frozenset({"a"}))) == []
    sent = stream.publish(versions({"a": (0, 0)}))
    assert [(r.type_url, r.names) for r in sent] == [(CLUSTER, ("a",)), (ENDPOINTS, ("a",))]


def test_an_empty_state_is_a_state_and_envoy_is_told_so_once() -> None:
    stream = Subscription()
    stream.publish(versions({}))
    (response,) = stream.receive(Request(CLUSTER))
    assert (response.type_url, response.names) == (CLUSTER, ())
    assert stream.receive(Request(CLUSTER, frozenset(), response.nonce)) == []
    assert stream.holds(versions({}))


def test_trap_4_a_changed_cluster_gets_its_unchanged_endpoints_again() -> None:
    stream = connected(versions({"a": (0, 7), "b": (0, 7)}))
    sent = stream.publish(versions({"a": (1, 7), "b": (0, 7)}))
    assert [(r.type_url, r.names) for r in sent] == [(CLUSTER, ("a", "b")), (ENDPOINTS, ("a",))]


def test_changed_endpoints_travel_alone() -> None:
    stream = connected(versions({"a": (0, 0), "b": (0, 0)}))
    sent = stream.publish(versions({"a": (0, 0), "b": (0, 1)}))
    assert [(r.type_url, r.names) for r in sent] == [(ENDPOINTS, ("b",))]


def test_the_same_state_again_sends_nothing() -> None:
    now = versions({"a": (0, 0)})
    assert connected(now).publish(now) == []


def test_a_refusal_keeps_what_was_acknowledged_and_is_not_sent_again() -> None:
    stream = connected(versions({"a": (0, 0)}))
    (response,) = stream.publish(versions({"a": (0, 1)}))
    refusal = Request(ENDPOINTS, frozenset({"a"}), response.nonce, error="bad address")
    assert stream.receive(refusal) == []
    assert stream.nack == "bad address"
    assert stream.acknowledged(ENDPOINTS) == {"a": 0}
    assert not stream.holds(versions({"a": (0, 1)}))
    (response,) = stream.publish(versions({"a": (0, 2)}))
    stream.receive(Request(ENDPOINTS, frozenset({"a"}), response.nonce))
    assert stream.nack is None
    assert stream.holds(versions({"a": (0, 2)}))


@given(st.text(max_size=20))
def test_unknown_types_and_nonces_are_ignored(text: str) -> None:
    now = versions({"a": (0, 0)})
    stream = connected(now)
    assert stream.receive(Request(f"x{text}", frozenset({"a"}), text)) == []
    assert stream.receive(Request(ENDPOINTS, frozenset({"a"}), f"x{text}")) == []
    assert stream.holds(now)
