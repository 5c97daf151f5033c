"""docs/concepts/gateway.md, "Where the prefix lies": a prompt goes where its beginning lies, unless that replica is much busier."""

import random
from collections.abc import Iterator

import pytest

from gateway.tests.placement import engines
from gateway.tests.placement.engines import (
    CLUSTER,
    by_requests,
    by_us,
    follow,
    in_turn,
    placement_of,
    replica,
    request_of,
    run,
)
from llmendpoint_gateway.core.endpoint.loads import Load
from llmendpoint_gateway.core.outcome.attempt import Attempt, Ended, Outcome
from llmendpoint_gateway.core.placement.placement import Placed, Placement
from llmendpoint_gateway.core.placement.prompts import Found
from llmendpoint_gateway.core.placement.settle import settle

A, B, C, D = (replica(n).address for n in (1, 2, 3, 4))
LONG = "the same beginning of all prompts " * 100


def some(*tokens: int) -> Placement:
    """A placement with so many replicas, which report so many outstanding tokens."""
    placement = placement_of(*(replica(n + 1) for n in range(len(tokens))))
    report(placement, *tokens)
    return placement


def report(placement: Placement, *tokens: int) -> None:
    for n, count in enumerate(tokens):
        address = replica(n + 1).address
        placement.prompts.outstanding.ask(address)
        placement.note_load(address, Load(1, 0, 0.0, 256, count), 0.0)


def send(placement: Placement, text: str, session: int = 0) -> Placed:
    request = request_of(text, session=session)
    return placement.take(by_us(placement, request, 0.0), request, 0.0)


def ask(placement: Placement, text: str, session: int = 0) -> str:
    """Where a request goes that ends at once."""
    placed = send(placement, text, session)
    settle(Ended(placed.tag.ticket), placement, 0.0)
    return placed.address


