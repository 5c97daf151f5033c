"""docs/concepts/architecture.md: the picker is Envoy's configuration server; a model of Envoy checks each stream."""

from collections import deque
from collections.abc import Hashable

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llmendpoint_gateway.core.envoy.xds import CLUSTER, ENDPOINTS, Request, Response, Subscription

State = dict[str, dict[str, Hashable]]
Contents = dict[str, Hashable]
REFUSED = 3  # a version of endpoints that this Envoy does not take


def versions(clusters: dict[str, tuple[int, int]]) -> State:
    """name -> (version of the cluster, version of its endpoints)."""
    return {CLUSTER: {name: cluster for name, (cluster, _) in clusters.items()}, ENDPOINTS: dict(clusters)}


def bad(version: Hashable) -> bool:
    assert isinstance(version, tuple)
    return bool(version[1] == REFUSED)


class ModelEnvoy:
    """Envoy as far as this protocol goes: a new or changed cluster warms until endpoints arrive for it. What it asks for
    is sent with the next request, so a cluster that goes and comes back meanwhile is only subscribed to again."""

    def __init__(self) -> None:
        self.clusters: Contents = {}
        self.endpoints: Contents = {}
        self.warming: set[str] = set()
        self.added: set[str] = set()
        self.dropped: set[str] = set()

    def hello(self) -> list[Request]:
        """The first requests of a stream, with what it kept over a reconnect."""
        self.added, self.dropped = set(), set()
        first = [Request(CLUSTER, held=dict(self.clusters))]
        if not self.clusters:
            return first
        return [*first, Request(ENDPOINTS, frozenset(self.clusters), held=dict(self.endpoints))]

    def take(self, response: Response, sent: Contents) -> list[Request]:
        if response.type_url == ENDPOINTS:
            if any(bad(version) for version in sent.values()):
                return [self.request(response.nonce, "bad address")]
            for name in sent.keys() & self.clusters.keys():
                self.endpoints[name] = sent[name]
                self.warming.discard(name)
            return [self.request(response.nonce)]
        for name, version in sent.items():
            if self.clusters.get(name) != version:
                self.warming.add(name)
            if name not in self.clusters:
                self.added.add(name)
                self.dropped.discard(name)
            self.clusters[name] = version
        for name in response.removed:
            del self.clusters[name]
            self.endpoints.pop(name, None)
            self.warming.discard(name)
            self.added.discard(name)
            self.dropped.add(name)
        return [Request(CLUSTER, nonce=response.nonce)]

    def request(self, nonce: str = "", error: str | None = None) -> Request:
        added, dropped = frozenset(self.added), frozenset(self.dropped)
        self.added, self.dropped = set(), set()
        return Request(ENDPOINTS, added, dropped, {}, nonce, error)

    def asks(self) -> list[Request]:
        return [self.request()] if self.added or self.dropped else []


