"""docs/contribute/contracts.md: the sampler that a CUDA graph holds draws the tokens that the other one draws.

Its kernels run in Triton's interpreter here; test_gpu.py has them on a device.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.sampling import static
from llmendpoint_server.engine.sampling.rows import NOT_A_NUMBER
from llmendpoint_server.engine.sampling.sampler import Sampler
from llmendpoint_server.engine.sampling.static import Parameters, Stages
from llmendpoint_server.engine.triton import sampling as kernels

CPU = torch.device("cpu")
PARAMS = st.builds(
    SamplingParams,
    st.just(8),
    temperature=st.one_of(st.just(1.0), st.floats(0.01, 2), st.just(1e-40)),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 1), st.just(1e-30)),
    top_k=st.one_of(st.just(0), st.integers(1, 20), st.just(10**9)),
)


def sequence(params: SamplingParams, seed: int) -> Sequence:
    return Sequence(Request("r", (0,), params), seed, [0], [])


def statically(logits: torch.Tensor, sequences: list[Sequence], stages: Stages = static) -> list[int]:
    """With the filters, and without them if no row asks for one."""
    parameters = Parameters(len(sequences), CPU)
    parameters.load(sequences, len(sequences))
    highest, tokens = torch.empty(len(sequences)), torch.empty(len(sequences), dtype=torch.int64)
    params = [one.request.sampling for one in sequences]
    found = []
    for filtered in (True, any(one.top_p < 1 or one.top_k for one in params)):
        stages.most_probable(logits, highest, tokens)
        stages.draw(logits, highest, parameters.array(len(sequences)), tokens, filtered)
        found.append(tokens.tolist())
    assert found[0] == found[1]
    return found[0]


@settings(deadline=None, max_examples=200)
@given(
    params=st.lists(PARAMS, min_size=1, max_size=4),
    size=st.sampled_from([1, 2, 127, 600, 5000]),
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.0, 1.0, 3.0, 50.0]),
    step=st.sampled_from([0.0, 0.5]),
)
def test_every_row_gets_the_token_of_the_other_sampler(
    params: list[SamplingParams], size: int, seed: int, spread: float, step: float
) -> None:
    logits = torch.randn(len(params), size, generator=torch.Generator().manual_seed(seed)) * spread
    if step:  # many equal logits
        logits = (logits / step).round() * step
    sequences = [sequence(one, seed + n) for n, one in enumerate(params)]
    assert statically(logits, sequences) == Sampler()(logits, sequences)


def test_rows_that_are_drawn_in_slices_get_the_same_tokens(monkeypatch) -> None:  # type: ignore[no-untyped-def]  # pytest's
    logits = torch.randn(5, 300, generator=torch.Generator().manual_seed(1)) * 2
    sequences = [sequence(SamplingParams(8, temperature=1.0, top_p=0.9), n) for n in range(5)]
    whole = statically(logits, sequences)
    monkeypatch.setattr(static, "WEIGHTS_AT_ONCE", 600)
    assert statically(logits, sequences) == whole


@pytest.mark.parametrize("stages", [static, kernels], ids=["torch", "kernels"])
def test_a_row_that_is_no_number_disturbs_no_other(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "CHUNK", 256)
    logits = torch.randn(3, 300, generator=torch.Generator().manual_seed(1)) * 2
    sequences = [sequence(SamplingParams(8, temperature=1.0, top_p=0.9, top_k=20), n) for n in range(3)]
    expected = statically(logits, sequences)
    logits[1, 7] = torch.nan
    assert statically(logits, sequences, stages) == [expected[0], NOT_A_NUMBER, expected[2]]


@pytest.mark.skipif(torch.cuda.is_available(), reason="test_gpu.py has it on the device")
@pytest.mark.parametrize("step", [0.0, 1.0], ids=["", "many equal logits"])
def test_the_kernels_draw_the_same_tokens(step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "CHUNK", 256)
    asked = [
        (1.0, 0.9, 0),
        (0.7, 1.0, 5),
        (0, 1.0, 0),
        (2.0, 0.5, 40),
        (1.0, 1.0, 0),
        (1e-40, 0.3, 599),
        (1.0, 1e-9, 0),
    ]
    logits = torch.randn(len(asked), 600, generator=torch.Generator().manual_seed(1)) * 2
    if step:
        logits = (logits / step).round() * step
    sequences = [
        sequence(SamplingParams(8, temperature=temperature, top_p=top_p, top_k=top_k), n)
        for n, (temperature, top_p, top_k) in enumerate(asked)
    ]
    assert statically(logits, sequences, kernels) == Sampler()(logits, sequences)
