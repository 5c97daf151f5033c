"""docs/contribute/contracts.md: a seeded request gets the same tokens from server/native/kernels/sampling.cpp as from torch."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.sampling.rows import Rows, RowsOfBatch
from llmendpoint_server.engine.sampling.sampler import NOT_A_NUMBER, Sampler
from llmendpoint_server.engine.sampling.weights import weigh

SOURCE = Path(__file__).parents[2] / "native" / "kernels" / "sampling.cpp"
FLAGS = {
    "avx2": ("-mavx2", "-mfma"),
    "avx512": ("-mavx2", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"),
}
NEEDED = {"avx2": {"avx2", "fma"}, "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"}}
Arrays = tuple[Rows, torch.Tensor]
Kernel = Callable[[torch.Tensor, Arrays], list[int]]


def loaded(path: Path) -> Kernel:
    function = ctypes.CDLL(str(path)).sample_tokens
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [pointer, ctypes.c_int, size, size, size, *[pointer] * 5]

    def sample(logits: torch.Tensor, arrays: Arrays) -> list[int]:
        rows, noise = arrays
        tokens = torch.empty(len(logits), dtype=torch.int64)
        kind, (count, width) = int(logits.dtype == torch.bfloat16), logits.shape
        places = [array.data_ptr() for array in (rows.temperature, rows.top_p, rows.top_k, noise, tokens)]
        assert function(logits.data_ptr(), kind, count, logits.stride(0), width, *places) == 0
        return tokens.tolist()

    return sample


@pytest.fixture(scope="module", params=list(FLAGS))
def kernel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    flags = Path("/proc/cpuinfo").read_text().split()
    if not NEEDED[request.param] <= set(flags):
        pytest.skip(f"this processor has no {request.param}")
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    path = tmp_path_factory.mktemp("kernel") / f"{request.param}.so"
    # The intrinsics of GCC 12 start from undefined registers, which it warns about.
    warnings = ("-Wall", "-Wextra", "-Werror", "-Wno-uninitialized", "-Wno-maybe-uninitialized")
    options = ("-std=c++17", "-O3", "-shared", "-fPIC", *warnings, *FLAGS[request.param])
    subprocess.run(["g++", *options, "-o", str(path), str(SOURCE)], check=True, timeout=120)
    return loaded(path)


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
