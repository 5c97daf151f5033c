"""Output tokens per second beside transformers' own `generate` and continuous batching: `make bench-engine`.

One Llama of 110M random parameters, 64 tokens in, 64 out, greedy, prefill included, at 1, 8 and 16 at a time; all
three with the same weights, data type and number of threads. They run in turn (A, B, C, A, …) with prompts that never
repeat, so that a noisy machine spoils all alike and no prefix cache helps; the figures are medians, the ratios medians
of the ratios within a turn.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig, LlamaConfig

from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.engine.loading import choose_device, choose_dtype
from llmendpoint_server.engine.loop import Engine, make_scheduler
from llmendpoint_server.engine.machine import spin_briefly
from llmendpoint_server.engine.runner import load
from llmendpoint_server.protocol import Configure
from llmendpoint_server.resources import usable_threads
from tests.bench.results import Result, write

CONCURRENCIES = (1, 8, 16)
TOKENS_IN, TOKENS_OUT = 64, 64
VOCAB = 32_000
CONFIG = LlamaConfig(
    vocab_size=VOCAB,
    hidden_size=768,
    intermediate_size=2048,
    num_hidden_layers=12,
    num_attention_heads=12,
    num_key_value_heads=12,
    max_position_embeddings=1024,
    eos_token_id=None,
)
OURS, GENERATE, BATCHING = "llmendpoint", "generate", "continuous batching"

Prompts = list[list[int]]
Contender = Callable[[Prompts], int]
"""Answers the prompts, all at once, and returns how many tokens it made."""
Maker = Callable[[Path, torch.dtype], Contender]


def save_model(folder: Path) -> None:
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(CONFIG).save_pretrained(folder)


def reference_model(folder: Path, dtype: torch.dtype) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").eval()


def make_ours(folder: Path, dtype: torch.dtype) -> Contender:
    name = str(dtype).removeprefix("torch.")
    settings = Configure(str(folder), dtype=name, max_num_seqs=max(CONCURRENCIES), kv_cache_memory=2**30)  # type: ignore[arg-type]  # one of its names
    runner, info = load(settings)
    engine = Engine(runner, make_scheduler(settings, info))
    engine.warm_up(info.max_model_len)
    sampling = SamplingParams(TOKENS_OUT, temperature=0, ignore_eos=True)

    def run(prompts: Prompts) -> int:
        for n, prompt in enumerate(prompts):
            engine.add(Request(str(n), tuple(prompt), sampling))
        made = 0
        while not engine.scheduler.idle:
            made += sum(len(output.tokens) for output in engine.step())
        return made

    return run


def make_generate(folder: Path, dtype: torch.dtype) -> Contender:
    model = reference_model(folder, dtype)

    def run(prompts: Prompts) -> int:
        ids = torch.tensor(prompts)
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=TOKENS_OUT,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        return int(out.numel() - ids.numel())

    return run


def make_batching(folder: Path, dtype: torch.dtype) -> Contender:
    model = reference_model(folder, dtype)
    generation = GenerationConfig(max_new_tokens=TOKENS_OUT, do_sample=False, eos_token_id=-1, pad_token_id=0)
    # Room for every sequence at its longest and for all prompts in one batch: it never waits for memory. Left out, the
    # most requests at a time are what the first call brought: one.
    batching = ContinuousBatchingConfig(
        page_size=32, num_blocks=128, max_batch_tokens=1024, max_requests_per_batch=max(CONCURRENCIES)
    )

    def run(prompts: Prompts) -> int:
        outputs = model.generate_batch(
            prompts,
            generation_config=generation,
            continuous_batching_config=batching,
            persistent_manager=True,
        )
        return sum(len(output.generated_tokens) for output in outputs.values())

    return run


MAKERS: dict[str, Maker] = {OURS: make_ours, GENERATE: make_generate, BATCHING: make_batching}


def serve(name: str, folder: Path, dtype: torch.dtype, pipe: Connection) -> None:
    """A contender's process: answers prompts from the pipe with (tokens made, seconds), until the pipe closes."""
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(usable_threads())
    run = MAKERS[name](folder, dtype)
    pipe.send("ready")
    with contextlib.suppress(EOFError):
        while True:
            prompts = pipe.recv()
            start = time.perf_counter()
            made = run(prompts)
            pipe.send((made, time.perf_counter() - start))


@contextlib.contextmanager
def processes(folder: Path, dtype: torch.dtype) -> Iterator[dict[str, Connection]]:
    """The contenders, loaded, each at the other end of its pipe."""
    spawn = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    started = []
    for name in MAKERS:
        pipes[name], theirs = spawn.Pipe()
        started.append(spawn.Process(target=serve, args=(name, folder, dtype, theirs), daemon=True))
        started[-1].start()
        theirs.close()  # so that a contender that dies is an EOFError here
        pipes[name].recv()
    try:
        yield pipes
    finally:
        for process in started:
            process.terminate()
            process.join()


