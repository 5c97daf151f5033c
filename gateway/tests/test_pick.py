"""The decision for one request."""

from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_gateway.core.in_flight import InFlight
from llmendpoint_gateway.core.pick import MOST_REPLICAS, Picked, Rejected, least_loaded, pick
from llmendpoint_gateway.core.routing import Table, Target

A, B, C = (f"10.0.0.{n}:8000" for n in (1, 2, 3))
CLUSTER = "a/chat/r1"
TABLE = Table(
    {"chat": "a/chat", "a/chat": "a/chat", "b": "a/b"}, {"a/chat": Target("r1", CLUSTER, (A, B, C))}
)


def picked(
    load: dict[str, int] | None = None, suspects: frozenset[str] = frozenset(), tie: int = 0
) -> tuple[str, ...]:
    decision = pick("chat", TABLE, {CLUSTER: load or {}}, suspects, tie)
    assert isinstance(decision, Picked)
    assert (decision.endpoint, decision.cluster) == ("a/chat", CLUSTER)
    return decision.addresses


def test_the_replica_with_the_fewest_requests_in_flight_comes_first_and_the_next_takes_the_retry() -> None:
    assert picked({A: 3, B: 1, C: 2}) == (B, C)
    assert picked({A: 1}) == (B, C)


def test_equals_take_turns() -> None:
    assert [picked(tie=n)[0] for n in range(4)] == [A, B, C, A]
    assert [picked({A: 5}, tie=n)[0] for n in range(3)] == [B, B, C]


def test_a_suspect_is_left_out_unless_all_are() -> None:
    assert picked(suspects=frozenset({A})) == (B, C)
    assert picked(suspects=frozenset({A, C})) == (B,)
    assert set(picked(suspects=frozenset({A, B, C}))) <= {A, B, C}


def test_an_unknown_model_is_404_and_names_it_in_bounded_length() -> None:
    decision = pick("gpt-5" * 1000, TABLE, {}, (), 0)
    assert isinstance(decision, Rejected)
    assert (decision.status, decision.code, decision.param) == (404, "model_not_found", "model")
    assert decision.retry_after is None
    assert "gpt-5" in decision.message
    assert len(decision.message) < 400


def test_an_endpoint_without_a_routable_replica_is_503_with_retry_after() -> None:
    decision = pick("b", TABLE, {}, (), 0)
    assert isinstance(decision, Rejected)
    assert (decision.status, decision.code) == (503, "no_ready_replica")
    assert decision.retry_after


@given(
    st.integers(1, 8).flatmap(
        lambda n: st.tuples(
            st.just(n), st.lists(st.integers(0, 5), min_size=n, max_size=n), st.integers(0, 1 << 40)
        )
    )
)
def test_nothing_not_picked_is_less_loaded_than_what_is(case: tuple[int, list[int], int]) -> None:
    n, counts, tie = case
    addresses = tuple(f"10.0.0.{i}:8000" for i in range(n))
    load = {a: c for a, c in zip(addresses, counts, strict=True) if c}
    chosen = least_loaded(addresses, load, tie)
    loads = [load.get(a, 0) for a in chosen]
    assert len(set(chosen)) == len(chosen) == min(n, MOST_REPLICAS)
    assert loads == sorted(counts)[: len(chosen)]


@given(st.lists(st.tuples(st.sampled_from(["r1", "r2"]), st.sampled_from([A, B])), max_size=30), st.randoms())
def test_counts_return_to_nothing_whatever_order_requests_end_in(
    taken: list[tuple[str, str]], shuffle
) -> None:  # type: ignore[no-untyped-def]
    counts = InFlight()
    for cluster, address in taken:
        counts.take(cluster, address)
    assert counts.busy() == {cluster for cluster, _ in taken}
    ended = list(taken)
    shuffle.shuffle(ended)
    for n, (cluster, address) in enumerate(ended):
        last = counts.release(cluster, address)
        assert last == (cluster not in {c for c, _ in ended[n + 1 :]})
    assert counts.counts == {}
