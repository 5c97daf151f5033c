"""What one tenant can do to another with requests and with endpoints of its own, all of it at once and bounded.

The attacker's requests come from another address than the victim's, as those of another pod do.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp

from tests.e2e.product import Object, Product

NAMESPACE = "attacker"
GIANT = 32 << 20
REAL_ENGINE = "e2e/chat"
"""The endpoint of the demo model, of the victim's namespace: what is meant to end an engine is sent to it, too."""
MESSAGES = [{"role": "user", "content": "Who are you?"}]


def endpoint(name: str, *flags: str, names: tuple[str, ...] = (), **rollout: object) -> Object:
    """An endpoint of the attacker's, whose engine behaves as these flags of the simulator say."""
    kind = {"apiVersion": "llmendpoint.io/v1alpha1", "kind": "LLMEndpoint"}
    spec = {
        "model": {"source": "embedded://simulated", **({"servedNames": list(names)} if names else {})},
        "runtime": {"name": "simulator", "args": list(flags)},
        "replicas": 1,
        "terminationGracePeriodSeconds": 15,
        "rollout": {"observe": {"duration": 5}, **rollout},
    }
    return {**kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def endpoints(victim: str) -> list[Object]:
    """One that answers 500, one that crashes, one whose golden prompts hang, and one that claims the victim's name."""
    prompts = [{"name": f"p{n}", "prompt": "Who?", "expect": {"contains": ["x"]}} for n in range(16)]
    return [
        endpoint("errors", "--error-rate=1"),
        endpoint("crashes", "--crash-after=1"),
        endpoint("hangs", "--hang-after=1", verification={"prompts": prompts, "timeoutSeconds": 3600}),
        endpoint("grabs", names=(victim,)),
    ]


class Attack:
    """Tasks that send until they are cancelled; `answers` counts what came back, by kind of attack."""

    def __init__(self, url: str, victim: str, address: str) -> None:
        self.answers: Counter[tuple[str, str]] = Counter()
        self._url, self._victim, self._address = url, victim, address
        self._engines = itertools.cycle((victim, REAL_ENGINE))

    async def run(self) -> None:
        """Until standard input ends."""
        connector = aiohttp.TCPConnector(limit=0, local_addr=(self._address, 0))
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            self._session = session
            loops = [
                self._often(0.02, 20, self._crashing_body),
                self._often(0.02, 20, self._deterministic_500),
                self._often(0.01, 50, self._forged_token),
                self._often(1.0, 4, self._giant_body),
                self._often(0.1, 50, self._hung_request),
                self._often(0.1, 20, self._same_body_as_the_victim),
            ]
            tasks = [asyncio.create_task(each) for each in loops]
            await asyncio.to_thread(sys.stdin.read)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _often(self, pause_s: float, at_a_time: int, attack: Callable[[int], Any]) -> None:
        places = asyncio.Semaphore(at_a_time)
        async with asyncio.TaskGroup() as group:
            for number in itertools.count():
                await places.acquire()
                group.create_task(self._one(places, attack, number))
                await asyncio.sleep(pause_s)

    async def _one(self, places: asyncio.Semaphore, attack: Callable[[int], Any], number: int) -> None:
        kind, outcome = attack.__name__[1:], "no answer"
        try:
            outcome = str(await attack(number))
        except (aiohttp.ClientError, TimeoutError, OSError):
            pass
        finally:
            places.release()
            self.answers[kind, outcome] += 1

    async def _send(self, body: Object | AsyncIterator[bytes], **headers: str) -> int:
        content = {"json": body} if isinstance(body, dict) else {"data": body}
        headers = {"content-type": "application/json", **headers}
        async with self._session.post(
            f"{self._url}/v1/chat/completions", headers=headers, **content
        ) as answer:
            await answer.read()
            return answer.status

    async def _crashing_body(self, number: int) -> int:
        """To the victim's endpoints: what ended an engine once, never the same body twice."""
        model = next(self._engines)
        asked = {"model": model, "messages": MESSAGES, "temperature": 1, "top_k": 2**63 + number}
        return await self._send(asked)

    async def _deterministic_500(self, number: int) -> int:
        return await self._send({"model": f"{NAMESPACE}/errors", "messages": MESSAGES, "user": str(number)})

    async def _forged_token(self, number: int) -> int:
        """To the victim's endpoint, with another token each time: whoever counts tokens sees as many callers."""
        asked = {"model": self._victim, "messages": MESSAGES}
        return await self._send(asked, authorization=f"Bearer forged-{number}")

    async def _giant_body(self, _: int) -> int:
        async def content() -> AsyncIterator[bytes]:
            yield b'{"model": ' + json.dumps(self._victim).encode() + b', "messages": ['
            for _ in range(GIANT >> 20):
                yield b"{}," * ((1 << 20) // 3)

        return await self._send(content())

    async def _hung_request(self, _: int) -> int:
        return await self._send({"model": f"{NAMESPACE}/hangs", "messages": MESSAGES, "stream": True})

    async def _same_body_as_the_victim(self, _: int) -> int:
        """By path to the attacker's own endpoint that crashes: the body names the victim's model."""
        url = f"{self._url}/{NAMESPACE}/crashes/v1/chat/completions"
        body = {"model": self._victim, "messages": MESSAGES, "stream": False}
        async with self._session.post(url, json=body) as answer:
            await answer.read()
            return answer.status


def grab_names(
    product: Product, victim: str, ended: threading.Event, answers: Counter[tuple[str, str]]
) -> None:
    """The endpoint that claims the victim's name goes and comes."""
    grab = endpoint("grabs", names=(victim.rpartition("/")[2],))
    delete = ["delete", "llmendpoint", "grabs", "-n", NAMESPACE, "--ignore-not-found", "--wait=false"]
    while not ended.wait(5.0):
        product.cluster.kubectl(*delete)
        product.cluster.apply(grab)
        answers["name_grab", "done"] += 1


@contextmanager
def attacking(product: Product, victim: str, url: str, address: str) -> Iterator[Counter[tuple[str, str]]]:
    """The attack runs while the block does, in a process of its own, so that the victim's clock measures the product.
    Its counts are complete when the block is left. `address` is the one of this machine that its requests come from."""
    answers: Counter[tuple[str, str]] = Counter()
    ended = threading.Event()
    thread = threading.Thread(target=grab_names, args=(product, victim, ended, answers), daemon=True)
    # Callers have machines of their own: what this one computes is to take no time from the product.
    argv = ["nice", "-n", "19", sys.executable, "-m", "tests.e2e.attack", url, victim, address]
    sender = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    thread.start()
    try:
        yield answers
    finally:
        ended.set()
        said, _ = sender.communicate(timeout=60)
        thread.join(60)
    for kind, outcome, count in json.loads(said):
        answers[kind, outcome] += count


async def main(url: str, victim: str, address: str) -> None:
    attack = Attack(url, victim, address)
    await attack.run()
    print(json.dumps([[*kind, count] for kind, count in attack.answers.items()]))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
