"""The engine on a CUDA device, in the shapes of Qwen3-0.6B with random weights in bfloat16.

python -m tests.bench.cuda [--profile] [--peers]
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import random
import time

import torch

from tests.bench.cuda import attention, model
from tests.bench.cuda.device import CUDA, Limits, limits
from tests.bench.results import Result, write

SEQUENCES, SHORTEST, LONGEST = 256, 100, 1024


def lengths() -> list[tuple[int, int]]:
    """Of prompt and answer."""
    draw = random.Random(0)
    return [(draw.randint(SHORTEST, LONGEST), draw.randint(SHORTEST, LONGEST)) for _ in range(SEQUENCES)]


def ideal(limit: Limits, weights: int, wanted: list[tuple[int, int]]) -> tuple[float, float]:
    """Seconds that the device needs at least: for the prompts' products, and for the answers. In each step it reads the weights
    once, and the keys and values of each sequence that is not at its end."""
    prompts = sum(prompt for prompt, _ in wanted)
    prefill = 2 * (weights / 2) * prompts / limit.operations_per_s
    steps = max(answer for _, answer in wanted)
    contexts = sum(prompt * answer + answer * answer // 2 for prompt, answer in wanted)
    return prefill, (steps * weights + contexts * model.KV_BYTES) / limit.bytes_per_s


def single(served: model.Served, limit: Limits, weights: int) -> list[Result]:
    model.run(served, [model.request("warm0", 128, 16)])
    run = model.run(served, [model.request("one1", 128, 513)])
    step = (run.seconds - run.first_s) / 512
    need = (weights + (128 + 256) * model.KV_BYTES) / limit.bytes_per_s
    share = need / step
    return [
        Result(
            "1 at a time, 128 in, 512 out",
            1 / step,
            "tokens/s",
            "the limit of the bandwidth",
            share,
            "ratio >= 0.50",
        )
    ]


def many(served: model.Served, limit: Limits, weights: int, temperature: float) -> list[Result]:
    wanted = lengths()
    run = model.run(
        served, [model.request(f"many{n}at{temperature}", *one, temperature) for n, one in enumerate(wanted)]
    )
    prefill, decode = ideal(limit, weights, wanted)
    tokens = sum(answer for _, answer in wanted)
    assert run.tokens == tokens
    print(f"{run.steps} steps, the last first token after {run.first_s:.2f} s", flush=True)
    kind = "greedy" if not temperature else f"temperature {temperature}"
    name = f"{SEQUENCES} sequences, {SHORTEST} to {LONGEST} in and out, {kind}"
    share = (prefill + decode) / run.seconds
    after = decode / (run.seconds - run.first_s)
    return [
        Result(name, tokens / run.seconds, "tokens/s", "the device's limit", share),
        Result(f"{name}: after the last first token", tokens / (run.seconds - run.first_s), "tokens/s", "the limit of decoding", after, "ratio >= 0.65"),
        Result(f"{name}: until the last first token", run.first_s, "s", f"the limit of the prompts, {prefill:.2f} s", run.first_s / prefill),
    ]  # fmt: skip


def peers(wanted: list[tuple[int, int]]) -> list[Result]:
    """transformers' continuous batching, with the same requests."""
    from transformers import AutoModelForCausalLM, GenerationConfig

    found = []
    for implementation in ("sdpa_paged", "paged|sdpa"):
        try:
            loaded = AutoModelForCausalLM.from_pretrained(
                model.saved(), dtype=torch.bfloat16, attn_implementation=implementation
            )
            loaded = loaded.to(CUDA).eval()
            some = wanted[:64]
            config = GenerationConfig(
                max_new_tokens=256, do_sample=False, eos_token_id=-1, pad_token_id=0, max_batch_tokens=4096
            )
            prompts = [
                list(model.request(f"peer{n}", prompt, 1).prompt) for n, (prompt, _) in enumerate(some)
            ]
            began = time.monotonic()
            outputs = loaded.generate_batch(inputs=prompts, generation_config=config)
            took = time.monotonic() - began
            tokens = sum(len(one.generated_tokens) for one in outputs.values())
            found.append(
                Result("transformers' continuous batching, 64 sequences, 256 out", tokens / took, "tokens/s")
            )
            break
        except Exception as error:  # any: a peer that does not run is a line that says why
            print(
                f"transformers' continuous batching ({implementation}): {type(error).__name__}: {str(error)[:300]}"
            )
    return found


def profile(served: model.Served) -> None:
    """Where the time of a step of all sequences goes: on the device, and in Python."""
    engine = served.engine
    for rows in (1, SEQUENCES):
        for n in range(rows):
            engine.add(model.request(f"profile{rows}x{n}", 600, 400))
        while engine.scheduler.waiting:
            engine.step()
        for _ in range(20):
            engine.step()
        with torch.profiler.profile() as kernels:
            for _ in range(4):
                engine.step()
        print(f"== {rows} rows: kernels of 4 steps")
        print(
            kernels.key_averages().table(
                sort_by="self_cuda_time_total", row_limit=22, max_name_column_width=70
            )
        )
        python = cProfile.Profile()
        began = time.monotonic()
        python.enable()
        for _ in range(50):
            engine.step()
        python.disable()
        print(f"== {rows} rows: Python of 50 steps, {(time.monotonic() - began) / 50 * 1e3:.2f} ms each")
        pstats.Stats(python).sort_stats("tottime").print_stats(18)
        began = time.monotonic()
        for _ in range(50):
            engine.step()
        print(f"== {rows} rows: {(time.monotonic() - began) / 50 * 1e3:.3f} ms a step")
        for n in range(rows):
            engine.abort(f"profile{rows}x{n}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", action="store_true", help="also print where the time goes")
    parser.add_argument("--peers", action="store_true", help="also run transformers' continuous batching")
    parser.add_argument("--attention", action="store_true", help="also measure the attention kernels alone")
    arguments = parser.parse_args()
    limit = limits()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: {limit.bytes_per_s / 1e12:.2f} TB/s, {limit.operations_per_s / 1e12:.0f} TFLOP/s", flush=True)  # fmt: skip
    if arguments.attention:
        attention.main(limit)
    served = model.served()
    weights = model.WEIGHTS
    print(f"loaded in {served.seconds:.1f} s; {type(served.runner.backend).__name__}; weights {weights / 1e9:.2f} GB; graphs {served.runner._graphs is not None}", flush=True)  # fmt: skip
    results = single(served, limit, weights)
    print(results, flush=True)
    for temperature in (0.0, 0.8):
        results += many(served, limit, weights, temperature)
        print(results[-3:], flush=True)
    if arguments.profile:
        profile(served)
    write("cuda", results)
    if arguments.peers:
        del served
        gc.collect()
        torch.cuda.empty_cache()
        write("cuda", results + peers(lengths()))


if __name__ == "__main__":
    main()
