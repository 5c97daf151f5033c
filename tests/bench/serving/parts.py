"""The parts of the benchmark, as __init__.py lists them: each starts its servers, measures, and returns rows."""

from __future__ import annotations

import asyncio
import itertools
import statistics
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.bench.engine.contenders import ours as own_forms
from tests.bench.engine.contenders import start
from tests.bench.engine.environments import CannotRun, python
from tests.bench.engine.peers.wire import sentence
from tests.bench.engine.shapes import LLAMA
from tests.bench.results import Result, figure
from tests.bench.serving import servers
from tests.bench.serving.asks import LONG_PROMPT, Prompter, percentile
from tests.bench.serving.client import Ask, Stream, all_of, stream
from tests.bench.serving.servers import STREAMS_MAX, Server

BATCH = ("--max-num-seqs", str(STREAMS_MAX), "--kv-cache-memory", "2Gi")
PAUSE_S = 1.0
"""From the answer to a long prompt until the next one arrives."""
BESIDE_LONG, BESIDE_LONG_TOKENS = 8, 256
Say = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Setting:
    """`requests`: of the part vllm, per round and server. `dtype`: what the machine runs best, for
    vLLM; this project's server chooses by itself."""

    model: Path
    dtype: str
    threads: int
    rounds: int
    streams: int
    requests: int
    say: Say


def throughput(setting: Setting) -> list[Result]:
    """Server and engine alone in turn, with prompts that never repeat; the first round of each is not measured."""
    prompter, ratios, served = Prompter(1), [], []
    (ours, *_) = own_forms("auto")
    engine = start(ours, LLAMA, setting.dtype, setting.threads, setting.streams, setting.say)
    try:
        with servers.ours(str(setting.model), *BATCH) as server:
            for turn in range(setting.rounds + 1):
                asks = prompter.even(setting.streams, 64, 64)
                answer = engine.ask([list(ask.prompt) for ask in asks], max_tokens=64, temperature=0, top_p=1)
                alone = answer["made"] / answer["seconds"]
                asks = prompter.even(setting.streams, 64, 64)
                streams, seconds = _ask(server, asks, setting.streams)
                rate = sum(s.tokens for s in streams) / seconds
                if turn:
                    setting.say(f"throughput, round {turn}: engine {alone:.0f}, server {rate:.0f} tokens/s")
                    ratios.append(rate / alone)
                    served.append((rate, alone))
    finally:
        engine.close()
    mine, alone = (statistics.median(values) for values in zip(*served, strict=True))
    against = f"the engine without HTTP: {figure(alone)}"
    name = f"output tokens/s, {setting.streams} streams, 64 in, 64 out"
    return [Result(name, mine, "tokens/s", against, statistics.median(ratios), "ratio >= 0.9")]


def itl(setting: Setting) -> list[Result]:
    """Streams that decode while long prompts arrive, one after the other."""
    prompter, found = Prompter(2), []
    with servers.ours(str(setting.model), *BATCH) as server:
        _ask(server, prompter.even(BESIDE_LONG, 64, 16), BESIDE_LONG)
        for turn in range(setting.rounds):
            streams = _run(_beside_long_prompts(server, prompter))
            gaps = [gap for each in streams for gap in each.gaps]
            middle, tail = (percentile(gaps, share) * 1000 for share in (0.5, 0.99))
            setting.say(f"itl, round {turn + 1}: p50 {middle:.0f}, p99 {tail:.0f} ms")
            found.append((middle, tail))
    middle, tail = (statistics.median(values) for values in zip(*found, strict=True))
    ratio = statistics.median(tail / middle for middle, tail in found)
    name = f"ITL p99 of {BESIDE_LONG} streams while {LONG_PROMPT}-token prompts arrive"
    return [Result(name, tail, "ms", f"p50: {figure(middle)} ms", ratio, "ratio <= 3")]


async def _beside_long_prompts(server: Server, prompter: Prompter) -> list[Stream]:
    """The streams that decoded. The long prompts ask for one token each, and end when the last stream has ended."""

    async def arrive() -> None:
        while True:
            await asyncio.sleep(PAUSE_S)
            await stream(server.port, server.model, Ask(prompter.tokens(LONG_PROMPT), 1))

    arriving = asyncio.create_task(arrive())
    try:
        asks = prompter.even(BESIDE_LONG, 64, BESIDE_LONG_TOKENS)
        found, _ = await all_of(server.port, server.model, asks, BESIDE_LONG)
    finally:
        arriving.cancel()
        (outcome,) = await asyncio.gather(arriving, return_exceptions=True)
    if not isinstance(outcome, asyncio.CancelledError):
        raise CannotRun(f"a long prompt failed: {outcome}")
    return found


