"""Size, output tokens per second and quality of weights in 8 and 4 bits beside bfloat16 and float32: `make bench-weights`.

Size and speed: one Llama of 134M random parameters, the shape of `make bench-engine`. Random weights are saved in bfloat16 for all but float32,
which gets weights that only float32 holds. All run in turn (A, B, C, A, …) in one process; the figures are medians, the ratios medians of the
ratios within a turn. On a machine without bfloat16 arithmetic "bfloat16" are weights that are kept in it and computed in float32.
The load with a long context is for the KV cache in 8 bits, which counts there.

On a machine that others use, too, threads that wait for one another spoil every figure. `--busy` then takes one thread, the time that
the processor spent instead of the time that passed, and no long context.

Quality: the demo model, on the tokens of its answers to 20 questions, as server/tests/demo/test_precision.py measures it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.linear import NativeLinear
from llmendpoint_server.engine.loop import Engine, make_scheduler
from llmendpoint_server.engine.machine import spin_briefly
from llmendpoint_server.protocol import Configure
from llmendpoint_server.weights.locate import resolve_model
from server.tests.demo.test_precision import beside_fp32
from tests.bench.engine.shapes import LLAMA
from tests.bench.results import Result, write

TOKENS_IN, TOKENS_OUT = 64, 64
LONG_CONTEXT, LONG_ANSWER = 1536, 128
AT_ONCE = (1, 8, 16)
BASE = "bfloat16"


@dataclass(frozen=True)
class Kind:
    name: str
    saved: torch.dtype = torch.bfloat16
    flags: dict[str, Any] = field(default_factory=dict)


KINDS = (
    Kind(BASE),
    Kind("float32", torch.float32, {"dtype": "float32"}),
    Kind("int8", flags={"quantization": "int8"}),
    Kind("int4", flags={"quantization": "int4"}),
    Kind("KV cache int8", flags={"kv_cache_dtype": "int8"}),
    Kind("KV cache fp8", flags={"kv_cache_dtype": "fp8"}),
)
QUALITY: dict[str, dict[str, Any]] = {
    "int8": {"quantization": "int8"},
    "int4": {"quantization": "int4"},
    "KV cache int8": {"kv_cache_dtype": "int8"},
    "KV cache fp8": {"kv_cache_dtype": "fp8"},
}
GOALS = {
    "int8": ("value >= 99", "value <= 2"),
    "int4": ("value >= 97", "value <= 15"),
    "KV cache int8": ("value >= 99", "value <= 1"),
    "KV cache fp8": ("value >= 99", "value <= 4"),
}
"""The bounds of server/tests/demo/test_precision.py, in percent: tokens that agree, and the error of the logits."""


def save_model(folder: Path, saved: torch.dtype) -> Path:
    torch.manual_seed(0)
    options = {key: value for key, value in LLAMA.config.items() if key != "model_type"}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **options))
    model.to(saved).save_pretrained(folder)
    return folder


def weight_bytes(model: Any) -> int:
    """Of the linear layers as the kernels read them."""
    layers = [module for module in model.modules() if isinstance(module, NativeLinear)]
    parts = [part for layer in layers for part in (layer._weight, layer._scale, layer._zero)]
    return sum(part.nbytes for part in parts if part is not None)


def rate(
    engine: Engine, prompts: list[tuple[int, ...]], tokens_out: int, clock: Callable[[], float]
) -> float:
    """Answers the prompts, all at once; output tokens per second of the clock."""
    sampling = SamplingParams(tokens_out, temperature=0, ignore_eos=True)
    start = clock()
    for n, prompt in enumerate(prompts):
        engine.add(Request(str(n), prompt, sampling))
    made = 0
    while not engine.scheduler.idle:
        made += sum(len(output.tokens) for output in engine.step())
    return made / (clock() - start)


def prompts(count: int, length: int, turn: int) -> list[tuple[int, ...]]:
    return [
        tuple(1 + (7919 * (turn * 64 + n + 1) + 31 * i) % (LLAMA.vocab - 1) for i in range(length))
        for n in range(count)
    ]


def make_engines(folder: Path) -> tuple[dict[str, Engine], dict[str, int]]:
    saved = {dtype: save_model(folder / str(dtype), dtype) for dtype in (torch.bfloat16, torch.float32)}
    engines, sizes = {}, {}
    for kind in KINDS:
        settings = Configure(
            str(saved[kind.saved]), device="cpu", max_num_seqs=max(AT_ONCE), max_batched_tokens=512,
            kv_cache_memory=2**29, prefix_caching=False, **kind.flags,
        )  # fmt: skip
        runner, info = load(settings)
        engines[kind.name] = Engine(runner, make_scheduler(settings, info))
        sizes[kind.name] = weight_bytes(runner.model)
        print(f"{kind.name}: {info.dtype}, {info.kernels}, {info.kv_pages} pages", flush=True)
    return engines, sizes


def speeds(engines: dict[str, Engine], rounds: int, busy: bool) -> list[Result]:
    loads = [(f"{n} at a time", n, TOKENS_IN, TOKENS_OUT) for n in AT_ONCE]
    if not busy:
        loads.append((f"4 at a time after {LONG_CONTEXT} tokens", 4, LONG_CONTEXT, LONG_ANSWER))
    clock, unit = (time.process_time, "tokens/CPU s") if busy else (time.perf_counter, "tokens/s")
    results = []
    for title, count, tokens_in, tokens_out in loads:
        found: dict[str, list[float]] = {name: [] for name in engines}
        for turn in range(rounds + 1):
            for name, engine in engines.items():
                made = rate(engine, prompts(count, tokens_in, turn), tokens_out, clock)
                if turn:  # the first round is not measured
                    found[name].append(made)
                    print(f"  {title}, {name}: {made:.0f} {unit}", flush=True)
        base = found[BASE]
        for name, rates in found.items():
            ratio = statistics.median(a / b for a, b in zip(rates, base, strict=True))
            goal = "ratio >= 1" if name in ("int8", "int4") and count == 1 else ""
            compared = "" if name == BASE else f"{BASE}: {statistics.median(base):.0f}"
            results.append(
                Result(f"output tokens, {title}, {name}", statistics.median(rates), unit, compared,
                       None if name == BASE else ratio, goal)
            )  # fmt: skip
    return results


def quality() -> list[Result]:
    results = []
    for name, flags in QUALITY.items():
        found = beside_fp32(Configure(str(resolve_model("embedded://demo")), device="cpu", **flags))
        share, off = 100 * found.agreed, 100 * found.off
        results += [
            Result(f"tokens that agree with float32, {name}", share, "%", f"of {found.tokens} tokens", None, GOALS[name][0]),
            Result(f"error of the logits, {name}", off, "%", "their spread in float32", None, GOALS[name][1]),
        ]  # fmt: skip
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", action="store_true", help="one thread, by the processor's time")
    asked = parser.parse_args()
    if asked.busy:
        os.environ["OMP_NUM_THREADS"] = "1"
    else:
        spin_briefly()
    with tempfile.TemporaryDirectory() as folder:
        engines, sizes = make_engines(Path(folder))
        weights = [
            Result(f"weights of linear layers, {kind}", sizes[kind] / 1e6, "MB", f"{BASE}: {sizes[BASE] / 1e6:.0f} MB",
                   sizes[kind] / sizes[BASE])
            for kind in ("float32", "int8", "int4")
        ]  # fmt: skip
        write("weights", [*weights, *speeds(engines, asked.rounds, asked.busy), *quality()])


if __name__ == "__main__":
    main()