class Stream(RuleBasedStateMachine):
    """Publishes, deliveries, reconnects and restarts in any order; messages on each way keep theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.envoy = ModelEnvoy()
        self.now: State = versions({})
        self.delivered: dict[str, set[Hashable]] = {}
        self.connect()

    def connect(self) -> None:
        self.subscription = Subscription(self.now)
        self.to_server: deque[Request] = deque(self.envoy.hello())
        self.to_envoy: deque[tuple[Response, Contents]] = deque()

    def send(self, responses: list[Response]) -> None:
        for response in responses:
            known = self.now[response.type_url]
            self.to_envoy.append((response, {name: known[name] for name in response.names}))

    @rule(clusters=st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(0, 1), st.integers(0, 3))))
    def publish(self, clusters: dict[str, tuple[int, int]]) -> None:
        after = versions(clusters)
        before = self.now[ENDPOINTS]
        changed = {n for n in {*before, *clusters} if before.get(n) != clusters.get(n)}
        for type_url, contents in self.now.items():
            contents.clear()
            contents.update(after[type_url])
        self.send(self.subscription.publish(changed))

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
    def envoy_asks(self) -> None:
        self.to_server.extend(self.envoy.asks())

    @rule()
    def reconnect(self) -> None:
        self.connect()

    @rule()
    def envoy_restarts(self) -> None:
        self.envoy = ModelEnvoy()
        self.connect()

    @rule()
    def all_is_delivered(self) -> None:
        for _ in range(300):
            if self.to_envoy:
                self.envoy_reads()
            elif self.to_server:
                self.server_reads()
            elif self.envoy.added or self.envoy.dropped:
                self.envoy_asks()
            else:
                break
        else:
            raise AssertionError("the two never come to rest")
        refused = {name for name, version in self.now[ENDPOINTS].items() if bad(version)}
        good = {name: version for name, version in self.now[ENDPOINTS].items() if name not in refused}
        assert self.envoy.clusters == self.now[CLUSTER]
        assert {name: v for name, v in self.envoy.endpoints.items() if name not in refused} == good
        assert self.envoy.warming <= refused
        assert (self.subscription.nack is None) is (not refused)
        assert self.subscription.holds() is (not refused)
        assert self.subscription.decided(), "what is refused is waited for no longer"
        assert self.subscription.acknowledged(ENDPOINTS) == self.envoy.endpoints

    @invariant()
    def what_counts_as_acknowledged_was_delivered(self) -> None:
        for name, version in self.subscription.acknowledged(ENDPOINTS).items():
            assert version in self.delivered[name]


TestStream = Stream.TestCase
TestStream.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)


def connected(now: State) -> Subscription:
    """A stream on which Envoy has acknowledged all of `now`."""
    stream, envoy = Subscription(now), ModelEnvoy()
    queue = deque(envoy.hello())
    while queue:
        for response in stream.receive(queue.popleft()):
            known = now[response.type_url]
            queue.extend(envoy.take(response, {name: known[name] for name in response.names}))
            queue.extend(envoy.asks())
    assert stream.holds()
    return stream


def change(stream: Subscription, now: State, **clusters: tuple[int, int]) -> list[Response]:
    for type_url, contents in versions(clusters).items():
        now[type_url].update(contents)
    return stream.publish(clusters)


def told(responses: list[Response]) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    return [(response.type_url, response.names, response.removed) for response in responses]


def test_an_empty_state_is_a_state_and_envoy_is_told_so_once() -> None:
    stream = Subscription(versions({}))
    (response,) = stream.receive(Request(CLUSTER))
    assert told([response]) == [(CLUSTER, (), ())]
    assert not stream.holds()
    assert stream.receive(Request(CLUSTER, nonce=response.nonce)) == []
    assert stream.holds()


def test_trap_4_a_changed_cluster_gets_endpoints_again() -> None:
    now = versions({"a": (0, 7), "b": (0, 7)})
    stream = connected(now)
    assert told(change(stream, now, a=(1, 7))) == [(CLUSTER, ("a",), ()), (ENDPOINTS, ("a",), ())]


def test_trap_4_a_cluster_that_envoy_asks_for_anew_gets_its_unchanged_endpoints_again() -> None:
    stream = connected(versions({"a": (0, 7), "b": (0, 7)}))
    (response,) = stream.receive(Request(ENDPOINTS, frozenset("a")))
    assert response.names == ("a",)
    assert stream.acknowledged(ENDPOINTS).keys() == {"b"}  # until it has them again, nothing goes there
    assert stream.take_changed() == {"a", "b"}
    assert not stream.holds()


def test_changed_endpoints_travel_alone() -> None:
    now = versions({"a": (0, 0), "b": (0, 0)})
    stream = connected(now)
    assert told(change(stream, now, b=(0, 1))) == [(ENDPOINTS, ("b",), ())]


def test_a_new_cluster_travels_alone_and_its_endpoints_once_envoy_asks_for_them() -> None:
    now = versions({"a": (0, 0)})
    stream = connected(now)
    assert told(change(stream, now, b=(0, 1))) == [(CLUSTER, ("b",), ())]
    assert told(stream.receive(Request(ENDPOINTS, frozenset("b")))) == [(ENDPOINTS, ("b",), ())]


def test_envoy_is_told_of_a_cluster_that_is_gone_and_its_replicas_count_as_gone_at_once() -> None:
    now = versions({"a": (0, 0), "b": (0, 0)})
    stream = connected(now)
    for contents in now.values():
        del contents["a"]
    (response,) = stream.publish(["a"])
    assert told([response]) == [(CLUSTER, (), ("a",))]
    assert stream.acknowledged(ENDPOINTS).keys() == {"b"}
    assert not stream.holds()
    stream.receive(Request(CLUSTER, nonce=response.nonce))
    assert stream.holds()


def test_an_acknowledgement_that_was_on_its_way_when_the_cluster_went_counts_for_nothing() -> None:
    now = versions({"a": (0, 0)})
    stream = connected(now)
    (before,) = change(stream, now, a=(0, 1))
    for contents in now.values():
        del contents["a"]
    stream.publish(["a"])
    stream.take_changed()
    stream.receive(Request(ENDPOINTS, nonce=before.nonce))
    assert stream.acknowledged(ENDPOINTS) == {}
    assert stream.take_changed() == set()


def test_the_same_state_again_sends_nothing() -> None:
    now = versions({"a": (0, 0)})
    assert change(connected(now), now, a=(0, 0)) == []


def test_after_a_reconnect_only_what_changed_meanwhile_is_sent() -> None:
    stream = Subscription(versions({"a": (0, 1), "b": (0, 1), "new": (0, 1)}))
    held: State = versions({"a": (0, 1), "b": (0, 0), "gone": (0, 1)})
    sent = stream.receive(Request(CLUSTER, held=held[CLUSTER]))
    assert told(sent) == [(CLUSTER, ("new",), ("gone",))]
    sent = stream.receive(Request(ENDPOINTS, frozenset(held[ENDPOINTS]), held=held[ENDPOINTS]))
    assert told(sent) == [(ENDPOINTS, ("b",), ())]
    assert stream.acknowledged(ENDPOINTS) == {"a": (0, 1), "b": (0, 0)}
    assert stream.take_changed() == {"a", "b"}


def test_an_envoy_that_has_everything_from_an_earlier_stream_is_sent_nothing() -> None:
    now = versions({"a": (0, 1)})
    stream = Subscription(now)
    assert stream.receive(Request(CLUSTER, held=dict(now[CLUSTER]))) == []
    assert stream.receive(Request(ENDPOINTS, frozenset("a"), held=dict(now[ENDPOINTS]))) == []
    assert stream.holds()


def test_a_refusal_keeps_what_was_acknowledged_and_is_not_sent_again() -> None:
    now = versions({"a": (0, 0)})
    stream = connected(now)
    (response,) = change(stream, now, a=(0, 1))
    assert stream.receive(Request(ENDPOINTS, nonce=response.nonce, error="bad address")) == []
    assert stream.nack == "bad address"
    assert stream.acknowledged(ENDPOINTS) == {"a": (0, 0)}
    assert not stream.holds()
    (response,) = change(stream, now, a=(0, 2))
    stream.receive(Request(ENDPOINTS, nonce=response.nonce))
    assert stream.nack is None
    assert stream.holds()


def test_one_bad_resource_keeps_none_of_those_that_were_sent_with_it_from_envoy() -> None:
    now = versions({"a": (0, 0), "b": (0, 0)})
    stream = connected(now)
    (response,) = change(stream, now, a=(0, 1), b=(0, REFUSED))
    one, other = stream.receive(Request(ENDPOINTS, nonce=response.nonce, error="bad address"))
    assert (one.names, other.names) == (("a",), ("b",))
    stream.receive(Request(ENDPOINTS, nonce=one.nonce))
    assert stream.receive(Request(ENDPOINTS, nonce=other.nonce, error="bad address")) == []
    assert stream.acknowledged(ENDPOINTS) == {"a": (0, 1), "b": (0, 0)}
    assert stream.nack == "bad address"


@given(st.text(max_size=20))
def test_unknown_types_and_nonces_are_ignored(text: str) -> None:
    stream = connected(versions({"a": (0, 0)}))
    assert stream.receive(Request(f"x{text}", frozenset({"a"}), nonce=text)) == []
    assert stream.receive(Request(ENDPOINTS, nonce=f"x{text}")) == []
    assert stream.holds()
