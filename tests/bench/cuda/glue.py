"""How long each operator of engine/triton takes on CUDA, beside torch's operators for the same, in the shapes of Qwen3-0.6B: microseconds
of one launch inside of a CUDA graph.

    PYTHONPATH=server/src python -m tests.bench.cuda.glue
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

HIDDEN, HEADS, KV_HEADS, DIM, WIDTH, VOCABULARY = 1024, 16, 8, 128, 3072, 151_936
ROWS = 1, 8, 64, 256
CUDA = torch.device("cuda")
REPEATS = 50
Work = Callable[[], object]


def microseconds(work: Work) -> float:
    """Of one call, the median of ten replays of a graph of `REPEATS` calls."""
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch publishes no type
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        work()  # compiles
        work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(REPEATS):
            work()
    graph.replay()
    times = []
    for _ in range(10):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch publishes no type
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / REPEATS)
    return sorted(times)[5]


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device=CUDA, dtype=torch.bfloat16)


def eager_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """As transformers has it."""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * y.to(x.dtype)


def eager_rotate(
    qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, weight: torch.Tensor
) -> list[torch.Tensor]:
    heads = qkv.view(1, -1, HEADS + 2 * KV_HEADS, DIM)
    found = []
    for part in (slice(HEADS), slice(HEADS, HEADS + KV_HEADS)):
        x = eager_norm(heads[:, :, part], weight).transpose(1, 2)
        first, second = x.chunk(2, -1)
        found.append(x * cos[:, None] + torch.cat([-second, first], -1) * sin[:, None])
    return found


def pairs(rows: int) -> Iterator[tuple[str, Work, Work]]:
    """An operator, its kernel, and torch's."""
    from llmendpoint_server.engine.operators import Heads, Scale
    from llmendpoint_server.engine.triton.operators import TritonOperators

    ours = TritonOperators(CUDA, torch.bfloat16)
    x, residual, weight, small = drawn(1, rows, HIDDEN), drawn(1, rows, HIDDEN), drawn(HIDDEN), drawn(DIM)
    scale, each = Scale(weight.float(), 1e-6), Scale(small.float(), 1e-6)
    yield "norm", lambda: ours.norm(x, scale), lambda: eager_norm(x, weight)
    yield (
        "add, norm",
        lambda: ours.add_norm(x, residual, scale),
        lambda: eager_norm(x + residual, weight),
    )
    qkv, turns = drawn(1, rows, (HEADS + 2 * KV_HEADS) * DIM), (drawn(1, rows, DIM), drawn(1, rows, DIM))
    heads = Heads(HEADS, KV_HEADS, DIM)
    yield (
        "norm and turn heads",
        lambda: ours.rotate(qkv, turns, heads, (each, each)),
        lambda: eager_rotate(qkv, *turns, small),
    )
    halves = drawn(1, rows, 2 * WIDTH)
    yield (
        "gate",
        lambda: ours.gate(halves, "silu"),
        lambda: nn.functional.silu(halves[..., :WIDTH]) * halves[..., WIDTH:],
    )


MATMULS = {
    "norm, q/k/v": ((HEADS + 2 * KV_HEADS) * DIM, HIDDEN, True, False, False),
    "out, sum": (HIDDEN, HEADS * DIM, False, True, False),
    "norm, gate/up, gate": (2 * WIDTH, HIDDEN, True, False, True),
    "down, sum": (HIDDEN, WIDTH, False, True, False),
    "head": (VOCABULARY, HIDDEN, False, False, False),
}
"""Outputs, inputs, whether a norm comes before it, whether a sum follows, whether it is gated."""


def layers_of_few(name: str, rows: int, ahead: bool) -> tuple[Work, Work, int]:
    """A linear layer of few rows by our kernel, and by torch's matmul with our other kernels beside it; the bytes of its weight. Each call
    takes the next of some weights, which the cache does not hold together, as a step takes those of the next layer."""
    from llmendpoint_server.engine.operators import Scale
    from llmendpoint_server.engine.triton.operators import TritonOperators, Weights

    outputs, inputs, normed, added, gated = MATMULS[name]
    ours = TritonOperators(CUDA, torch.bfloat16, ahead=ahead)
    count = max(2, -(-200_000_000 // (2 * outputs * inputs)))
    several = [drawn(outputs, inputs) / inputs**0.5 for _ in range(count)]
    x, scale = drawn(1, rows, inputs), Scale(drawn(inputs).float(), 1e-6)
    residual = drawn(1, rows, outputs)
    calls = [0, 0]

    def few() -> torch.Tensor:
        calls[0] += 1
        weights = Weights(several[calls[0] % count], None, "silu" if gated else None)
        return ours.few(x, weights, scale if normed else None, residual if added else None)

    def many() -> torch.Tensor:
        calls[1] += 1
        y = nn.functional.linear(ours.norm(x, scale) if normed else x, several[calls[1] % count])
        if gated:
            return ours.gate(y, "silu")
        return y + residual if added else y

    one, other = few().float(), many().float()
    apart = float((one - other).abs().max() / other.abs().max())
    if not apart < 0.03:
        print(f"  {name} of {rows} rows is off by {apart:.2g} of torch's")
    return few, many, 2 * outputs * inputs


def print_layers_of_few() -> None:
    print("linear layers of few rows: ours / ours, asking for weights ahead / torch's (GB/s of ours)")
    for name in MATMULS:
        line = f"{name:22}"
        for rows in (1, 2, 4, 8):
            few, many, size = layers_of_few(name, rows, False)
            times = [microseconds(few), microseconds(many)]
            try:
                early = f"{microseconds(layers_of_few(name, rows, True)[0]):.1f}"
            except Exception as error:  # any: what a device or a version lacks
                early = type(error).__name__
            line += f"{times[0]:>8.1f} / {early} / {times[1]:.1f} ({size / times[0] / 1000:.0f})"
            torch.cuda.empty_cache()
        print(line)


def main() -> None:
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; microseconds, ours / torch's")
    table: dict[str, list[str]] = {}
    with torch.inference_mode():
        for rows in ROWS:
            for name, ours, theirs in pairs(rows):
                table.setdefault(name, []).append(f"{microseconds(ours):.1f} / {microseconds(theirs):.1f}")
    print(f"{'rows':22}" + "".join(f"{rows:>18}" for rows in ROWS))
    for name, times in table.items():
        print(f"{name:22}" + "".join(f"{time:>18}" for time in times))
    with torch.inference_mode():
        print_layers_of_few()


if __name__ == "__main__":
    main()
