"""docs/concepts/identity.md, "What follows from an identity": a key that floods an endpoint does not make another key wait, though both have one address."""

import asyncio
import statistics
import time

import httpx

from gateway.tests.asking import CHAT, until
from gateway.tests.bounds import wait_for
from gateway.tests.harness import running_gateway
from gateway.tests.keys import bearer, put_key

SECONDS = 0.4
"""That an answer takes."""
FLOOD, ASKED = 40, 8


async def test_a_key_that_floods_at_most_doubles_the_time_of_another_one() -> None:
    with running_gateway(authentication="required") as gateway:
        name = gateway.endpoint(
            gateway.backend("a", "seqs=8"), traffic={"queue": {"waitingPerReplica": 0}}, replicas=1
        )
        loud, quiet = put_key(gateway.api, "loud"), put_key(gateway.api, "quiet")
        wait_for(lambda: gateway.state()["authentication"]["keys"] == 2, "the keys are known")

        async def ask(client: httpx.AsyncClient, text: str, seconds: float = SECONDS) -> float:
            start = time.monotonic()
            headers = {**bearer(text), "x-delay": str(seconds)}
            answer = await client.post(CHAT, json={"model": name}, headers=headers)
            assert answer.status_code == 200 or text == loud, answer.text
            return time.monotonic() - start

        async def flood(client: httpx.AsyncClient, number: int) -> None:
            """Of different lengths: equal ones would all end at one time, and no place be free in between."""
            while True:
                await ask(client, loud, SECONDS * (0.5 + number / FLOOD))

        limits = httpx.Limits(max_connections=FLOOD + 1)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60, limits=limits) as client:
            alone = [await ask(client, quiet) for _ in range(ASKED)]
            floods = [asyncio.create_task(flood(client, n)) for n in range(FLOOD)]
            await until(lambda: gateway.known(name)["waiting"] > FLOOD // 2, "requests of the loud key wait")
            beside = [await ask(client, quiet) for _ in range(ASKED)]
            for task in floods:
                task.cancel()
            await asyncio.gather(*floods, return_exceptions=True)
    p95 = [statistics.quantiles(times, n=20)[-1] for times in (alone, beside)]
    assert p95[1] <= 2 * p95[0], p95
    print(f"p95 alone {p95[0]:.2f} s, beside the flood {p95[1]:.2f} s")
