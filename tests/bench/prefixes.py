"""The time to the first token where prompts begin alike, and how much of them lay in a cache: `make bench-prefixes`.

Four engines on this machine, each bound to one processor, with a model of random parameters and a KV cache that has room for a little
more than a quarter of the tenants. Nine tenths of a prompt are its tenant's. The clients send to the engines in turn, to the engine with the
fewest of their requests, to sglang-router's cache-aware policy, and to the gateway, each with tenants of its own and after requests that are
not measured. The share of cached tokens is what the engines count themselves, so it is exact on a busy machine too. At the end one
tenant alone asks through the gateway.

An engine computes prompts one after another, and all four share the processors: what one policy makes them compute anew, all wait for.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from gateway.tests.engine_process import Backend
from gateway.tests.harness import running_gateway
from tests.bench.engine import models
from tests.bench.engine.environments import CannotRun, python
from tests.bench.engine.shapes import LLAMA, Shape
from tests.bench.policies import Choose, always, by_fewest, in_turn
from tests.bench.results import Result, write
from tests.bench.serving import servers
from tests.bench.serving.asks import percentile
from tests.bench.serving.client import Ask, stream

ENGINES, TENANTS = 4, 40
PROMPT, OWN = 1000, 900
"""Tokens of a prompt, and those of them that are its tenant's."""
ANSWER = 8
AT_ONCE = 8
KEPT_TENANTS = 15
"""So many tenants' prompts have room in the cache of one engine."""
ROUTER = "sglang-router"

SMALL = Shape(
    "small",
    "a Llama of 10M random parameters",
    {
        **LLAMA.config,
        "vocab_size": 4000,
        "hidden_size": 256,
        "intermediate_size": 768,
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
)
CACHE_BYTES = int(SMALL.context_bytes(KEPT_TENANTS * PROMPT, 4))


@dataclass(frozen=True)
class Question(Ask):
    text: str = ""

    def http(self, model: str) -> bytes:
        fields = {"prompt": self.text, "max_tokens": self.max_tokens, "temperature": 0, "ignore_eos": True}
        body = json.dumps(
            {"model": model, **fields, "stream": True, "stream_options": {"include_usage": True}}
        )
        head = "POST /v1/completions HTTP/1.1\r\nhost: bench\r\nconnection: close\r\ncontent-type: application/json\r\n"
        return f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()


def questions(tenants: int, seed: str) -> Iterator[Question]:
    """Without end, of tenants at random, with one word a token. The same for the same seed."""
    rolls = random.Random(seed)

    def words(count: int) -> str:
        return " ".join(f"w{rolls.randrange(SMALL.vocab)}" for _ in range(count))

    beginnings = [words(OWN) for _ in range(tenants)]
    while True:
        yield Question((), ANSWER, f"{rolls.choice(beginnings)} {words(PROMPT - OWN)}")


def counted(ports: Sequence[int], name: str) -> list[float]:
    """A counter of each engine."""
    found = []
    for port in ports:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        found.append(
            sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"vllm:{name}_total{{"))
        )
    return found


@dataclass(frozen=True)
class Figures:
    """`cached`: share of the prompts' tokens. `shares`: each engine's part of all prompts, 1 is the mean."""

    ttft: tuple[float, ...]
    cached: float
    shares: tuple[float, ...]


async def measure(
    ports: Sequence[int], choose: Choose, asks: Iterator[Question], unmeasured: int, requests: int
) -> Figures:
    async def all_of(count: int) -> list[float]:
        waiting, found = itertools.islice(asks, count), list[float]()

        async def client() -> None:
            for ask in waiting:
                async with choose() as (port, model):
                    found.append((await stream(port, model, ask)).ttft)

        async with asyncio.TaskGroup() as clients:
            for _ in range(AT_ONCE):
                clients.create_task(client())
        return found

    await all_of(unmeasured)
    before = [await asyncio.to_thread(counted, ports, f"prefix_cache_{name}") for name in ("queries", "hits")]
    ttft = await all_of(requests)
    after = [await asyncio.to_thread(counted, ports, f"prefix_cache_{name}") for name in ("queries", "hits")]
    asked, hits = ([b - a for a, b in zip(*pair, strict=True)] for pair in zip(before, after, strict=True))
    mean = sum(asked) / len(asked)
    return Figures(tuple(ttft), sum(hits) / sum(asked), tuple(part / mean for part in asked))


