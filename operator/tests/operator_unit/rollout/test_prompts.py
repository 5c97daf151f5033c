"""docs/concepts/rollouts.md: each prompt is answered as expected, or the revision is rejected; a busy engine is asked again.

The engines are real HTTP servers on loopback.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from llmendpoint_operator.core.rollout.evidence import Outcome, Verification
from llmendpoint_operator.core.rollout.wanted import find_wanted
from llmendpoint_operator.observe.rollout import verification as prompts
from llmendpoint_operator.observe.rollout.evidence import PROMPTS_AT_ONCE, PROMPTS_OF_A_NAMESPACE, Collector
from tests.integration.fake_wire import FakeEngine

from ..evidence_stage import KEY, PROMPT, World, until


async def test_a_revision_that_answers_as_expected_is_verified(world: World) -> None:
    green = await world.add_engine("green")
    found = await world.verified(prompts=[PROMPT])
    assert found == Verification("green", Outcome.PASSED)
    assert world.woken.count(KEY) == 2, "begun, and passed"
    [asked] = green.asked
    assert asked["model"] == "team-a/chat"
    assert (asked["temperature"], asked["max_tokens"]) == (0, 64)


async def test_without_prompts_the_warm_up_was_the_verification(world: World) -> None:
    assert (await world.verified()).outcome is Outcome.PASSED


async def test_a_wrong_answer_fails_the_verification_and_is_quoted(world: World) -> None:
    await world.add_engine("green", answer=lambda _: (200, "Lyon, of course"))
    found = await world.verified(prompts=[PROMPT])
    assert found.outcome is Outcome.FAILED
    assert found.message == "prompt capital: expected to contain 'Paris', got 'Lyon, of course'"


async def test_a_failed_verification_is_not_tried_again(world: World) -> None:
    green = await world.add_engine("green", answer=lambda _: (200, "Lyon"))
    await world.verified(prompts=[PROMPT])
    await asyncio.sleep(0.1)
    await world.verified(prompts=[PROMPT])
    assert len(green.asked) == 1


async def test_a_prompt_that_the_engine_refuses_fails_with_what_it_said(world: World) -> None:
    await world.add_engine("green", answer=lambda _: (400, "the prompt is too long"))
    found = await world.verified(prompts=[PROMPT])
    assert found.message == "prompt capital: HTTP 400: the prompt is too long"


async def test_chance_errors_and_busy_engines_are_asked_again(world: World) -> None:
    replies = iter([(500, "x"), (503, "draining"), (429, "full"), (503, "x"), (500, "x"), (200, "Paris")])
    await world.add_engine("green", answer=lambda _: next(replies))
    assert (await world.verified(prompts=[PROMPT])).outcome is Outcome.PASSED


async def test_an_engine_that_always_fails_does_not_pass(world: World) -> None:
    await world.add_engine("green", answer=lambda _: (500, "CUDA error"))
    found = await world.verified(prompts=[PROMPT])
    assert found.message == "prompt capital: HTTP 500: CUDA error"


async def test_an_engine_that_never_answers_fails_after_its_time(world: World) -> None:
    await world.add_engine("green", answer=lambda _: (0, ""))
    found = await world.verified(prompts=[PROMPT], timeoutSeconds=1)
    assert found.outcome is Outcome.FAILED
    assert found.message.startswith("prompt capital: no answer within 1 s")


async def test_time_in_the_queue_behind_others_is_not_the_engines(world: World) -> None:
    replies = iter([(503, "loading")])
    await world.add_engine("green", answer=lambda _: next(replies, (200, "Paris")))
    await hold(world.collector, seconds=1.2)
    assert (await world.verified(prompts=[PROMPT], timeoutSeconds=1)).outcome is Outcome.PASSED


async def test_pods_that_are_not_ready_keep_nobody_in_the_queue(world: World) -> None:
    waiting = world.snapshot("Verifying", verification={"prompts": [PROMPT]})
    for _ in range(PROMPTS_AT_ONCE):
        job = find_wanted(waiting)
        assert job is not None
        assert job.verification is not None
        verifier = prompts.Verifier(world.wire, job.verification, lambda _: (), lambda _: None, world.collector._prompts)  # fmt: skip
        world.tasks.append(asyncio.create_task(verifier.run()))
    await world.add_engine("green")
    assert (await world.verified(prompts=[PROMPT])).outcome is Outcome.PASSED


async def hold(collecting: Collector, seconds: float) -> None:
    """Other endpoints' prompts take every slot of the namespace for so long."""
    slots = collecting._prompts
    for _ in range(PROMPTS_OF_A_NAMESPACE):
        await slots.enter(KEY[0])
        asyncio.get_running_loop().call_later(seconds, slots.leave, KEY[0])


async def test_engines_that_hang_hold_up_their_own_namespace_alone(world: World) -> None:
    """One tenant's prompts hang for good, more of them than there are slots in all."""
    await world.add_engine("green")
    slots = world.collector._prompts
    held = [asyncio.create_task(slots.enter("attacker")) for _ in range(2 * PROMPTS_AT_ONCE)]
    await asyncio.sleep(0)
    assert sum(task.done() for task in held) == PROMPTS_OF_A_NAMESPACE
    assert (await world.verified(prompts=[PROMPT])).outcome is Outcome.PASSED
    for task in held:
        task.cancel()


