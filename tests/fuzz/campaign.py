"""Sends what hypothesis draws, and judges every answer.

An answer is wrong when it is a 5xx that docs/reference/api.md does not name, when it does not come within a bound, or when the
connection ends without one. After each batch every process must be alive.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from yarl import URL

from tests.fuzz.bodies import Request, kinds
from tests.fuzz.targets import Targets, resident_mib

BATCH = 64
AT_A_TIME = 16
LONGEST_S = 120.0
"""An answer that takes longer is a hang. The slowest of this many short answers takes a second on two cores."""
DOCUMENTED = {(503, "queue_timeout"), (503, "no_ready_replica"), (501, "not_implemented")}
"""5xx that a harmless caller may meet in a run without faults. Crashes (500, replica_failed, …) are none of them."""


@dataclass(frozen=True)
class Answer:
    status: int
    code: str
    seconds: float

    @property
    def wrong(self) -> bool:
        hung = self.seconds > LONGEST_S
        return hung or self.status == 0 or (self.status >= 500 and (self.status, self.code) not in DOCUMENTED)


@dataclass
class Report:
    """What happened so far, by target."""

    sent: int = 0
    answers: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    wrong: list[dict[str, str]] = field(default_factory=list)
    slowest: float = 0.0
    memory: dict[str, float] = field(default_factory=dict)
    """Largest resident set of each process, MiB."""

    def count(self, target: str, request: Request, answer: Answer) -> None:
        self.sent += 1
        self.answers[target, answer.status, answer.code] += 1
        self.slowest = max(self.slowest, answer.seconds)
        if answer.wrong and len(self.wrong) < 20:
            self.wrong.append(
                {
                    "target": target,
                    "request": f"{request.method} {request.path[:200]} {json.dumps(request.headers)[:500]}",
                    "body": base64.b64encode(request.body[:4000]).decode(),
                    "answer": f"{answer.status} {answer.code} after {answer.seconds:.1f} s",
                }
            )

    def watch(self, targets: Targets) -> None:
        for name, pid in targets.pids().items():
            self.memory[name] = max(self.memory.get(name, 0.0), resident_mib(pid))


class Sender:
    """Sends batches to both targets in turn, on connections that are kept."""

    def __init__(self, targets: Targets, report: Report) -> None:
        self._targets, self._report = targets, report
        self._places = asyncio.Semaphore(AT_A_TIME)
        timeout = aiohttp.ClientTimeout(total=LONGEST_S + 5)
        self._session = aiohttp.ClientSession(timeout=timeout, auto_decompress=False, max_line_size=65536)

    async def close(self) -> None:
        await self._session.close()

    async def send(self, batch: Sequence[Request]) -> None:
        urls = tuple(self._targets.urls.items())
        await asyncio.gather(
            *(self._one(*urls[number % len(urls)], request) for number, request in enumerate(batch))
        )

    async def _one(self, target: str, url: str, request: Request) -> None:
        async with self._places:
            started = time.monotonic()
            status, code = await self._ask(URL(url + request.path, encoded=True), request)
            if status is not None:
                self._report.count(target, request, Answer(status, code, time.monotonic() - started))

    async def _ask(self, url: URL, request: Request) -> tuple[int | None, str]:
        """Status and code of the error, if it is one; None where this client hung up."""
        try:
            async with asyncio.timeout(request.leaves):
                return await self._read(url, request)
        except TimeoutError:
            self._report.sent += 1
            self._report.answers["client", 0, "left"] += 1
            return (None, "") if request.leaves is not None else (0, "no answer in time")
        except aiohttp.ClientError as error:
            return 0, type(error).__name__

    async def _read(self, url: URL, request: Request) -> tuple[int, str]:
        call = self._session.request(
            request.method, url, data=request.body or None, headers=request.headers, allow_redirects=False
        )
        async with call as answer:
            content = await answer.read()
            return answer.status, error_code(content) if answer.status >= 400 else ""


def error_code(content: bytes) -> str:
    try:
        error = json.loads(content)["error"]
        return str(error.get("code") or error.get("type"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return "not OpenAI's shape" if content else ""


def drawn(
    strategy: st.SearchStrategy[Request], number: int, seeded: int, use: Callable[[Request], None]
) -> None:
    """`use` sees this many examples; the same ones for the same seed."""

    @seed(seeded)
    @settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def example(request: Request) -> None:
        use(request)

    example()


def run(targets: Targets, bodies: int, seeded: int, say: Callable[[str], None] = print) -> Report:
    """At least this many bodies of all kinds, half to the server and half to the gateway."""
    report = Report()
    with asyncio.Runner() as runner:
        runner.get_loop()
        sender = runner.run(make_sender(targets, report))
        for name, share, strategy in kinds():
            one_kind(runner, sender, strategy, -(-bodies * share // 100), seeded)
            report.watch(targets)
            if not targets.alive():
                break
            say(
                f"  {report.sent:6} sent: {name}; slowest answer {report.slowest:.2f} s, {len(report.wrong)} wrong"
            )
        runner.run(sender.close())
    return report


async def make_sender(targets: Targets, report: Report) -> Sender:
    return Sender(targets, report)


def one_kind(
    runner: asyncio.Runner, sender: Sender, strategy: st.SearchStrategy[Request], number: int, seeded: int
) -> None:
    waiting: list[Request] = []

    def use(request: Request) -> None:
        waiting.append(request)
        if len(waiting) == BATCH:
            runner.run(sender.send(waiting))
            waiting.clear()

    drawn(strategy, number, seeded, use)
    if waiting:
        runner.run(sender.send(waiting))


def write(report: Report, folder: Path) -> Path:
    """The requests that were answered wrongly, to be sent again."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "fuzz.json"
    path.write_text(json.dumps(report.wrong, indent=1))
    return path