class Prompter:
    """Prompts that share no prefix with any before."""

    def __init__(self) -> None:
        self._random = random.Random(1)

    def __call__(self, count: int) -> Prompts:
        return [[self._random.randrange(2, VOCAB) for _ in range(TOKENS_IN)] for _ in range(count)]


def measure(
    pipes: dict[str, Connection], concurrency: int, rounds: int, prompter: Prompter
) -> dict[str, list[float]]:
    """Tokens per second of each contender in each round; one unmeasured round comes first."""
    found: dict[str, list[float]] = {name: [] for name in pipes}
    for turn in range(rounds + 1):
        for name, pipe in pipes.items():
            pipe.send(prompter(concurrency))
            made, seconds = pipe.recv()
            if made != concurrency * TOKENS_OUT:
                raise RuntimeError(f"{name} made {made} tokens, not {concurrency * TOKENS_OUT}")
            if turn:
                found[name].append(made / seconds)
                rate = f"{name} {made / seconds:.0f} tokens/s"
                print(f"  {concurrency:2} at a time, round {turn}: {rate}", flush=True)
    return found


def limit(concurrency: int, element_bytes: int, bandwidth: float, flops: float) -> float:
    """Most tokens/s that decoding can reach: per step the weights and the mean context are read once, and each token
    costs two operations per parameter."""
    parameters = 12 * (4 * 768**2 + 3 * 768 * 2048) + VOCAB * 768
    context = concurrency * (TOKENS_IN + TOKENS_OUT / 2) * 2 * 12 * 768 * element_bytes
    seconds = max((parameters * element_bytes + context) / bandwidth, 2 * parameters * concurrency / flops)
    return concurrency / seconds


def machine_limits(dtype: torch.dtype) -> tuple[float, float]:
    """Bytes/s of reading memory and operations/s of a large matmul, best of several."""
    block = torch.ones(64 * 2**20, dtype=torch.float32)
    left, right = torch.randn(1024, 1024).to(dtype), torch.randn(1024, 1024).to(dtype)
    reading = min(_seconds(block.sum) for _ in range(5))
    multiplying = min(_seconds(lambda: left @ right) for _ in range(5))
    return block.nbytes / reading, 2 * 1024**3 / multiplying


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def results(concurrency: int, rates: dict[str, list[float]], most: float, dtype: str) -> Sequence[Result]:
    metric = f"output tokens/s, {concurrency} at a time, {dtype}"
    ours = statistics.median(rates[OURS])
    goals = {GENERATE: "ratio >= 0.95", BATCHING: "ratio >= 1.3" if concurrency > 1 else ""}
    rows = []
    for name, goal in goals.items():
        ratio = statistics.median(a / b for a, b in zip(rates[OURS], rates[name], strict=True))
        against = f"transformers {transformers.__version__} {name}: {statistics.median(rates[name]):.0f}"
        rows.append(Result(metric, ours, "tokens/s", against, ratio, goal))
    rows.append(
        Result(metric, ours, "tokens/s", f"this machine's limit for decoding: {most:.0f}", ours / most)
    )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.engine",
        description=__doc__,
        epilog="example: python -m tests.bench.engine --rounds 3 --dtype bfloat16",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds, at least 3 (default 5)")
    parser.add_argument("--dtype", choices=("auto", "bfloat16", "float32"), default="auto")
    arguments = parser.parse_args()
    if arguments.rounds < 3:
        parser.error(f"--rounds is {arguments.rounds}; a median needs at least 3")
    spin_briefly()  # as the engine process does; the contenders, started below, inherit it
    torch.set_num_threads(usable_threads())
    dtype = choose_dtype(arguments.dtype, choose_device("cpu"), None)
    name = str(dtype).removeprefix("torch.")
    with tempfile.TemporaryDirectory() as folder:
        print(f"a Llama of 110M random parameters, {name}, {torch.get_num_threads()} threads", flush=True)
        save_model(Path(folder))
        bandwidth, flops = machine_limits(dtype)
        print(f"reads {bandwidth / 1e9:.1f} GB/s, multiplies {flops / 1e9:.0f} GFLOPS", flush=True)
        rows: list[Result] = []
        prompter = Prompter()
        with processes(Path(folder), dtype) as pipes:
            for concurrency in CONCURRENCIES:
                rates = measure(pipes, concurrency, arguments.rounds, prompter)
                rows += results(
                    concurrency, rates, limit(concurrency, dtype.itemsize, bandwidth, flops), name
                )
    write("engine", rows)


if __name__ == "__main__":
    main()
