"""What an open breaker does: how soon it refuses, and what a healthy endpoint beside it notices. Part of bench-gateway.

Both endpoints are asked at a fixed rate, whatever the answers take. Blocks with the healthy endpoint alone and with
both alternate, so that a noisy machine spoils both alike.
"""

import asyncio
import statistics
from collections.abc import Sequence

from gateway.tests.harness import Gateway
from tests.bench.bare_http import Answer, Connection, chat_request
from tests.bench.results import Result

ROUNDS = 5
BODY_BYTES = 1200
HEALTHY_PER_SECOND, HEALTHY_A_BLOCK = 100, 500
REFUSED_PER_SECOND, REFUSED_A_BLOCK = 50, 250


async def paced(port: int, request: bytes, per_second: int, count: int) -> list[Answer]:
    """So many answers to requests that are due at a fixed rate; one that is late delays no later one's due time."""
    connection, answers = await Connection.open(port), []
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for number in range(count):
        await asyncio.sleep(begun + number / per_second - loop.time())
        answers.append(await connection.ask(request))
    connection.close()
    return answers


async def open_breaker(gateway: Gateway) -> str:
    """The model name of an endpoint whose only replica is gone and whose breaker has opened."""
    dead = gateway.backend("dead")
    breaker = {"openSeconds": 600}
    name = await asyncio.to_thread(lambda: gateway.endpoint(dead, circuitBreaker=breaker))
    dead.kill()
    connection, request = await Connection.open(gateway.port), chat_request(f"team/{name}", BODY_BYTES)
    for _ in range(100):
        if refused(await connection.ask(request)):
            connection.close()
            return f"team/{name}"
    raise RuntimeError("the breaker of an endpoint without a living replica stays closed")


def refused(answer: Answer) -> bool:
    return b'"circuit_open"' in answer.body


async def run(gateway: Gateway) -> list[Result]:
    name = await asyncio.to_thread(gateway.endpoint, gateway.backend("well"))
    healthy = chat_request(f"team/{name}", BODY_BYTES)
    broken = chat_request(await open_breaker(gateway), BODY_BYTES)

    async def ask_healthy() -> list[float]:
        answers = await paced(gateway.port, healthy, HEALTHY_PER_SECOND, HEALTHY_A_BLOCK)
        if any(answer.status != 200 for answer in answers):
            raise RuntimeError("the healthy endpoint failed a request")
        return [answer.seconds for answer in answers]

    async def ask_broken() -> list[float]:
        answers = await paced(gateway.port, broken, REFUSED_PER_SECOND, REFUSED_A_BLOCK)
        return [answer.seconds for answer in answers if refused(answer)]  # now and then one is a trial

    alone: list[float] = []
    beside: list[float] = []
    refusals: list[float] = []
    await ask_healthy()
    for turn in range(ROUNDS):
        alone += await ask_healthy()
        measured, more = await asyncio.gather(ask_healthy(), ask_broken())
        beside, refusals = beside + measured, refusals + more
        print(
            f"  open breaker, round {turn + 1} of {ROUNDS}: refusals p99 {quantile(refusals, 99):.2f} ms, healthy "
            f"p99 {quantile(alone, 99):.2f} ms alone, {quantile(beside, 99):.2f} ms beside it",
            flush=True,
        )
    return results(alone, beside, refusals)


def results(alone: Sequence[float], beside: Sequence[float], refusals: Sequence[float]) -> list[Result]:
    goals = {50: "", 95: "", 99: "<= 5 ms"}
    count = f"of {len(refusals)}"
    before, after = quantile(alone, 99), quantile(beside, 99)
    return [
        *(
            Result(f"refused by an open breaker, p{p} {count}", quantile(refusals, p), "ms", goal=goal)
            for p, goal in goals.items()
        ),
        Result(
            f"p99 of a healthy endpoint beside it, {len(beside)} requests",
            after,
            "ms",
            f"alone, {before:.2f} ms",
            after / before,
            "ratio <= 1.2",
        ),
    ]


def quantile(seconds: Sequence[float], percent: int) -> float:
    """In milliseconds."""
    return statistics.quantiles(seconds, n=100)[percent - 1] * 1e3
