"""docs/contribute/contracts.md: a seeded request gets the same tokens from the CPU kernel as from torch."""

import random
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.machine import cpu_flags
from llmendpoint_server.engine.native import Kernels
from llmendpoint_server.engine.sampling import in_torch
from llmendpoint_server.engine.sampling.in_kernel import InKernel
from llmendpoint_server.engine.sampling.rows import NOT_A_NUMBER, Rows, RowsOfBatch
from llmendpoint_server.engine.sampling.sampler import Sampler
from llmendpoint_server.engine.sampling.weights import weigh

llmendpoint_native = pytest.importorskip("llmendpoint_native", reason="compiled with g++ on x86_64 only")
VARIANTS = [name for name, needs in llmendpoint_native.VARIANTS.items() if needs <= cpu_flags()]
Arrays = tuple[Rows, torch.Tensor]
Kernel = Callable[[torch.Tensor, Arrays], list[int]]


@pytest.fixture(scope="module", params=VARIANTS)
def kernels(request: pytest.FixtureRequest) -> Kernels:
    name, functions = llmendpoint_native.load(cpu_flags(), (request.param,))
    return Kernels(name, functions, functions.LANES, functions.INPUTS, bool(functions.BF16))


@pytest.fixture(scope="module")
def kernel(kernels: Kernels) -> Kernel:
    draw = InKernel(kernels)

    def sample(logits: torch.Tensor, arrays: Arrays) -> list[int]:
        assert draw.takes(logits)
        return draw.tokens_of(logits, *arrays).tolist()

    return sample


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def sequence(params: SamplingParams, seed: int = 1, position: int = 1) -> Sequence:
    return Sequence(Request("r", (0,), params), seed, [0] * position, [])


def arrays(sequences: list[Sequence]) -> Arrays:
    return RowsOfBatch()(sequences, torch.device("cpu"))


PARAMS = st.builds(
    SamplingParams,
    st.just(8),
    temperature=st.one_of(st.sampled_from([0.0, 1.0, 1e-40]), st.floats(0.01, 2)),
    top_p=st.one_of(st.sampled_from([1.0, 0.95]), st.floats(1e-20, 1, exclude_min=True)),
    top_k=st.one_of(st.sampled_from([0, 1, 20]), st.integers(1, 7000)),
)