async def test_time_without_a_slot_is_no_time_of_the_verification(world: World) -> None:
    await world.add_engine("green", answer=lambda _: (0, ""))
    await hold(world.collector, seconds=0.5)
    snapshot = world.snapshot("Verifying", verification={"prompts": [PROMPT]})
    world.look(snapshot)
    await asyncio.sleep(0.3)
    assert world.look(snapshot).verifying < 0.1
    await until(lambda: world.look(snapshot).verifying > 0.1)


async def test_a_revision_without_ready_pods_is_waited_for(world: World) -> None:
    snapshot = world.snapshot("Verifying", verification={"prompts": [PROMPT], "timeoutSeconds": 1})
    world.look(snapshot)
    await asyncio.sleep(0.1)
    assert world.look(snapshot).verification == Verification("green", Outcome.RUNNING)
    await world.add_engine("green")
    found = await world.verified(prompts=[PROMPT], timeoutSeconds=1)
    assert found.outcome is Outcome.PASSED


def comparing(**compare: Any) -> dict[str, Any]:
    return {"name": "capital", "prompt": "Capital of France?", "compare": compare}


@pytest.mark.parametrize(
    ("compare", "old", "new", "passed"),
    [
        ({"mode": "Exact"}, "Paris", "Paris", True),
        ({"mode": "Exact"}, "Paris", "Paris!", False),
        ({"mode": "Similarity"}, "It is Paris", "Paris it is", True),
        ({"mode": "Similarity", "minSimilarity": 0.9}, "It is Paris", "It is Lyon", False),
    ],
)
async def test_answers_are_compared_with_the_old_revisions(
    world: World, compare: dict[str, Any], old: str, new: str, passed: bool
) -> None:
    await world.add_engine("blue", answer=lambda _: (200, old))
    await world.add_engine("green", answer=lambda _: (200, new))
    found = await world.verified(prompts=[comparing(**compare)])
    assert (found.outcome is Outcome.PASSED) == passed, found


async def test_without_an_old_revision_nothing_is_compared(world: World) -> None:
    await world.add_engine("green")
    assert (await world.verified(prompts=[comparing(mode="Exact")])).outcome is Outcome.PASSED


async def test_an_old_revision_that_is_broken_does_not_hold_up_the_one_that_mends_it(world: World) -> None:
    await world.add_engine("blue", answer=lambda _: (500, "broken"))
    await world.add_engine("green")
    found = await world.verified(prompts=[comparing(mode="Exact")])
    assert found.outcome is Outcome.PASSED
    assert "not compared" in found.message
    assert "HTTP 500: broken" in found.message


async def test_a_judge_decides_on_both_answers(world: World) -> None:
    await world.add_engine("blue", answer=lambda _: (200, "Paris"))
    await world.add_engine("green", answer=lambda _: (200, "Parigi"))
    judge, url = await world.add_judge(answer=lambda _: (200, "FAIL: it is Italian"))
    found = await world.verified(prompts=[comparing(mode="Judge", endpoint=url)])
    assert found.outcome is Outcome.FAILED
    assert found.message == f"prompt capital: judge {url}: 'it is Italian', of the answer 'Parigi'"
    assert judge.asked[0]["model"] == "the-judge"


async def test_a_judge_that_is_away_fails_nobody_and_is_asked_until_it_answers(world: World) -> None:
    await world.add_engine("blue")
    await world.add_engine("green")
    replies = iter([(503, "loading"), (200, "hm")])
    judge, url = await world.add_judge(answer=lambda _: next(replies, (200, "PASS")))
    assert (await world.verified(prompts=[comparing(mode="Judge", endpoint=url)])).outcome is Outcome.PASSED
    assert len(judge.asked) == 3


async def test_an_endpoint_as_judge_is_asked_through_the_gateway(world: World) -> None:
    await world.add_engine("blue")
    await world.add_engine("green")
    judge = FakeEngine(answer=lambda _: (200, "PASS"))
    url = f"http://{await judge.serve(world.serving, world.engine_port)}:{world.engine_port}/v1"
    prompts = [comparing(mode="Judge", endpoint="team-a/judge")]
    snapshot = world.snapshot("Verifying", verification={"prompts": prompts}, gateway_url=url)
    world.look(snapshot)
    await until(lambda: len(judge.asked) == 1)
    assert judge.asked[0]["model"] == "team-a/judge"


async def test_no_prompt_and_no_answer_is_logged(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    await world.add_engine("green", answer=lambda _: (200, "a secret answer"))
    await world.verified(prompts=[{**PROMPT, "prompt": "a secret question"}])
    said = capsys.readouterr()
    assert "verification prompt" in said.out + said.err
    assert "secret" not in said.out + said.err


async def test_how_long_the_prompts_have_been_asked_begins_with_them_and_not_with_the_state(
    world: World,
) -> None:
    await world.add_engine("green", answer=lambda _: (0, ""))
    world.look(world.snapshot("Warming"))
    await asyncio.sleep(0.1)
    began, snapshot = time.monotonic(), world.snapshot("Verifying", verification={"prompts": [PROMPT]})
    first = world.look(snapshot).verifying
    assert first <= time.monotonic() - began
    await until(lambda: world.look(snapshot).verifying > first + 0.1)