def prefix(setting: Setting) -> list[Result]:
    """One request at a time, without the cache and with it in turn."""
    without, with_cache, ratios = [], [], []
    model, flags = str(setting.model), BATCH
    with servers.ours(model, *flags, "--no-prefix-caching") as off, servers.ours(model, *flags) as on:
        sharing = Prompter(3).sharing()
        for server in (off, on):
            _ask(server, list(itertools.islice(sharing, 2)), 1)
        for turn in range(setting.rounds):
            middles = []
            for server in (off, on):
                streams, _ = _ask(server, list(itertools.islice(sharing, 5)), 1)
                middles.append(statistics.median(s.ttft for s in streams) * 1000)
            setting.say(
                f"prefix, round {turn + 1}: TTFT {middles[0]:.0f} without, {middles[1]:.0f} ms with the cache"
            )
            without.append(middles[0])
            with_cache.append(middles[1])
            ratios.append(middles[0] / middles[1])
    against = f"with the prefix cache: {figure(statistics.median(with_cache))} ms"
    name = "TTFT p50 without the prefix cache, 1,000 tokens of which 900 are shared"
    return [Result(name, statistics.median(without), "ms", against, statistics.median(ratios), "ratio >= 5")]


def start_to_ready(setting: Setting) -> list[Result]:
    found = []
    for turn in range(setting.rounds):
        with servers.ours("embedded://demo") as server:
            found.append(server.ready_after)
            setting.say(f"start, round {turn + 1}: Ready after {server.ready_after:.1f} s")
    name = f"start of the process to Ready, embedded://demo, median of {setting.rounds}"
    return [Result(name, statistics.median(found), "s", goal="<= 6 s")]


def beside_vllm(setting: Setting) -> list[Result]:
    """The same conversations for both servers in turn, with other prompts of the same lengths in the next round."""
    name = f"output tokens/s, {setting.streams} streams, ShareGPT's lengths"
    with servers.ours(str(setting.model), *BATCH) as mine:
        try:
            interpreter = python("vllm", setting.say)
            with servers.vllm(interpreter, setting.model, setting.dtype) as theirs:
                setting.say(f"vLLM's server: ready after {theirs.ready_after:.0f} s")
                rounds = [_conversations(setting, turn, mine, theirs) for turn in range(setting.rounds + 1)]
        except CannotRun as error:
            figures = [_figures(setting, mine, turn) for turn in range(setting.rounds + 1)]
            against = f"vLLM's CPU server did not run: {error}"
            return [Result(name, statistics.median(f["tokens/s"] for f in figures[1:]), "tokens/s", against)]
    rows = []
    for label in rounds[0][0]:
        own, other = ([pair[side][label] for pair in rounds[1:]] for side in (0, 1))
        ratio = statistics.median(a / b for a, b in zip(own, other, strict=True))
        rate = label == "tokens/s"
        against = (
            f"vLLM's CPU server, {setting.dtype}: {figure(statistics.median(other))}{'' if rate else ' ms'}"
        )
        rows.append(
            Result(
                name if rate else f"{label}, {setting.streams} streams, ShareGPT's lengths",
                statistics.median(own),
                "tokens/s" if rate else "ms",
                against,
                ratio,
            )
        )
    return rows


def _conversations(setting: Setting, turn: int, *both: Server) -> list[dict[str, float]]:
    return [_figures(setting, server, turn) for server in both]


def _figures(setting: Setting, server: Server, turn: int) -> dict[str, float]:
    """The round 0 is not measured, and short."""
    count = setting.requests if turn else min(setting.streams, setting.requests)
    streams, seconds = _ask(server, Prompter(turn).conversations(count), setting.streams)
    gaps = [gap for each in streams for gap in each.gaps]
    firsts = [each.ttft for each in streams]
    found = {"tokens/s": sum(each.tokens for each in streams) / seconds}
    for label, values in (("TTFT", firsts), ("ITL", gaps)):
        for share in (0.5, 0.99):
            found[f"{label} p{round(share * 100)}"] = percentile(values, share) * 1000
    words = ", ".join(f"{label} {figure(value)}" for label, value in found.items())
    setting.say(f"vllm, round {turn}, port {server.port}: {words}")
    return found


def _ask(server: Server, asks: list[Ask], at_once: int) -> tuple[list[Stream], float]:
    return _run(all_of(server.port, server.model, asks, at_once))


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Raises CannotRun with the first cause."""
    try:
        return asyncio.run(work)
    except ExceptionGroup as errors:
        raise CannotRun(sentence(errors.exceptions[0])) from errors
    except (OSError, TimeoutError) as error:
        raise CannotRun(sentence(error)) from error


PARTS: dict[str, Callable[[Setting], list[Result]]] = {
    "throughput": throughput,
    "itl": itl,
    "prefix": prefix,
    "start": start_to_ready,
    "vllm": beside_vllm,
}