def some_logits(rows: int, size: int, seed: int, kind: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, size, generator=generator)
    if kind == "ties":
        return logits.round()
    if kind == "few":  # a grammar's mask
        excluded = torch.rand(rows, size, generator=generator) < 0.95
        excluded[:, seed % size] = False
        return logits.masked_fill(excluded, -torch.inf)
    if kind == "peaks":
        logits[:, : size // 50 + 1] += 15
        return logits[:, torch.randperm(size, generator=generator)]
    return logits * {"equal": 0, "flat": 1, "wide": 3, "sharp": 50}[kind]


@settings(deadline=None, max_examples=300)
@given(
    params=st.lists(PARAMS, min_size=1, max_size=6),
    size=st.sampled_from([1, 2, 127, 128, 129, 600, 5000, 40_000]),
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(["equal", "flat", "wide", "sharp", "ties", "few", "peaks"]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_its_tokens_are_those_of_torch(
    kernel: Kernel, params: list[SamplingParams], size: int, seed: int, kind: str, dtype: torch.dtype
) -> None:
    logits = some_logits(len(params), size, seed, kind).to(dtype)
    rows = [sequence(one, seed + i, position=i + 1) for i, one in enumerate(params)]
    assert kernel(logits, arrays(rows)) == Sampler()(logits, rows)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_its_weights_are_those_of_torch_to_the_last_bit(kernel: Kernel, temperature: float) -> None:
    """Noise just below and just above the share of the tokens up to each: one bit of a weight moves it further."""
    logits = torch.randn(1, 500, generator=torch.Generator().manual_seed(1)) * 2
    (row,) = weigh(logits, logits.amax(-1), torch.tensor([temperature])).double()
    shares = row.cumsum(0)[:-1] / row.sum()
    noise = torch.cat([shares - 2**-48, shares + 2**-48])
    one, _ = arrays([sequence(SamplingParams(8, temperature=temperature))] * len(noise))
    tokens = kernel(logits.expand(len(noise), -1), (one, noise))
    assert tokens == [*range(499), *range(1, 500)]


def test_a_bound_of_the_tail_does_not_move_the_cut(kernel: Kernel) -> None:
    """Two equal tokens, and a tail of which only one token a block is possible: top_p is just below a half of the sum,
    and above it if each block were as probable as its first token makes it."""
    logits = torch.full((1, 250_000), -torch.inf)
    logits[0, ::128] = 0
    logits[0, [640, 1280]] = 17
    rows = [sequence(SamplingParams(8, top_p=0.4985), position=position) for position in range(1, 21)]
    assert kernel(logits.expand(20, -1), arrays(rows)) == [640] * 20


@pytest.mark.parametrize("top_p", [0.95, 0.995, 0.999])
def test_a_tail_that_top_p_needs_is_weighed_after_all(kernel: Kernel, top_p: float) -> None:
    """One token of 250,000 is e**17 times more probable than each other; those have 1 % together."""
    logits = torch.randn(1, 250_000, generator=torch.Generator().manual_seed(1)) * 0.01
    logits[0, 20_000] = 17
    rows = [sequence(SamplingParams(8, top_p=top_p), position=position) for position in range(1, 601)]
    tokens = kernel(logits.expand(len(rows), -1), arrays(rows))
    assert (set(tokens) == {20_000}) == (top_p < 0.99)
    some = [i for i, token in enumerate(tokens) if token != 20_000 or i % 100 == 0]
    assert [tokens[i] for i in some] == Sampler()(logits.expand(len(some), -1), [rows[i] for i in some])


@pytest.mark.parametrize("place", [0, 77, 127, 128, 299])
@pytest.mark.parametrize("odd", [torch.nan, torch.inf])
def test_a_row_that_is_not_finite_is_told_and_touches_nobody_else(
    kernel: Kernel, odd: float, place: int
) -> None:
    logits = torch.randn(3, 300, generator=torch.Generator().manual_seed(1))
    for params in (SamplingParams(8, temperature=0), SamplingParams(8, top_p=0.9, top_k=20)):
        rows = [sequence(params), sequence(params), sequence(params)]
        alone = kernel(logits, arrays(rows))
        spoiled = logits.clone()
        spoiled[1, place] = odd
        assert kernel(spoiled, arrays(rows)) == [alone[0], NOT_A_NUMBER, alone[2]]


def test_a_row_without_any_possible_token_is_told(kernel: Kernel) -> None:
    logits = torch.full((1, 300), -torch.inf)
    assert kernel(logits, arrays([sequence(SamplingParams(8))])) == [NOT_A_NUMBER]


def test_a_full_vocabulary_of_equal_logits_is_cut_in_the_order_of_the_vocabulary(kernel: Kernel) -> None:
    logits = torch.zeros(1, 2**20 - 1)
    for position in range(20):
        (token,) = kernel(logits, arrays([sequence(SamplingParams(8, top_p=0.25), position=position)]))
        assert token < 2**18


@settings(deadline=None, max_examples=100)
@given(
    params=st.lists(PARAMS, min_size=1, max_size=9),
    size=st.sampled_from([3, 600, 9000]),
    seed=st.integers(-(2**63), 2**63 - 100),
    kind=st.sampled_from(["flat", "wide", "ties", "few", "peaks"]),
    odd=st.sets(st.integers(0, 8)),
    count=st.integers(1, 3),
    shuffled=st.randoms(),
)
def test_a_rows_token_depends_on_its_own_logits_parameters_and_seed_alone(
    kernel: Kernel,
    params: list[SamplingParams],
    size: int,
    seed: int,
    kind: str,
    odd: set[int],
    count: int,
    shuffled: random.Random,
) -> None:
    """Not on the rows beside it, on those that are no numbers, nor on the number of threads."""
    logits = some_logits(len(params), size, abs(seed) % 10_000, kind)
    odd &= set(range(len(params)))
    logits[list(odd), size // 2] = torch.nan
    rows = [sequence(one, seed + i, position=i + 1) for i, one in enumerate(params)]
    alone = [kernel(row[None], arrays([one]))[0] for row, one in zip(logits, rows, strict=True)]
    order = list(range(len(rows)))
    shuffled.shuffle(order)
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    together = kernel(logits[order], arrays([rows[i] for i in order]))
    torch.set_num_threads(before)
    assert together == [alone[i] for i in order]
    assert {i for i, token in enumerate(alone) if token == NOT_A_NUMBER} == odd


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [151_936, 151_937 - 64])
def test_so_it_is_with_a_real_vocabulary(
    kernel: Kernel, threads: Callable[[int], None], dtype: torch.dtype, size: int
) -> None:
    """One row has a few probable tokens, one has thousands, one has all with the same logit, one is a mask."""
    kinds = ("peaks", "wide", "equal", "few")
    logits = torch.cat([some_logits(1, size, 1, kind) for kind in kinds]).to(dtype)
    for position, (top_p, top_k) in enumerate([(1.0, 0), (0.95, 0), (1.0, 50), (0.9, 20), (0.5, 2000)]):
        rows = [
            sequence(SamplingParams(8, top_p=top_p, top_k=top_k), seed, position + 1) for seed in range(4)
        ]
        expected = Sampler()(logits, rows)
        for count in (1, 2, 3):
            threads(count)
            assert kernel(logits, arrays(rows)) == expected


def test_rows_are_read_where_they_lie(kernel: Kernel) -> None:
    wide = some_logits(3, 700, 1, "wide")
    rows = [sequence(SamplingParams(8), position=position) for position in (1, 2, 3)]
    part = wide[:, 50:650]
    assert kernel(part, arrays(rows)) == kernel(part.contiguous(), arrays(rows)) == Sampler()(part, rows)


def test_the_draw_leaves_the_logits_as_they_are(kernel: Kernel) -> None:
    logits = some_logits(2, 700, 1, "wide")
    before = logits.clone()
    kernel(logits, arrays([sequence(SamplingParams(8, top_p=0.9)), sequence(SamplingParams(8, top_k=9))]))
    assert torch.equal(logits, before)


def test_the_sampler_draws_with_the_kernel_if_there_is_one(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_torch, "tokens_of", None)
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    greedy = [sequence(SamplingParams(8, temperature=0))]
    assert Sampler(kernels)(logits, greedy) == Sampler(kernels)(logits.bfloat16(), greedy) == [1]
    with pytest.raises(TypeError):
        Sampler()(logits, greedy)


@pytest.mark.parametrize(
    "logits",
    [
        torch.tensor([[0.0, 2.0, 1.0]], dtype=torch.float64),
        torch.tensor([[0.0, 9.0, 2.0, 9.0, 1.0, 9.0]])[:, ::2],
        torch.zeros(1, 2**22 + 1).index_fill(1, torch.tensor(1), 1),
    ],
    ids=["float64", "logits apart from each other", "a vocabulary that is too large"],
)
def test_what_the_kernel_does_not_take_is_drawn_in_torch(kernels: Kernels, logits: torch.Tensor) -> None:
    assert not InKernel(kernels).takes(logits)
    assert Sampler(kernels)(logits, [sequence(SamplingParams(8, temperature=0))]) == [1]


def test_arrays_of_another_length_are_refused_before_they_are_read(kernel: Kernel) -> None:
    with pytest.raises(ValueError, match="3 rows of logits for 2 sequences"):
        kernel(torch.zeros(3, 10), arrays([sequence(SamplingParams(8))] * 2))


def test_a_size_that_the_kernel_does_not_take_is_refused_before_anything_is_read(kernels: Kernels) -> None:
    for size in (0, -1, 2**22 + 1, 2**62):
        with pytest.raises(ValueError, match="a row of"):
            kernels.functions.sample(0, 0, 1, size, size, 0, 0, 0, 0, 0)
