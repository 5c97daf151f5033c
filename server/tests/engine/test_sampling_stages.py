"""docs/contribute/contracts.md: top_p and top_k keep the tokens that a sort of the whole vocabulary would keep."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmendpoint_server.core.randomness import uniform
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.sampling.draws import draw, most_probable
from llmendpoint_server.engine.sampling.rows import RowsOfBatch
from llmendpoint_server.engine.sampling.sampler import Sampler
from llmendpoint_server.engine.sampling.weights import weigh

CPU = torch.device("cpu")


def sequence(params: SamplingParams, seed: int = 1, position: int = 1) -> Sequence:
    return Sequence(Request("r", (0,), params), seed, [0] * position, [])


def by_sorting(weights: torch.Tensor, params: SamplingParams, noise: float) -> int:
    """The token of one row, by a stable sort of all of its weights."""
    ordered, order = torch.sort(weights.long(), descending=True, stable=True)
    if params.top_k:
        ordered[params.top_k :] = 0
    sums = ordered.cumsum(0)
    enough = sums - ordered >= params.top_p * sums[-1].double()
    enough[0] = False
    cumulative = torch.zeros_like(ordered).scatter(0, order, ordered.masked_fill(enough, 0)).cumsum(0)
    total = int(cumulative[-1])
    target = min(int(noise * float(total)), total - 1)
    return int(torch.searchsorted(cumulative, target, right=True))


PARAMS = st.builds(
    SamplingParams,
    st.just(8),
    temperature=st.one_of(st.just(1.0), st.floats(0.01, 2), st.just(1e-40)),
    top_p=st.one_of(st.just(1.0), st.just(0.95), st.floats(1e-20, 1, exclude_min=True)),
    top_k=st.one_of(st.just(0), st.just(1), st.integers(1, 700)),
)
STEPS = [0.0, 0.25, 1.0]
"""Logits are rounded to multiples of this, which gives equal ones; 0 leaves them."""


def some_logits(size: int, seed: int, spread: float, step: float, excluded: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(1, size, generator=generator) * spread
    if step:
        logits = (logits / step).round() * step
    masked = torch.rand(1, size, generator=generator) < excluded
    masked[0, seed % size] = False
    return logits.masked_fill(masked, -torch.inf)


@settings(deadline=None, max_examples=300)
@given(
    params=PARAMS,
    size=st.sampled_from([1, 2, 127, 128, 129, 600, 5000]),
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.0, 1.0, 3.0, 50.0]),
    step=st.sampled_from(STEPS),
    excluded=st.sampled_from([0.0, 0.9]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_a_token_is_the_one_that_a_sort_of_the_vocabulary_gives(
    params: SamplingParams,
    size: int,
    seed: int,
    spread: float,
    step: float,
    excluded: float,
    dtype: torch.dtype,
) -> None:
    logits = some_logits(size, seed, spread, step, excluded).to(dtype)
    one = sequence(params, seed, position=3)
    rows, noise = RowsOfBatch()([one], CPU)
    weights = weigh(logits, logits.amax(-1), rows.temperature)
    assert Sampler()(logits, [one]) == [by_sorting(weights[0], params, uniform(seed, 3))]
    assert noise.tolist() == [uniform(seed, 3)]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("size", [300, 32_000, 2**20])
def test_weights_are_proportional_to_the_exponential_of_logits(temperature: float, size: int) -> None:
    logits = torch.linspace(-14, 5, size)[None]
    weights = weigh(logits, logits.amax(-1), torch.tensor([temperature]))[0]
    right = ((logits[0].double() - 5) / temperature).exp() * float(weights[-1])
    assert weights.equal(weights.trunc())
    assert ((weights - right).abs() <= 1 + right * 4e-6).all()  # float32 has a power of 2 of -54 to 2e-6
    assert int(weights.long().sum()) < 2**62


@pytest.mark.parametrize(("noise", "token"), [(0.0, 1), (1 - 2**-53, 3)])
def test_noise_at_its_ends_draws_no_token_of_weight_zero(noise: float, token: int) -> None:
    weights = torch.tensor([[0, 2.0**44, 0, 2.0**44 - 2**20, 0]])
    assert draw(weights, torch.tensor([noise], dtype=torch.float64)).tolist() == [token]


@settings(deadline=None)
@given(size=st.integers(1, 400), seed=st.integers(0, 1000), few=st.booleans())
def test_the_most_probable_token_is_the_first_with_the_largest_logit(size: int, seed: int, few: bool) -> None:
    logits = torch.randn(3, size, generator=torch.Generator().manual_seed(seed))
    if few:
        logits = logits.round()
    highest, tokens = most_probable(logits)
    assert highest.tolist() == [max(row) for row in logits.tolist()]
    assert tokens.tolist() == [row.index(max(row)) for row in logits.tolist()]


@pytest.mark.parametrize("place", [0, 200, 299])
def test_a_nan_anywhere_in_a_row_is_seen(place: int) -> None:
    logits = torch.zeros(2, 300)
    logits[1, place] = torch.nan
    assert most_probable(logits)[0].isnan().tolist() == [False, True]


def test_the_arrays_of_a_batch_stay_until_its_parameters_change() -> None:
    rows_of = RowsOfBatch()
    drawn, greedy = SamplingParams(8, top_k=3), SamplingParams(8, temperature=0)
    first, _ = rows_of([sequence(drawn), sequence(greedy)], CPU)
    again, noise = rows_of([sequence(drawn, position=2), sequence(greedy, position=2)], CPU)
    assert again is first
    assert noise.tolist() == [uniform(1, 2), 0]
    other, _ = rows_of([sequence(greedy), sequence(drawn)], CPU)
    assert (first.drawn.tolist(), other.drawn.tolist()) == ([0], [1])
