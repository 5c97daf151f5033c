"""docs/contribute/contracts.md: temperature, top_p, top_k and seed: a token is drawn as often as its probability says."""

import random
import re
from collections.abc import Sequence as Rows
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.sampling import in_torch
from llmendpoint_server.engine.sampling.filters import BINS
from llmendpoint_server.engine.sampling.rows import NOT_A_NUMBER
from llmendpoint_server.engine.sampling.sampler import Sampler

sample = Sampler()
LOGITS = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()


def sequence(
    position: int = 1, seed: int = 1, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0
) -> Sequence:
    params = SamplingParams(8, temperature=temperature, top_p=top_p, top_k=top_k)
    return Sequence(Request("r", (0,), params), seed, [0] * position, [])


def draws(count: int = 4000, **params: float) -> list[float]:
    """The share of each token over many positions."""
    rows = [sequence(position, **params) for position in range(count)]  # type: ignore[arg-type]  # names are checked at run time
    tokens = sample(LOGITS.expand(count, -1), rows)
    return [tokens.count(token) / count for token in range(4)]


def close(shares: list[float], expected: tuple[float, ...]) -> bool:
    return all(abs(share - want) < 0.03 for share, want in zip(shares, expected, strict=True))


def test_tokens_come_as_often_as_their_probability_says() -> None:
    assert close(draws(), (0.5, 0.3, 0.15, 0.05))


def test_temperature_sharpens() -> None:
    assert close(draws(temperature=0.5), (0.25 / 0.365, 0.09 / 0.365, 0.0225 / 0.365, 0.0025 / 0.365))


def test_top_p_keeps_the_fewest_tokens_that_reach_it() -> None:
    assert close(draws(top_p=0.7), (0.5 / 0.8, 0.3 / 0.8, 0, 0))
    assert draws(top_p=0.4) == [1, 0, 0, 0]


def test_top_k_keeps_that_many() -> None:
    assert close(draws(top_k=2), (0.5 / 0.8, 0.3 / 0.8, 0, 0))


def test_the_order_of_the_vocabulary_does_not_matter_to_top_p() -> None:
    rows = [sequence(position, top_p=0.7) for position in range(200)]
    tokens = sample(LOGITS.flip(0).expand(200, -1), rows)
    assert set(tokens) == {2, 3}


def test_a_tiny_temperature_is_greedy_and_no_division_by_zero() -> None:
    assert draws(count=50, temperature=1e-30) == [1, 0, 0, 0]


def test_greedy_and_drawn_rows_share_a_batch_without_touching_each_other() -> None:
    alone = sample(LOGITS[None], [sequence(3, seed=9)])
    mixed = sample(
        LOGITS.expand(3, -1), [sequence(temperature=0), sequence(3, seed=9), sequence(temperature=0)]
    )
    assert mixed == [0, alone[0], 0]


def test_logits_that_are_no_numbers_are_told_and_touch_nobody_else() -> None:
    logits = torch.stack([LOGITS, torch.full((4,), float("nan")), LOGITS])
    for params in ({}, {"top_p": 0.9}, {"top_k": 2}):
        rows = [sequence(temperature=0), sequence(**params), sequence(temperature=0)]
        assert sample(logits, rows) == [0, NOT_A_NUMBER, 0]


VOCABULARY = 300
PARAMS = st.fixed_dictionaries({
    "temperature": st.one_of(st.just(0.0), st.floats(0.01, 2)),
    "top_p": st.one_of(st.just(1.0), st.floats(0.01, 1)),
    "top_k": st.one_of(st.just(0), st.integers(1, 400)),
    "seed": st.integers(-(2**63), 2**63 - 1),
    "position": st.integers(1, 50),
})  # fmt: skip


def some_logits(seed: int) -> torch.Tensor:
    return torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 3


