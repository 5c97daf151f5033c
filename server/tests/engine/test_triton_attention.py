"""docs/concepts/architecture.md: our CUDA kernels give what the reference gives: windows, soft caps, sinks and heads of any size.

Triton's interpreter runs them here, in float32: it has no products in bfloat16. test_gpu.py compares them on a device.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import GONE, Sequence
from llmendpoint_server.engine.attention import choice
from llmendpoint_server.engine.attention.base import Backend, Rules, States
from llmendpoint_server.engine.attention.cache import LayerCache, PagedCache
from llmendpoint_server.engine.attention.choice import Needs, choose, reference
from llmendpoint_server.engine.attention.gathered import Gathered
from llmendpoint_server.engine.attention.trial import fails
from llmendpoint_server.engine.attention.triton import Triton, lacks
from llmendpoint_server.engine.attention.varlen import Varlen
from llmendpoint_server.engine.triton import can_launch_ahead
from llmendpoint_server.engine.triton.decode import split

CPU, CUDA, FLOAT = torch.device("cpu"), torch.device("cuda"), torch.float32
PLAIN = Rules(0.2, None, None, None)
make = partial(Triton, device=CPU, dtype=FLOAT)
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="test_gpu.py has it on the device")


def layer(kv_heads: int = 2, key_dim: int = 16, value_dim: int = 16) -> LayerCache:
    key, value = (torch.zeros(1, kv_heads, 1, dim) for dim in (key_dim, value_dim))
    return PagedCache(1, 16).layer(0, key, value, None)


@pytest.mark.parametrize(
    ("one", "rules"),
    [
        (layer(), PLAIN),
        (layer(kv_heads=1), Rules(0.2, 20, None, None)),
        (layer(), Rules(0.2, None, 5.0, None)),
        (layer(), Rules(0.2, 20, 5.0, torch.tensor([0.5, -1.0, 2.0, 0.0]))),
        (layer(), Rules(0.2, None, None, torch.tensor([0.5, -1.0, 2.0, 0.0, 1.0, 3.0]))),
        (layer(key_dim=24, value_dim=20), PLAIN),
    ],
    ids=[
        "plain",
        "window",
        "soft cap",
        "window, cap and sinks",
        "three heads for a key head",
        "uneven heads",
    ],
)
def test_every_position_equals_the_references(one: LayerCache, rules: Rules) -> None:
    assert fails(make, reference(CPU, FLOAT), (one,), (rules,)) is None


def attended(
    backend: Backend, sequences: list[Sequence], counts: list[int], padding: int = 0
) -> torch.Tensor:
    """The last `counts` tokens of each sequence attend in one step; what lies before them is written by another one."""
    random = torch.Generator().manual_seed(3)
    kept = [len(one.tokens) - count for one, count in zip(sequences, counts, strict=True)]
    spans = [list(zip([0] * len(kept), kept, strict=True)), list(zip(kept, counts, strict=True))]
    for number, span in enumerate(spans):
        rows = [Scheduled(one, *part) for one, part in zip(sequences, span, strict=True) if part[1]]
        batch = Batch(tuple(rows), 0.0)
        states = States(*(torch.randn(1, heads, batch.tokens, 16, generator=random) for heads in (4, 2, 2)))
        if padding and number:
            more = [torch.cat([x, torch.zeros(1, x.shape[1], padding, 16)], 2) for x in states]
            states = States(*more)
        with torch.inference_mode():
            spare = [spare_row(backend.cache.pages - 1)] * (padding if number else 0)
            out = backend.attend(backend.prepare(batch, spare), 0, *states, PLAIN)
    return out


def spare_row(page: int) -> Scheduled:
    return Scheduled(Sequence(Request("s", (0,), SamplingParams(1)), 0, [0], [], table=[page]), 0, 1)


def sequences_of(lengths: list[int]) -> list[Sequence]:
    pages = iter(range(200, -1, -1))
    return [
        Sequence(Request(str(n), (0,), SamplingParams(1)), 0, [0] * length, [], table=[next(pages) for _ in range(-(-length // 16))])
        for n, length in enumerate(lengths)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lengths", "counts", "padding"),
    [
        ([1, 17, 64, 400], [1] * 4, 0),
        ([3, 300], [1, 1], 2),
        ([40, 90, 300, 33], [1, 1, 200, 33], 0),
        ([130, 129, 2], [130, 1, 2], 0),
        ([5] * 33, [1] * 33, 0),
    ],
    ids=["decodes", "padded decodes", "decodes and prompts", "whole prompts", "many rows"],
)
def test_a_step_of_any_rows_equals_the_references(
    lengths: list[int], counts: list[int], padding: int
) -> None:
    found = attended(make(202), sequences_of(lengths), counts, padding)
    expected = attended(Gathered(202, 16, CPU, FLOAT), sequences_of(lengths), counts)
    torch.testing.assert_close(found[: len(expected)], expected, rtol=1e-4, atol=1e-4)


def test_what_pages_held_before_is_not_seen_even_if_it_is_no_number() -> None:
    backend = make(202)
    states = (torch.zeros(1, 2, 1, 16) for _ in range(2))
    pages = backend.cache.layer(0, *states, None)
    pages.keys.fill_(float("nan"))
    pages.values.fill_(float("nan"))
    assert attended(backend, sequences_of([5, 70, 33]), [1, 1, 20]).isfinite().all()


def test_a_page_that_a_window_has_passed_is_not_read() -> None:
    sequence = sequences_of([100])[0]
    backend = make(202)
    rules = Rules(0.2, 20, None, None)
    for start, count in ((0, 90), (90, 9), (99, 1)):
        if start:
            sequence.table[: (start - 20) // 16] = [GONE] * ((start - 20) // 16)
        shapes = (torch.randn(1, heads, count, 16) for heads in (4, 2, 2))
        step = backend.prepare(Batch((Scheduled(sequence, start, count),), 0.0))
        assert backend.attend(step, 0, *shapes, rules).isfinite().all()


def test_the_fewer_rows_the_more_parts_and_never_more_than_the_longest_sequence_needs() -> None:
    parts = [split(rows, 100_000).parts for rows in (1, 16, 64, 256)]
    assert parts == sorted(parts, reverse=True)
    assert split(1, 400).parts == 4
    assert all(split(rows, 10).parts == 1 for rows in (1, 16, 64, 256))


@pytest.mark.parametrize(
    ("dtype", "one", "lack"),
    [
        (torch.bfloat16, layer(), None),
        (torch.float32, layer(key_dim=192, value_dim=128), None),
        (torch.float64, layer(), "do not compute in float64"),
        (torch.bfloat16, layer(key_dim=512, value_dim=512), "no heads of 512 and 512"),
    ],
)
def test_the_kernels_serve_only_what_they_have(dtype: torch.dtype, one: LayerCache, lack: str | None) -> None:
    found = lacks(dtype, one, PLAIN)
    assert found is None if lack is None else lack in str(found)


def test_without_triton_another_backend_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmendpoint_server.engine.attention.triton.missing", "triton is not installed")
    monkeypatch.setattr(choice, "fails", lambda *_: None)
    made = choose(Needs(CUDA, torch.bfloat16, (layer(),), (PLAIN,)), None)
    assert isinstance(made, partial)
    assert made.func is Varlen


def test_on_cuda_they_serve_first_also_with_sinks_and_soft_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "fails", lambda *_: None)
    rules = Rules(0.2, 20, 5.0, torch.zeros(4))
    made = choose(Needs(CUDA, torch.bfloat16, (layer(), layer()), (PLAIN, rules)), None)
    assert isinstance(made, partial)
    assert made.func is Triton


@pytest.mark.parametrize(
    ("capability", "hip", "can"), [((9, 0), None, True), ((8, 9), None, False), ((9, 4), "7.2", False)]
)
def test_kernels_are_launched_ahead_on_nvidia_devices_from_hopper_on(
    capability: tuple[int, int], hip: str | None, can: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An MI300X counts as a CUDA device of compute capability 9.4, and has no such launch: no kernel would compile."""
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: capability)
    monkeypatch.setattr("torch.version.hip", hip)
    assert can_launch_ahead(CUDA) is can
