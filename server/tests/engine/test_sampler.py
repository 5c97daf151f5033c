"""How a token is drawn from its logits."""

import torch

from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.sampler import NOT_A_NUMBER, sample

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
    rows = [sequence(temperature=0), sequence(), sequence(temperature=0)]
    assert sample(logits, rows) == [0, NOT_A_NUMBER, 0]