@settings(deadline=None)
@given(rows=st.lists(st.tuples(PARAMS, st.integers(0, 99)), min_size=1, max_size=12), shuffled=st.randoms())
def test_a_rows_token_depends_on_its_own_logits_parameters_and_seed_alone(
    rows: list[tuple[dict[str, float], int]], shuffled: random.Random
) -> None:
    logits = [some_logits(seed) for _, seed in rows]
    sequences = [sequence(**params) for params, _ in rows]  # type: ignore[arg-type]  # names are checked at run time
    alone = [sample(row[None], [one])[0] for row, one in zip(logits, sequences, strict=True)]
    order = list(range(len(rows)))
    shuffled.shuffle(order)
    together = sample(torch.stack([logits[i] for i in order]), [sequences[i] for i in order])
    assert together == [alone[i] for i in order]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_so_it_does_with_a_real_vocabulary_of_which_neighbours_keep_few_tokens_or_most(
    dtype: torch.dtype,
) -> None:
    """One row has a few probable tokens, one has thousands, one has all with the same logit."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(3, 151_936, generator=generator) * torch.tensor([[2.0], [3.0], [0.0]])
    logits[0, :2000:40] += 20
    logits = logits.to(dtype)
    for position, params in enumerate([{}, {"top_p": 0.95}, {"top_k": 50}, {"top_p": 0.9, "top_k": 20}]):
        rows = [sequence(position, seed=seed, **params) for seed in (1, 2, 3)]  # type: ignore[arg-type]
        alone = [sample(row[None], [one])[0] for row, one in zip(logits, rows, strict=True)]
        assert sample(logits, rows) == alone
        assert sample(logits.flip(0), rows[::-1]) == alone[::-1]


@pytest.mark.parametrize("neighbour", [{"top_p": 0.9}, {"top_k": 5}, {"top_p": 0.5, "top_k": 9}], ids=str)
def test_a_neighbour_with_top_p_or_top_k_changes_no_seeded_draw(neighbour: dict[str, float]) -> None:
    logits = torch.stack([some_logits(1), some_logits(2)])
    for position in range(100):
        drawn = sequence(position, seed=5)
        other = sequence(position, **neighbour)  # type: ignore[arg-type]  # names are checked at run time
        assert sample(logits, [drawn, other])[0] == sample(logits[:1], [drawn])[0]


def chi_square(tokens: Rows[int], probabilities: torch.Tensor) -> float:
    counts = torch.bincount(torch.tensor(tokens), minlength=len(probabilities)).double()
    expected = probabilities.double() * len(tokens)
    assert not counts[expected == 0].any(), "a token that was to be cut was drawn"
    seen = expected > 0
    return float(((counts - expected)[seen] ** 2 / expected[seen]).sum())


@pytest.mark.parametrize(
    ("params", "kept"), [({}, 40), ({"top_k": 10}, 10), ({"top_p": 0.6}, 5), ({"temperature": 1.7}, 40)], ids=str
)  # fmt: skip
def test_draws_follow_the_distribution(params: dict[str, float], kept: int) -> None:
    """20,000 draws with fixed seeds, so it gives the same result at each run; chi-square with `kept - 1` degrees of
    freedom is beyond the limit once in 10,000 tries of a right sampler."""
    limit = {40: 81.0, 10: 33.7, 5: 23.5}[kept]
    logits = torch.linspace(0, -8, 40)[torch.randperm(40, generator=torch.Generator().manual_seed(3))]
    weights = (logits / params.get("temperature", 1.0)).softmax(-1)
    if kept < 40:
        cut = weights.topk(kept)
        assert "top_p" not in params or cut.values.sum() >= 0.6 > cut.values[:-1].sum()
        weights = torch.zeros(40).scatter(0, cut.indices, cut.values / cut.values.sum())
    rows = [sequence(position, seed=11, **params) for position in range(20_000)]  # type: ignore[arg-type]
    assert chi_square(sample(logits.expand(20_000, -1), rows), weights) < limit


@pytest.mark.parametrize("temperature", [1e-46, 5e-324, 1e-38, 1e-10])
def test_a_temperature_that_float32_cannot_hold_is_greedy(temperature: float) -> None:
    rows = [sequence(position, temperature=temperature) for position in range(50)]
    assert sample(LOGITS.expand(50, -1), rows) == [0] * 50


@pytest.mark.parametrize("top_p", [1e-46, 5e-324, 1e-20])
def test_a_top_p_that_float32_cannot_hold_keeps_the_most_probable_token(top_p: float) -> None:
    rows = [sequence(position, top_p=top_p) for position in range(50)]
    assert sample(LOGITS.flip(0).expand(50, -1), rows) == [3] * 50


def test_a_top_k_beyond_the_vocabulary_cuts_nothing() -> None:
    rows = [sequence(position, top_k=2**31 - 1) for position in range(200)]
    assert sample(LOGITS.expand(200, -1), rows) == sample(
        LOGITS.expand(200, -1), [sequence(position) for position in range(200)]
    )


def test_the_largest_vocabularies_do_not_overflow_the_sum_of_weights() -> None:
    logits = torch.zeros(2, 2**20)
    tokens = sample(logits, [sequence(1, seed=1), sequence(2, seed=4, top_p=0.5)])
    assert 0 <= tokens[0] < 2**20
    assert 0 <= tokens[1] < 2**19


def peak_memory() -> int:
    """Bytes, the most since the last reset."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def test_memory_of_a_draw_does_not_grow_with_the_batch() -> None:
    """All rows at once took 10 MiB for each."""
    logits = torch.randn(64, 151_936, generator=torch.Generator().manual_seed(1))
    rows = [sequence(position, top_p=0.9) for position in range(64)]
    sample(logits[:1], rows[:1])
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_memory()
    sample(logits, rows)
    assert peak_memory() - before < 256 * 2**20


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(PARAMS, st.integers(0, 99)), min_size=1, max_size=12), at_once=st.integers(1, 5)
)
def test_a_draw_in_slices_gives_the_tokens_of_a_draw_at_once(
    rows: list[tuple[dict[str, float], int]], at_once: int
) -> None:
    logits = torch.stack([some_logits(seed) for _, seed in rows])
    sequences = [sequence(**params) for params, _ in rows]  # type: ignore[arg-type]  # names are checked at run time
    whole = sample(logits, sequences)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(in_torch.WEIGHTS_AT_ONCE, "cpu", at_once * max(VOCABULARY, BINS))
        assert sample(logits, sequences) == whole
