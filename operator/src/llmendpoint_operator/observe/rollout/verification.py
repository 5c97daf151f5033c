"""Verification: sends prompts to a ready pod of the new revision and checks the answers.

Prompts and answers are never logged. A failure quotes only what core/rollout/verification.py permits.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import structlog

from ...api.verification import Comparison, Prompt
from ...core.endpoint.allowed import judge_refused
from ...core.rollout.evidence import Outcome, Verification
from ...core.rollout.verification import (
    Judgement,
    differs_exactly,
    differs_too_much,
    judge_messages,
    outvoted,
    parse_judgement,
    quote,
    too_few_pass,
    unmet_expectation,
)
from ...core.rollout.wanted import VerificationJob
from ...errors import Unanswered
from ..slots import Slots
from ..targets import Target
from ..wire import Wire

log = structlog.get_logger()

RETRY_S = 1.0
JUDGE_RETRY_S = 5.0
JUDGE_TOKENS = 1024
"""Enough for a judge model that thinks before it answers."""
SERVER_ERRORS = 3
"""Consecutive 5xx answers that fail a prompt. One may be chance; the observation judges rates."""
LONGEST_S = 600.0
"""Seconds for which an answer may hold its slot, whatever the spec says."""
NO_JUDGEMENT = "it gives no verdict: it does not answer, or its answer begins with neither PASS nor FAIL; the operator asks again"


@dataclass(frozen=True, slots=True)
class _Question:
    """One request to a model. `seed`: equal seeds are for equal answers."""

    messages: Sequence[dict[str, str]]
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0


class _Failed(Exception):
    """The prompt got no answer; the message says why."""


class Verifier:
    """One run of a job. `pods`: returns a revision's ready pods. `report`: called with each outcome."""

    def __init__(
        self,
        wire: Wire,
        job: VerificationJob,
        pods: Callable[[str], Sequence[Target]],
        report: Callable[[Verification], None],
        slots: Slots,
    ) -> None:
        self._wire = wire
        self._job = job
        self._pods = pods
        self._report = report
        self._slots = slots
        self._namespace = job.model.partition("/")[0]
        self._waits_since: float | None = None
        self._waited = 0.0
        self._notes: list[str] = []

    @property
    def waited(self) -> float:
        """Seconds that prompts waited for a slot. In that time no pod was asked, so no answer is missing."""
        since = self._waits_since
        return self._waited + (0.0 if since is None else time.monotonic() - since)

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        self._waits_since = time.monotonic()
        try:
            await self._slots.enter(self._namespace)
        finally:
            self._waited, self._waits_since = self.waited, None
        try:
            yield
        finally:
            self._slots.leave(self._namespace)

    async def run(self) -> None:
        """Send the prompts one after the other, until the first that fails."""
        self._say(Outcome.RUNNING)
        for prompt in self._job.prompts:
            problem = await self._problem(prompt)
            log.info(
                "verification prompt",
                endpoint=self._job.model,
                revision=self._job.revision,
                prompt=prompt.name,
                passed=problem is None,
            )
            if problem is not None:
                return self._say(Outcome.FAILED, f"prompt {prompt.name}: {problem}")
        return self._say(Outcome.PASSED, "; ".join(self._notes))

    async def _problem(self, prompt: Prompt) -> str | None:
        new: list[str] = []
        faults: list[str] = []
        try:
            for seed in range(prompt.answers):
                new.append(await self._answer(self._job.revision, _question(prompt, seed)))
                fault = _unexpected(prompt, new[-1])
                faults += [fault] if fault is not None else []
                problem = too_few_pass(faults, len(new), prompt)
                if problem is not None:
                    return problem
        except _Failed as failed:
            return str(failed)
        if prompt.compare is None or self._job.blue is None or not self._pods(self._job.blue):
            return None
        try:
            old = [await self._answer(self._job.blue, _question(prompt, seed)) for seed in _old_seeds(prompt)]
        except _Failed as failed:
            self._notes.append(
                f"prompt {prompt.name} was not compared, because the old revision gives no answer: {failed}"
            )
            return None
        return await self._difference(prompt, prompt.compare, old, new)

    async def _difference(
        self, prompt: Prompt, compare: Comparison, old: Sequence[str], new: Sequence[str]
    ) -> str | None:
        if compare.mode == "Exact":
            return differs_exactly(old, new)
        if compare.mode == "Similarity":  # in a thread, because ten long answers each take most of a second
            rate = self._job.false_rejection_rate
            return await asyncio.to_thread(differs_too_much, old, new, compare.min_similarity, rate)
        return await self._outvoted(prompt, compare, old, new)

    async def _outvoted(
        self, prompt: Prompt, compare: Comparison, old: Sequence[str], new: Sequence[str]
    ) -> str | None:
        """Ask the judge about one pair after the other, until most of them have failed or can fail no more."""
        failed = 0
        for number, (reference, candidate) in enumerate(zip(old, new, strict=True), 1):
            judgement = await self._judged(prompt, compare, reference, candidate)
            failed += not judgement.passed
            if outvoted(failed, len(new)):
                votes = f"{failed} of {number} answers fail, " if len(new) > 1 else ""
                return f"judge {compare.endpoint}: {votes}{quote(judgement.reason)}, of the answer {quote(candidate)}"
            if not outvoted(failed + len(new) - number, len(new)):
                return None
        return None

    async def _judged(self, prompt: Prompt, compare: Comparison, old: str, new: str) -> Judgement:
        """Ask until the judge answers: its absence says nothing about the revision. core/ checks the
        deadline."""
        question = _Question(judge_messages(prompt.prompt, old, new, compare.instruction), JUDGE_TOKENS)
        judge = str(compare.endpoint)
        while True:
            problem = judge_refused(judge, self._job.model.partition("/")[0], self._job.allowed)
            if problem is None:
                judgement = await self._judgement(judge, question)
                if judgement is not None:
                    return judgement
                problem = NO_JUDGEMENT
            self._say(Outcome.RUNNING, f"prompt {prompt.name}: judge {judge}: {problem}")
            await asyncio.sleep(JUDGE_RETRY_S)

    async def _judgement(self, judge: str, question: _Question) -> Judgement | None:
        """The verdict, or None. The status shows no details of a failure, so that a user who names a judge
        cannot learn about hosts that only the operator reaches."""
        try:
            base, model = await self._judge(judge)
            async with self._slot():
                limit_s = min(self._job.timeout_seconds, LONGEST_S)
                text = await self._complete(base, model, question, limit_s)
        except Unanswered as error:
            log.info("no judgement", endpoint=self._job.model, judge=judge, status=error.status)
            return None
        return parse_judgement(text)

    async def _judge(self, endpoint: str) -> tuple[str, str]:
        """Base URL and model of a judge: an LLMEndpoint by its gateway or Service, or the first model at a
        URL."""
        if "://" not in endpoint:
            namespace, _, name = endpoint.partition("/")
            return (self._job.gateway_url or f"http://{name}.{namespace}.svc/v1").rstrip("/"), endpoint
        base = endpoint.rstrip("/")
        page = await self._wire.json("prompt", f"{base}/models", self._job.timeout_seconds)
        try:
            return base, str(page["data"][0]["id"])
        except (KeyError, IndexError, TypeError) as error:
            raise Unanswered(f"{base}/models lists no model") from error

    async def _answer(self, revision: str, question: _Question) -> str:
        """The answer of any ready pod within the answer's time. That time does not run while no pod is ready
        or while the prompt waits for a slot."""
        timeout_s = min(self._job.timeout_seconds, LONGEST_S)
        left, server_errors, turn, problem = timeout_s, 0, 0, ""
        while left > 0:
            async with self._slot():
                began, pods = time.monotonic(), self._pods(revision)
                if pods:
                    turn += 1
                    url = f"{pods[turn % len(pods)].url}/v1"
                    try:
                        return await self._complete(url, self._job.model, question, left)
                    except Unanswered as error:
                        problem = str(error)
                        final = 400 <= error.status < 500 and error.status not in (408, 429)
                        server_errors += error.status >= 500 and error.status != 503
                        if final or server_errors >= SERVER_ERRORS:
                            raise _Failed(problem) from error
            if not pods and revision == self._job.blue:
                raise _Failed("none of its pods is ready")
            await asyncio.sleep(RETRY_S)
            left = left - (time.monotonic() - began) if pods else timeout_s
        raise _Failed(f"no answer within {timeout_s:g} s{problem and f' ({problem})'}")

    async def _complete(self, base: str, model: str, question: _Question, timeout_s: float) -> str:
        body = {
            "model": model, "messages": list(question.messages), "max_tokens": question.max_tokens,
            "temperature": question.temperature, "seed": question.seed,
        }  # fmt: skip
        page = await self._wire.json("prompt", f"{base}/chat/completions", timeout_s, body)
        try:
            return str(page["choices"][0]["message"]["content"] or "")
        except (KeyError, IndexError, TypeError) as error:
            raise Unanswered("the answer is not a chat completion") from error

    def _say(self, outcome: Outcome, message: str = "") -> None:
        self._report(Verification(self._job.revision, outcome, message))


def _question(prompt: Prompt, seed: int) -> _Question:
    return _Question(
        [{"role": "user", "content": prompt.prompt}], prompt.max_tokens, prompt.temperature, seed
    )


def _old_seeds(prompt: Prompt) -> Sequence[int]:
    """The old revision's samples have seeds of their own. With equal seeds, equal models would give equal answers: then they
    would be more alike than chance makes them."""
    return range(prompt.answers, 2 * prompt.answers) if prompt.answers > 1 else (0,)


def _unexpected(prompt: Prompt, answer: str) -> str | None:
    wanted = prompt.expect
    if wanted is None:
        return None
    return unmet_expectation(answer, wanted.contains or (), wanted.matches, wanted.equals)
