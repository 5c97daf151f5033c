"""docs/concepts/gateway.md, "Where the prefix lies": what the gateway remembers of prompts is bounded, and never another pod's."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from gateway.tests.one_endpoint import CHAT
from gateway.tests.placement.engines import CLUSTER, endpoint_of, replica
from llmendpoint_gateway.core.endpoint.objects import Replica
from llmendpoint_gateway.core.endpoint.view import Part, View, change_view
from llmendpoint_gateway.core.placement import prefixes as module
from llmendpoint_gateway.core.placement.prefixes import Laid, Match, Prefixes
from llmendpoint_gateway.core.request.prompt import BLOCKS, Prompt, make_chain


def prompt_of(text: str, session: int = 0) -> Prompt:
    return Prompt(make_chain(text.encode(), 0), len(text), session=session)


class Known:
    """Prefixes of one endpoint, whose replicas are set."""

    def __init__(self, *replicas: Replica) -> None:
        self.prefixes, self.view = Prefixes(), View()
        self.be(*replicas)

    def be(self, *replicas: Replica) -> None:
        self.replicas = {r.address: r for r in replicas}
        view = change_view(self.view, {"a/chat": endpoint_of(*replicas)})
        self.prefixes.change(self.view, view, ["a/chat"])
        self.view = view

    def lay(self, text: str, number: int, adapter: str = "", session: int = 0) -> Laid:
        return self.prefixes.lay(CLUSTER, adapter, prompt_of(text, session), replica(number).address)

    def matches(self, text: str, adapter: str = "") -> list[tuple[int, set[str]]]:
        among = sum(self.prefixes.bits(CLUSTER).values())
        found = self.prefixes.matches(CLUSTER, adapter, prompt_of(text), among)
        return [(match.size, self.holders(match)) for match in found]

    def holders(self, match: Match) -> set[str]:
        return {a for a, bit in self.prefixes.bits(CLUSTER).items() if bit & match.bits}

    def of_session(self, session: int) -> set[str]:
        among = sum(self.prefixes.bits(CLUSTER).values())
        bits = self.prefixes.of_session(CLUSTER, "", prompt_of("", session), among)
        return self.holders(Match(0, bits, 0.0))


A, B, C = (replica(n).address for n in (1, 2, 3))


def test_the_longest_match_comes_first_and_shorter_ones_only_for_replicas_that_have_no_longer_one() -> None:
    known = Known(*(replica(n) for n in (1, 2, 3)))
    known.lay("x" * 600, 1)
    known.lay("x" * 3000, 2)
    known.lay("x" * 400 + "y" * 3000, 3)
    assert known.matches("x" * 5000) == [(2896, {B}), (512, {A, B}), (362, {A, B, C})]
    assert known.matches("x" * 300) == [(256, {A, B, C})]
    assert known.matches("x" * 200) == []
    assert known.matches("z" * 5000) == []


def test_a_prompt_for_an_adapter_is_another_one() -> None:
    known = Known(replica(1))
    known.lay("x" * 1000, 1, adapter="sql")
    assert known.matches("x" * 1000) == []
    assert known.matches("x" * 1000, adapter="sql") == [(724, {A})]


def test_what_was_laid_is_told_with_where_more_of_it_is() -> None:
    known = Known(replica(1), replica(2))
    assert known.lay("x" * 1000, 1) == (0, False)
    assert known.lay("x" * 2000, 1) == (724, False)
    assert known.lay("x" * 2000, 2) == (0, True)
    assert known.lay("x" * 2000, 2) == (1448, False)
    assert known.lay("x" * 2000, 9) == (0, True)  # a replica that is not known


@pytest.mark.parametrize(
    "away",
    [(), (replica(1, ready=False), replica(2)), (replica(1, "another"), replica(2))],
    ids=["deleted", "not ready", "another pod at the address"],
)
def test_a_replica_that_was_away_begins_with_nothing(away: tuple[Replica, ...]) -> None:
    known = Known(replica(1), replica(2))
    known.lay("x" * 1000, 1, session=5)
    assert (known.matches("x" * 1000), known.of_session(5)) == ([(724, {A})], {A})
    known.be(*away)
    assert known.matches("x" * 1000) == []
    known.be(replica(1), replica(2))
    assert (known.matches("x" * 1000), known.of_session(5)) == ([], set())


def test_a_session_is_where_its_last_prompt_went() -> None:
    known = Known(replica(1), replica(2))
    known.lay("", 1, session=7)
    assert known.of_session(7) == {A}
    known.lay("", 2, session=7)
    assert known.of_session(7) == {B}
    assert known.of_session(8) == set()


def test_a_session_that_moves_is_nowhere_else_also_after_a_change_of_generations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_LINKS", 4)
    known = Known(replica(1), replica(2))
    moved = 0
    for n in range(200):
        at, then = (1, 2) if n % 2 else (2, 1)
        known.lay("", at, session=7)
        for other in range(30):
            known.lay("", at, session=100 + other + n)
        before = known.of_session(7)
        known.lay("", then, session=7)
        assert known.of_session(7) == {replica(then).address}
        moved += len(before)
    assert moved > 0  # some were still known


def test_no_number_is_given_to_a_second_pod_however_often_pods_come_and_go() -> None:
    known = Known(replica(1), replica(2))
    for n in range(3 * module.MOST_BITS):
        known.lay("x" * 300, 2)
        known.be(replica(1), replica(2, f"pod-{n}"))
        assert known.matches("x" * 300) == []
        known.lay("y" * 300, 1)
        assert known.matches("y" * 300) == [(256, {A})]


def test_of_a_cluster_with_too_many_replicas_some_are_remembered_and_others_take_their_places() -> None:
    count = 2 * module.MOST_BITS
    known = Known(*(replica(n) for n in range(count)))
    known.lay("x" * 300, 0)
    known.lay("x" * 300, count - 1)
    assert known.matches("x" * 300) == [(256, {replica(0).address})]
    for gone in (module.MOST_BITS // 2, module.MOST_BITS):
        known.be(*(replica(n) for n in range(gone, count)))
    for n in range(module.MOST_BITS, count):
        known.lay("z" * 300, n)
    assert len(known.matches("z" * 300)[0][1]) == module.MOST_BITS


def test_what_is_used_again_and_again_stays_and_the_rest_is_forgotten_in_bounded_memory() -> None:
    known = Known(replica(1))
    for n in range(25_000):
        known.lay("hot " * 300, 1)
        known.lay(f"{n} " * 3000, 1)
    most = 2 * module.SHARDS * module.MOST_LINKS
    assert most // 2 < len(known.prefixes) <= most
    assert known.matches("hot " * 300) == [(1024, {A})]
    assert known.matches("1 " * 3000) == []
    assert known.matches("24999 " * 3000) == [(16384, {A})]


class Several:
    """Prefixes of several endpoints with a replica each."""

    def __init__(self, count: int) -> None:
        self.prefixes, self.view = Prefixes(), View()
        self.be(count)

    def be(self, count: int) -> None:
        keys = {f"a/e{n}" for n in range(count)} | set(self.view.endpoints)
        one = {
            f"a/e{n}": Part(replace(CHAT, name=f"e{n}", served_names=(f"e{n}",)), {"r1": (replica(n),)})
            for n in range(count)
        }
        view = change_view(self.view, {key: one.get(key, Part(None, {})) for key in keys})
        self.prefixes.change(self.view, view, keys)
        self.view = view

    def lay(self, number: int, text: str) -> None:
        self.prefixes.lay(f"a/e{number}/r1", "", prompt_of(text), replica(number).address)

    def knows(self, number: int, text: str) -> bool:
        cluster = f"a/e{number}/r1"
        among = sum(self.prefixes.bits(cluster).values())
        return any(self.prefixes.matches(cluster, "", prompt_of(text), among))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """Links that there is room for."""
    monkeypatch.setattr(module, "MOST_LINKS", 128)
    monkeypatch.setattr(module, "MOST", 2 * module.SHARDS * 128)
    monkeypatch.setattr(module, "AT_ONCE", 64)
    return module.MOST


def test_a_flood_of_prompts_for_one_endpoint_costs_no_other_endpoint_what_it_knows(small: int) -> None:
    known = Several(50)
    for number in range(1, 50):
        known.lay(number, f"{number} " * 200)
    for n in range(3 * small):
        known.lay(0, f"{n} flood " * 300)
        assert len(known.prefixes) <= small
    assert all(known.knows(number, f"{number} " * 200) for number in range(1, 50))
    assert known.knows(0, f"{3 * small - 1} flood " * 300)
    assert not known.knows(0, "0 flood " * 300)


def test_many_endpoints_share_the_room_and_each_knows_its_latest_prompts(small: int) -> None:
    known = Several(100)
    for n in range(100 * 60):
        known.lay(n % 100, f"{n} " * 200)
        assert len(known.prefixes) <= small
    assert len(known.prefixes) > small // 2
    assert all(known.knows(n % 100, f"{n} " * 200) for n in range(100 * 58, 100 * 60))


def test_what_endpoints_knew_that_are_gone_is_forgotten_first(small: int) -> None:
    known = Several(3)
    for n in range(small):
        known.lay(n % 2, f"{n} " * 200)
    known.be(1)
    known.be(3)
    kept = [n for n in range(0, small, 2) if known.knows(0, f"{n} " * 200)]
    for n in range(small // 12):
        known.lay(2, f"{n} new " * 200)
        assert len(known.prefixes) <= small
    assert [n for n in kept if not known.knows(0, f"{n} " * 200)] == []
    assert not any(known.knows(1, f"{n} " * 200) for n in range(1, small, 2))


def test_endpoints_that_come_and_go_leave_nothing_behind() -> None:
    known = Several(2)
    for n in range(100):
        known.lay(1, f"{n} " * 200)
        known.be(1)
        for prompt in range(module.SHARDS):
            known.lay(0, f"{prompt} " * 200)
        known.be(2)
    assert not known.prefixes._gone
    known.be(1)
    for prompt in range(module.SHARDS):
        known.lay(0, f"{prompt} " * 200)
    assert len(known.prefixes) <= 8 * module.SHARDS, "those of one endpoint"


class Machine(RuleBasedStateMachine):
    """Pods come, go and are replaced while prompts are laid; the tables are so small that they overflow all the time."""

    texts = Bundle("texts")

    def __init__(self) -> None:
        super().__init__()
        self._patches = [(name, getattr(module, name)) for name in ("MOST_LINKS", "MOST_BITS")]
        module.MOST_LINKS, module.MOST_BITS = 4, 4
        self.known = Known()
        self.pods = 0
        self.laid: dict[str, set[str]] = {}  # pod -> texts

    def teardown(self) -> None:
        for name, value in self._patches:
            setattr(module, name, value)

    @rule(target=texts, repeats=st.lists(st.sampled_from([300, 700, 2000]), min_size=1, max_size=3))
    def text(self, repeats: list[int]) -> str:
        return "".join("abc"[n] * count for n, count in enumerate(repeats))

    @rule(number=st.integers(1, 3))
    def pod_comes(self, number: int) -> None:
        """A new one, at a free address or at another's."""
        self.pods += 1
        one = replica(number, f"pod-{self.pods}")
        self.known.be(*{**self.known.replicas, one.address: one}.values())

    @precondition(lambda self: self.known.replicas)
    @rule(number=st.integers(1, 3))
    def pod_goes(self, number: int) -> None:
        gone = replica(number).address
        self.known.be(*(r for a, r in self.known.replicas.items() if a != gone))

    @rule(number=st.integers(1, 3), ready=st.booleans())
    def readiness_changes(self, number: int, ready: bool) -> None:
        found = self.known.replicas.get(replica(number).address)
        if found is not None and found.ready != ready:
            self.laid.pop(found.pod, None)  # its container may be a new one
            changed = replica(number, found.pod, ready)
            self.known.be(*{**self.known.replicas, found.address: changed}.values())

    @rule(number=st.integers(1, 3), text=texts, session=st.integers(0, 2))
    def lay(self, number: int, text: str, session: int) -> None:
        self.known.lay(text, number, session=session)
        found = self.known.replicas.get(replica(number).address)
        if found is not None:
            self.laid.setdefault(found.pod, set()).update({text, f"session {session}"})

    @rule(text=texts)
    def match(self, text: str) -> None:
        seen: set[str] = set()
        sizes = [size for size, _ in self.known.matches(text)]
        assert sizes == sorted(set(sizes), reverse=True)
        for size, holders in self.known.matches(text):
            assert holders - seen
            seen |= holders
            for address in holders:
                one = self.known.replicas[address]
                assert one.routable
                assert any(t[:size] == text[:size] for t in self.laid.get(one.pod, ()))

    @rule(session=st.integers(1, 2))
    def session(self, session: int) -> None:
        assert len(self.known.of_session(session)) <= 1
        for address in self.known.of_session(session):
            assert f"session {session}" in self.laid[self.known.replicas[address].pod]

    @invariant()
    def bounded(self) -> None:
        assert len(self.known.prefixes) <= 2 * module.SHARDS * module.MOST_LINKS
        cluster = self.known.prefixes._clusters.get(CLUSTER)
        if cluster is not None:
            bits = list(cluster.bits.values())
            assert len(bits) == len(set(bits)) <= module.MOST_BITS
            assert all(bit < 1 << module.MOST_BITS for bit in bits)
            assert len(cluster.latest) <= 64 + 16 * 3


Machine.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestMachine = Machine.TestCase


def test_blocks_are_what_these_tests_count_by() -> None:
    assert list(BLOCKS[:8]) == [256, 362, 512, 724, 1024, 1448, 2048, 2896]
