"""docs/concepts/verdicts.md: a prompt is asked several times where answers vary, and both revisions' answers are compared.

The engines are real HTTP servers on loopback.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from llmendpoint_operator.core.rollout.evidence import Outcome
from llmendpoint_operator.core.rollout.wanted import VerificationJob, find_wanted
from tests.integration.fake_wire import Reply

from ..evidence_stage import World

VARYING = (
    "blue is the sky",
    "the sky is blue",
    "the sky, blue",
    "sky",
    "it is blue",
    "a blue sky",
    "blue",
    "so blue it is",
)
"""Eight answers of one model."""


def telling(*texts: str) -> Callable[[str], Reply]:
    """An engine's answers in turn."""
    turns = itertools.cycle(texts)
    return lambda _: (200, next(turns))


def prompt(**fields: Any) -> dict[str, Any]:
    return {"name": "sky", "prompt": "What colour is the sky?", "temperature": 1, **fields}


async def test_each_sample_has_a_seed_of_its_own_in_both_revisions(world: World) -> None:
    green, blue = await world.add_engine("green"), await world.add_engine("blue")
    found = await world.verified(prompts=[prompt(samples=5, compare={"mode": "Similarity"})])
    assert found.outcome is Outcome.PASSED
    assert [asked["seed"] for asked in green.asked] == [0, 1, 2, 3, 4]
    assert [asked["seed"] for asked in blue.asked] == [5, 6, 7, 8, 9]
    assert {asked["temperature"] for asked in (*green.asked, *blue.asked)} == {1.0}


async def test_a_prompt_without_a_temperature_is_asked_once_with_one_seed(world: World) -> None:
    green, blue = await world.add_engine("green"), await world.add_engine("blue")
    await world.verified(prompts=[prompt(temperature=0, compare={"mode": "Exact"})])
    assert [(asked["temperature"], asked["seed"]) for asked in (*green.asked, *blue.asked)] == [(0, 0)] * 2


async def test_answers_that_vary_at_a_temperature_are_asked_for_eight_times(world: World) -> None:
    green = await world.add_engine("green")
    await world.verified(prompts=[prompt(expect={"contains": ["Paris"]})])
    assert len(green.asked) == 8


async def test_a_revision_that_varies_like_the_old_one_passes(world: World) -> None:
    await world.add_engine("blue", answer=telling(*VARYING))
    await world.add_engine("green", answer=telling(*VARYING[4:], *VARYING[:4]))
    found = await world.verified(prompts=[prompt(compare={"mode": "Similarity"})])
    assert found.outcome is Outcome.PASSED


async def test_a_revision_that_answers_otherwise_fails_with_the_figures(world: World) -> None:
    await world.add_engine("blue", answer=telling(*VARYING))
    await world.add_engine("green", answer=telling("zx qw", "qw zx zx"))
    found = await world.verified(prompts=[prompt(compare={"mode": "Similarity"})])
    assert found.outcome is Outcome.FAILED
    assert found.message.startswith(
        "prompt sky: similarity 0.00 to the old revision's answers is below 0.8 (compare.minSimilarity); its own answers reach 0.4"
    )
    assert " by chance; an old one 'blue is the sky', got 'zx qw'" in found.message


async def test_a_prompt_ends_as_soon_as_too_many_answers_are_wrong(world: World) -> None:
    green = await world.add_engine("green", answer=telling("Paris", "Lyon"))
    expected = {"expect": {"contains": ["Paris"]}, "samples": 10, "minPassing": 8}
    found = await world.verified(prompts=[prompt(**expected)])
    assert found.message == (
        "prompt sky: 3 of 6 answers fail, 8 of 10 must pass (minPassing); expected to contain 'Paris', got 'Lyon'"
    )
    assert len(green.asked) == 6


async def test_a_few_wrong_answers_are_forgiven_where_the_spec_says_so(world: World) -> None:
    await world.add_engine("green", answer=telling("Paris", "Paris", "Lyon"))
    found = await world.verified(prompts=[prompt(expect={"contains": ["Paris"]}, samples=6, minPassing=4)])
    assert found.outcome is Outcome.PASSED


async def test_an_old_revision_that_breaks_off_between_two_answers_is_not_compared(world: World) -> None:
    replies = iter([(200, "blue"), (400, "gone")])
    await world.add_engine("blue", answer=lambda _: next(replies))
    await world.add_engine("green", answer=telling("grey"))
    found = await world.verified(prompts=[prompt(compare={"mode": "Similarity"})])
    assert found.outcome is Outcome.PASSED
    assert "not compared" in found.message
    assert "HTTP 400: gone" in found.message


@pytest.mark.parametrize(
    ("votes", "asked", "message"),
    [
        (("PASS", "FAIL no", "PASS"), 3, ""),
        (("FAIL no", "FAIL no", "PASS", "PASS"), 4, ""),
        (("PASS", "PASS", "FAIL no", "FAIL no"), 2, ""),
        (("FAIL no", "PASS", "FAIL no"), 3, "2 of 3 answers fail, 'no', of the answer 'Paris'"),
    ],
)
async def test_a_majority_of_the_judges_votes_decides_and_a_tie_passes(
    world: World, votes: tuple[str, ...], asked: int, message: str
) -> None:
    await world.add_engine("blue")
    await world.add_engine("green")
    judge, url = await world.add_judge(answer=telling(*votes))
    judged = {"mode": "Judge", "endpoint": url}
    found = await world.verified(prompts=[prompt(samples=len(votes), compare=judged)])
    assert found.message == (message and f"prompt sky: judge {url}: {message}")
    assert len(judge.asked) == asked
    assert {question["temperature"] for question in judge.asked} == {0}


def job(world: World, prompts: list[dict[str, Any]], **observe: Any) -> VerificationJob | None:
    found = find_wanted(world.snapshot("Verifying", verification={"prompts": prompts}, observe=observe))
    return found.verification if found is not None else None


def test_the_rate_of_the_rollout_is_a_part_of_the_job_where_a_prompt_is_tested(world: World) -> None:
    tested, fixed = prompt(compare={"mode": "Similarity"}), prompt(expect={"contains": ["x"]})
    one, other = (
        job(world, [tested, {**tested, "name": "b"}], falseRollbackRate=rate) for rate in (0.01, 0.1)
    )
    assert one is not None
    assert one.false_rejection_rate == 0.005
    assert one != other, "another rate makes another job"
    assert job(world, [fixed], falseRollbackRate=0.01) == job(world, [fixed], falseRollbackRate=0.1)