@contextlib.contextmanager
def router(ports: Sequence[int], say: models.Say) -> Iterator[int]:
    """sglang-router with its cache-aware policy as it comes, in an environment of its own. The engines refuse SGLang's fields,
    so known_fields.py stands before each. Raises CannotRun."""
    with ExitStack() as stack:
        before = [
            stack.enter_context(
                servers.running(
                    f"before-{port}",
                    (sys.executable, "-m", "tests.bench.known_fields", "--to", str(port)),
                    {},
                    "/ready",
                )
            ).port
            for port in ports
        ]
        urls = [f"http://127.0.0.1:{port}" for port in before]
        flags = (
            "--policy",
            "cache_aware",
            "--host",
            "127.0.0.1",
            "--prometheus-port",
            str(servers.free_port()),
        )
        command = (str(python(ROUTER, say).parent / ROUTER), "launch", *flags, "--worker-urls", *urls)
        yield stack.enter_context(servers.running(ROUTER, command, {}, "/v1/models")).port


def run(requests: int, unmeasured: int, say: models.Say) -> list[Result]:
    model = models.model(SMALL, models.SAVED, say)
    flags = (
        "--dtype",
        "float32",
        "--max-model-len",
        "2048",
        "--max-num-seqs",
        "16",
        "--kv-cache-memory",
        str(CACHE_BYTES),
    )
    found: dict[str, Figures] = {}
    missing = ""
    with ExitStack() as stack:
        cpus = sorted(os.sched_getaffinity(0))
        say(f"starting {ENGINES} engines with {SMALL.title}")
        ports = [
            stack.enter_context(servers.ours(str(model), *flags, cpu=cpus[n % len(cpus)])).port
            for n in range(ENGINES)
        ]

        def ask(name: str, choose: Choose, tenants: int = TENANTS) -> None:
            figures = asyncio.run(measure(ports, choose, questions(tenants, name), unmeasured, requests))
            found[name] = figures
            p50, p99 = (percentile(figures.ttft, share) * 1e3 for share in (0.5, 0.99))
            shares = ", ".join(f"{share:.2f}" for share in figures.shares)
            say(
                f"{name}: TTFT p50 {p50:.0f} ms, p99 {p99:.0f} ms, {figures.cached:.0%} cached, engines {shares}"
            )

        ask("in turn", in_turn(ports))
        ask("fewest requests", by_fewest(ports))
        try:
            with router(ports, say) as port:
                ask(ROUTER, always(port, "bench"))
        except CannotRun as error:
            missing = str(error)
            say(f"{ROUTER} cannot run here: {missing}")
        gateway = stack.enter_context(running_gateway())
        gateway.endpoint(
            *(Backend(f"engine-{n}", port) for n, port in enumerate(ports)), name="bench", names=("bench",)
        )
        ask("gateway", always(gateway.port, "bench"))
        ask("one tenant", always(gateway.port, "bench"), tenants=1)
    return results(found, missing)


def results(found: dict[str, Figures], missing: str) -> list[Result]:
    def p(name: str, share: float) -> float:
        return percentile(found[name].ttft, share) * 1e3

    goals = {"in turn": "ratio <= 0.33", "fewest requests": "ratio < 1", ROUTER: "ratio <= 1"}
    rows = [
        Result(
            "TTFT p50, gateway",
            p("gateway", 0.5),
            "ms",
            f"{name}: {p(name, 0.5):.0f} ms",
            p("gateway", 0.5) / p(name, 0.5),
            goal,
        )
        for name, goal in goals.items()
        if name in found
    ]
    if missing:
        rows.append(Result(f"TTFT p50, {ROUTER}", 0, "ms", f"not measured: {missing}"))
    policies = [name for name in (*goals, "gateway") if name in found]
    rows += [Result(f"TTFT p99, {name}", p(name, 0.99), "ms") for name in policies]
    rows += [
        Result(f"tokens of prompts that lay in a cache, {name}", 100 * found[name].cached, "%")
        for name in policies
    ]
    rows += [
        Result(f"prompts of the busiest engine, {name}", max(found[name].shares), "x the mean")
        for name in policies
    ]
    hot = found["one tenant"]
    rows.append(
        Result(
            "prompts of the busiest engine, one tenant alone through the gateway",
            max(hot.shares),
            "x the mean",
            goal="<= 1.25",
        )
    )
    rows.append(
        Result("tokens that lay in a cache, one tenant alone through the gateway", 100 * hot.cached, "%")
    )
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.prefixes",
        description=__doc__,
        epilog="example, a few minutes:\n  python -m tests.bench.prefixes --requests 80 --unmeasured 60",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--requests", type=int, default=160, help="measured requests of each policy (default 160)"
    )
    parser.add_argument("--unmeasured", type=int, default=100, help="requests before them (default 100)")
    arguments = parser.parse_args(argv)
    found = run(arguments.requests, arguments.unmeasured, lambda text: print(f"  {text}", flush=True))
    write("prefixes", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