def tenants(count: int, size: int = 4000) -> Iterator[str]:
    """Prompts of so many tenants, in random order: nine tenths of a prompt are its tenant's."""
    rolls = random.Random(1)
    own = ["".join(rolls.choices("abcdefgh ", k=size * 9 // 10)) for _ in range(count)]
    while True:
        yield rolls.choice(own) + "".join(rolls.choices("ijklmnop", k=size // 10))


def test_a_prompt_goes_where_its_beginning_lies_and_another_to_one_of_the_less_busy() -> None:
    placement = some(0, 0, 0, 0)
    first = ask(placement, LONG)
    assert {ask(placement, LONG + f"question {n}") for n in range(20)} == {first}
    others = [ask(placement, f"{n} other " * 200) for n in range(40)]
    assert {A, B, C, D} == set(others)
    report(placement, 900, 900, 0, 900)
    chosen = [ask(placement, f"{n} further " * 200) for n in range(200)]
    assert chosen.count(C) == pytest.approx(100, abs=20)  # in half of all pairs


def test_the_replica_may_be_behind_by_what_its_cache_saves_and_no_further() -> None:
    placement = some(0, 0)
    first = ask(placement, LONG)
    saved = 2896 // 4  # of the 3,400 bytes
    tokens = {A: (1000 + saved, 1000), B: (1000, 1000 + saved)}[first]
    report(placement, *tokens)
    assert ask(placement, LONG) == first
    report(placement, *(3 * count for count in tokens))
    assert ask(placement, LONG) == first  # 1.25 times the mean is allowed anyway
    report(placement, *(count if count == 1000 else 8000 for count in tokens))
    assert ask(placement, LONG) != first


def test_of_several_that_have_it_the_least_busy_gets_it_and_if_all_are_too_busy_one_with_less_of_it() -> None:
    placement = some(0, 0, 0, 0)
    for address in (A, B):
        lay(placement, LONG + "x" * 2000, address)
    lay(placement, LONG, C)
    report(placement, 500, 300, 0, 0)
    assert ask(placement, LONG + "x" * 2000) == B
    report(placement, 9000, 9000, 100, 0)
    assert ask(placement, LONG + "x" * 2000) == C
    report(placement, 9000, 9000, 9000, 0)
    assert ask(placement, LONG + "x" * 2000) != C or placement.prompts.outstanding.tokens[D] > 0


def lay(placement: Placement, text: str, address: str) -> None:
    prompt = request_of(text).prompt
    assert prompt is not None
    placement.prompts.prefixes.lay(CLUSTER, "", prompt, address)


def test_without_known_loads_requests_in_flight_count() -> None:
    placement = placement_of(*(replica(n) for n in (1, 2, 3, 4)))
    first = ask(placement, LONG)
    placed = [send(placement, LONG).address for _ in range(8)]
    assert placed[0] == placed[1] == first
    assert 2 <= placed.count(first) <= 4


def test_a_session_goes_on_where_it_was_if_its_prompt_lies_nowhere_else() -> None:
    placement = some(0, 0, 0, 0)
    home = {n: ask(placement, "hi", session=n) for n in range(1, 30)}
    assert set(home.values()) == {A, B, C, D}
    assert all(ask(placement, "and now?", session=n) == at for n, at in home.items())
    elsewhere = next(n for n, at in home.items() if at != A)
    lay(placement, LONG, A)
    assert ask(placement, LONG, session=elsewhere) == A


def test_replicas_without_room_and_ejected_ones_are_left_out_before_the_cache_counts() -> None:
    placement = some(0, 0, 0)
    first = ask(placement, LONG)
    placement.loads.limits[first] = 0
    second = ask(placement, LONG)
    assert second != first
    del placement.loads.limits[first]
    for address in (first, second):
        gone = Attempt(address, CLUSTER, Outcome.UNREACHABLE, trial=False, told=False, again=False)
        settle(gone, placement, 0.0)
    third = ask(placement, LONG)
    assert third not in (first, second)


def test_a_replica_that_was_ejected_gets_its_trial_whoever_has_the_prompt() -> None:
    placement = some(0, 0)
    first = ask(placement, LONG)
    other = B if first == A else A
    lost = Attempt(other, CLUSTER, Outcome.UNREACHABLE, trial=False, told=False, again=False)
    settle(lost, placement, 0.0)
    assert ask(placement, LONG) == first
    send(placement, LONG)
    request = request_of(LONG)
    picked = by_us(placement, request, 60.0)
    assert (picked.addresses[0], picked.trial) == (other, True)


def test_after_a_retry_the_prompt_lies_at_the_second_replica_too() -> None:
    placement = some(0, 0)
    placed = send(placement, LONG)
    failed = placed.address
    attempt = Attempt(
        failed, CLUSTER, Outcome.FAILED, False, False, False, placed.tag, retried=True, broken=True
    )
    settle(attempt, placement, 0.0)
    assert placed.address != failed
    prompt = request_of(LONG).prompt
    assert prompt is not None
    both = sum(placement.prompts.prefixes.bits(CLUSTER).values())
    match = next(placement.prompts.prefixes.matches(CLUSTER, "", prompt, both))
    assert match.bits == both
    settle(Ended(placed.tag.ticket), placement, 0.0)
    assert placement.prompts.outstanding.tokens == {A: 0, B: 0}
    assert sum(placement.prompts.requests.values()) == 1  # one request


def test_a_new_pod_at_the_address_of_another_gets_nothing_that_was_its() -> None:
    placement = some(0, 0)
    first = ask(placement, LONG)
    follow(placement, *(replica(n, f"new-{n}") for n in (1, 2)))
    ask(placement, LONG)
    assert placement.prompts.requests == {Found.HERE: 0, Found.ELSEWHERE: 0, Found.NOWHERE: 2}
    assert first in (A, B)


def test_requests_without_a_prompt_go_to_the_fewest_in_flight_and_are_remembered_nowhere() -> None:
    placement = some(0, 0)
    request = request_of(LONG)
    bare = request._replace(body=request.body._replace(prompt=None) if request.body else None)
    for _ in range(4):
        placement.take(by_us(placement, bare, 0.0), bare, 0.0)
    assert placement.in_flight.counts == {CLUSTER: {A: 2, B: 2}}
    assert len(placement.prompts.prefixes) == sum(placement.prompts.requests.values()) == 0


def test_a_beginning_that_most_prompts_have_lies_on_more_replicas_soon() -> None:
    placement = some(0, 0)
    first = ask(placement, LONG)
    for _ in range(60):
        assert ask(placement, LONG) == first
    report(placement, *((100, 0) if first == A else (0, 100)))
    assert ask(placement, LONG) != first


@pytest.mark.parametrize("at_once", [4, 16, 64])
@pytest.mark.parametrize("asked", [True, False], ids=["loads known", "loads unknown"])
def test_one_hot_prefix_spreads_until_no_replica_has_more_than_a_quarter_over_the_mean(
    at_once: int, asked: bool
) -> None:
    figures = run(tenants(1), by_us, 2000, at_once, asked=asked)
    print(figures.served, f"{figures.hits:.0%} of the bytes were cached")
    assert max(figures.served) <= 1.25 * 2000 / 4
    assert max(figures.computed) <= 1.25 * sum(figures.computed) / 4
    assert figures.hits > 0.85


@pytest.mark.parametrize("at_once", [4, 16])
def test_prompts_of_forty_tenants_begin_three_times_sooner_than_in_turn_or_by_fewest_requests(
    at_once: int,
) -> None:
    """A cache has room for a quarter of the tenants, and a little."""
    pages = 40 * 4000 // 4 // engines.PAGE * 3 // 2

    def p50(figures: engines.Figures) -> float:
        return sorted(figures.first_token)[len(figures.first_token) // 2]

    ours, turns, fewest = (
        run(tenants(40), choose, 1500, at_once, pages=pages) for choose in (by_us, in_turn(), by_requests)
    )
    for name, figures in (("ours", ours), ("in turn", turns), ("fewest requests", fewest)):
        print(f"{name}: p50 {p50(figures) * 1e3:.0f} ms, {figures.hits:.0%} cached, {figures.served}")
    assert 3 * p50(ours) <= min(p50(turns), p50(fewest))
    assert ours.hits > 0.7 > 0.5 > max(turns.hits, fewest.hits)
    assert max(ours.computed) <= 1.5 * sum(ours.computed) / 4
