"""docs/operate/security.md: the operator asks no judge that is not allowed, and the status does not say what a host answered."""

from __future__ import annotations

from typing import Any

import pytest

from llmendpoint_operator.core.rollout.evidence import Outcome
from llmendpoint_operator.observe.rollout import verification as prompts
from llmendpoint_operator.observe.wire import LARGEST
from tests.integration.fake_wire import FakeEngine

from ..evidence_stage import World, until


def judged_by(endpoint: str) -> dict[str, Any]:
    return {
        "prompts": [{"name": "capital", "prompt": "?", "compare": {"mode": "Judge", "endpoint": endpoint}}]
    }


async def said(world: World, endpoint: str, times: int = 3) -> str:
    """What the status says of the verification when the judge has been asked for so often."""
    await world.add_engine("blue")
    await world.add_engine("green")
    snapshot = world.snapshot("Verifying", verification=judged_by(endpoint))
    messages: list[str] = []

    def tried() -> bool:
        found = world.look(snapshot).verification
        assert found is None or found.outcome is Outcome.RUNNING, found
        if found is not None and found.message:
            messages.append(found.message)
        return len(messages) >= times

    await until(tried)
    return messages[-1]


async def test_a_host_that_the_platform_does_not_allow_gets_no_request(world: World) -> None:
    other = FakeEngine()
    url = f"http://{await other.serve(world.serving, world.engine_port)}:{world.engine_port}/v1"
    message = await said(world, url)
    assert f"judge {url}: it is not a host that the platform allows; allowed: none" in message
    assert "judge.allowedHosts" in message
    assert (other.asked, other.listed) == ([], 0)


async def test_an_endpoint_of_another_namespace_is_not_asked(world: World) -> None:
    message = await said(world, "team-b/judge")
    assert (
        "only endpoints of namespace team-a may judge here (judge.allowedNamespaces of the chart)" in message
    )


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (200, "secret of the metadata service"),
        (403, "secret"),
        (404, "secret"),
        (500, "secret"),
        (302, "secret"),
    ],
)
async def test_the_status_is_the_same_whatever_an_allowed_host_answers(
    world: World, status: int, text: str
) -> None:
    _, url = await world.add_judge(answer=lambda _: (status, text))
    assert await said(world, url) == f"prompt capital: judge {url}: {prompts.NO_JUDGEMENT}"


async def test_a_host_that_is_not_there_looks_the_same(world: World) -> None:
    judge, url = await world.add_judge()
    await world.serving.__aexit__()
    assert judge.asked == []
    assert await said(world, url, times=1) == f"prompt capital: judge {url}: {prompts.NO_JUDGEMENT}"


async def test_a_judge_that_answers_without_end_is_not_read_to_it(world: World) -> None:
    _, url = await world.add_judge(answer=lambda _: (200, "PASS " + "x" * (LARGEST["prompt"] + 1)))
    assert prompts.NO_JUDGEMENT in await said(world, url)


async def test_a_redirect_of_a_judge_is_not_followed(world: World) -> None:
    elsewhere = FakeEngine(answer=lambda _: (200, "PASS"))
    host = f"{await elsewhere.serve(world.serving, world.engine_port)}:{world.engine_port}"
    _, url = await world.add_judge(redirects_to=f"http://{host}")
    assert prompts.NO_JUDGEMENT in await said(world, url)
    assert (elsewhere.asked, elsewhere.listed) == ([], 0)


async def test_a_judge_is_asked_for_plain_text(world: World) -> None:
    judge, url = await world.add_judge(answer=lambda _: (200, "PASS"))
    assert (await _passed(world, url)).outcome is Outcome.PASSED
    assert {headers["Accept-Encoding"] for headers in judge.headers} == {"identity"}


async def _passed(world: World, url: str) -> Any:
    await world.add_engine("blue")
    await world.add_engine("green")
    return await world.verified(**judged_by(url))
