"""docs/concepts/gateway.md: an attempt's outcome clears a suspect, ends a trial or counts for the breaker, as callers were told."""

from dataclasses import replace

import pytest

from gateway.tests.access_log import CHAT_PATH, TAG, entry
from gateway.tests.one_endpoint import ADDRESSES, BROKEN, CHAT, REPLICAS, Holding, parts_of, request_of, turn
from llmendpoint_gateway.core.endpoint.view import Kind
from llmendpoint_gateway.core.envoy.upstream_logs import RETRIABLE_HEADER
from llmendpoint_gateway.core.outcome.attempt import Attempt, Ended, Outcome
from llmendpoint_gateway.core.placement.pick import Picked
from llmendpoint_gateway.core.placement.trials import Standing
from llmendpoint_gateway.serve.outcome.access_log import read_attempt

OTHER_PATH = "/v1/embeddings"


@pytest.mark.parametrize(("kind", "over"), [("UpstreamEnd", True), ("UpstreamPeriodic", False)])
def test_a_stream_that_goes_on_does_not_clear_its_request_and_its_end_does(kind: str, over: bool) -> None:
    attempt = read_attempt(entry(200, kind=kind))
    assert (attempt.outcome, attempt.whole, attempt.over) == (Outcome.ANSWERED, over, over)
    assert attempt.tag == TAG


@pytest.mark.parametrize("status", [429, 503])
def test_an_engine_that_is_busy_or_goes_has_not_lived_through_its_request(status: int) -> None:
    refused = entry(status)
    refused.response.response_headers[RETRIABLE_HEADER] = "1"
    attempt = read_attempt(refused)
    assert (attempt.outcome, attempt.whole) == (Outcome.ANSWERED, False)


BROKE, LATE, GONE = (
    "upstream_connection_termination",
    "upstream_request_timeout",
    "upstream_connection_failure",
)


@pytest.mark.parametrize(
    ("path", "flag", "attempt", "told"),
    [
        (CHAT_PATH, BROKE, 1, False),  # another is tried
        (CHAT_PATH, BROKE, 2, True),
        (CHAT_PATH + "?a=b", LATE, 1, False),
        (OTHER_PATH, BROKE, 1, True),
        (OTHER_PATH, LATE, 1, True),
        (OTHER_PATH, GONE, 1, False),  # the replica has seen nothing: another is tried
        (OTHER_PATH, GONE, 2, True),
    ],
)
def test_a_caller_is_told_of_a_failure_that_is_not_tried_again(
    path: str, flag: str, attempt: int, told: bool
) -> None:
    assert read_attempt(entry(0, path, attempt, **{flag: True})).told is told


async def test_a_trial_that_broke_off_and_was_answered_elsewhere_is_a_good_one() -> None:
    now = [0.0]
    parts = parts_of(Holding(), lambda: now[0])
    control, outcomes = parts.control, parts.outcomes
    control.relisted(Kind.ENDPOINT, {"a/chat": CHAT})
    control.relisted(Kind.SLICE, {"a/s": REPLICAS})
    await turn()
    circuits = control.placement.circuits
    circuits.all_ejected("a/chat", 0, CHAT.circuit)
    now[0] = CHAT.circuit.open_seconds
    circuits.trial_began("a/chat", now[0])
    trial = replace(BROKEN, trial=True, broken=False)
    outcomes.settle(trial)
    assert circuits.state("a/chat", now[0]).standing is Standing.HALF_OPEN
    outcomes.settle(replace(trial, address=ADDRESSES[1], outcome=Outcome.ANSWERED, told=True, again=True))
    assert circuits.state("a/chat", now[0]).standing is Standing.CLOSED


ATTACKER, VICTIM = 1, 2


@pytest.mark.parametrize("addresses", [ADDRESSES, ADDRESSES[:1]], ids=["two replicas", "one replica"])
async def test_one_caller_that_was_alone_keeps_nobody_out_of_the_endpoint(addresses: tuple[str, ...]) -> None:
    """It sends nothing but what fails, for half an hour, and takes each trial that it can get."""
    now = [1_000.0]
    parts = parts_of(Holding(), lambda: now[0])
    control, outcomes = parts.control, parts.outcomes
    control.relisted(Kind.ENDPOINT, {"a/chat": CHAT})
    replicas = tuple(replica for replica in REPLICAS.replicas if replica.address in addresses)
    control.relisted(Kind.SLICE, {"a/s": replace(REPLICAS, replicas=replicas)})
    await turn()
    placement = control.placement

    def attack(print_: int) -> bool:
        picked = placement.place("chat", now[0], ATTACKER)
        if not isinstance(picked, Picked):
            return False
        placed = placement.take(picked, request_of(ATTACKER, print_), now[0])
        outcomes.settle(Ended(placed.tag.ticket))
        outcomes.settle(
            Attempt(
                picked.addresses[0],
                picked.cluster,
                Outcome.FAILED,
                trial=picked.trial,
                told=True,
                again=False,
                tag=placed.tag,
            )
        )
        return True

    assert not all(attack(n % 2 + 1) for n in range(40))  # the breaker is open for the one that is alone
    refused = 0
    for second in range(1800):
        now[0] += 1
        outcomes.tick()
        attack(second % 2 + 1)
        picked = placement.place("chat", now[0], VICTIM)
        if isinstance(picked, Picked):
            placed = placement.take(picked, request_of(VICTIM, 9), now[0])
            outcomes.settle(Ended(placed.tag.ticket))
        else:
            refused += 1
    assert refused == 0
