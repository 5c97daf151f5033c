"""docs/concepts/architecture.md: a decode step that is replayed gives the tokens of a step that is computed anew.

Graphs exist on CUDA only. Here a recorder notes each of torch's operations with its tensors, and a replay does the same operations
on the same tensors: a number that came from Python stays what it was at the recording, as in a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from llmendpoint_server.core.request import Request, RequestOutput, SamplingParams
from llmendpoint_server.engine import native
from llmendpoint_server.engine.adapters.changes import load_at_start
from llmendpoint_server.engine.attention import varlen
from llmendpoint_server.engine.attention.varlen import Varlen
from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.graphs import SIZES, Work, sizes_for
from llmendpoint_server.engine.headroom import largest_batches
from llmendpoint_server.engine.loop import Engine, make_scheduler
from llmendpoint_server.engine.runner import ModelRunner
from llmendpoint_server.protocol import Configure
from server.tests.engine import lora

CPU = torch.device("cpu")
PAGE = 16
NEW_TOKENS = 20
TEXTS = [tuple(2 + (37 * n + 11 * place) % 500 for place in range(3 + 7 * n)) for n in range(9)]


class Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # torch's
        result = function(*args, **(kwargs or {}))
        self.done.append((function, args, kwargs or {}, result))
        return result


class Recorder:
    def __init__(self) -> None:
        self.replays = 0

    def rehearse(self, work: Work) -> None:
        work()

    def record(self, work: Work) -> Work:
        with Operations() as operations:
            work()

        def replay() -> None:
            self.replays += 1
            with torch.inference_mode():
                for function, args, kwargs, result in operations.done:
                    again = function(*args, **kwargs)
                    for old, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                        if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                            old.copy_(new)

        return replay


class Waiting(Recorder):
    """Of a model that waits for the device."""

    def rehearse(self, work: Work) -> None:
        raise RuntimeError("called a synchronizing CUDA operation")


class Refused(Recorder):
    """Of a device that refuses to record the second size."""

    def record(self, work: Work) -> Work:
        if self.recorded == 2:
            raise torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing")
        self.recorded += 1
        return super().record(work)

    recorded = 0


@pytest.fixture
def make_engine(
    model_folder: Callable[[str], Path], varlen_on_cpu: None, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Engine]:
    monkeypatch.setattr(native, "llmendpoint_native", None)
    monkeypatch.setattr(varlen, "PAGE_TOKENS", PAGE)

    def make(
        shape: str, recorder: Recorder | None, pages: int = 200, loras: int = 0, ahead: bool = False
    ) -> Engine:
        configure = Configure(
            str(model_folder(shape)), device="cpu", dtype="float32", max_model_len=128, max_loras=loras
        )
        loaded, info = load(configure)
        runner = ModelRunner(loaded.model, Varlen(pages + 1, CPU, torch.float32), stack=loaded.stack)
        if recorder is not None:
            runner.capture(recorder, 6, 64, 128)
        limits = replace(info, kv_pages=pages, page_size=PAGE, max_num_seqs=6, max_batched_tokens=64)
        return Engine(runner, make_scheduler(configure, limits), launcher=runner if ahead else None)

    return make


def sampling(n: int) -> SamplingParams:
    """Greedy rows beside drawn ones, with cuts and without."""
    return SamplingParams(
        NEW_TOKENS + n, temperature=[0, 0.8, 1.0][n % 3], top_p=[1, 0.9][n % 2], seed=n, ignore_eos=True
    )


def answers(
    engine: Engine, params: Callable[[int], SamplingParams], adapter: Callable[[int], str] = lambda _: ""
) -> dict[str, list[int]]:
    tokens: dict[str, list[int]] = {}
    outputs: list[RequestOutput] = []
    for n, text in enumerate(TEXTS):
        outputs += engine.add(Request(str(n), text, params(n), adapter=adapter(n)))
    while not engine.scheduler.idle:
        outputs += engine.step()
    for output in outputs:
        assert not output.detail
        tokens.setdefault(output.id, []).extend(output.tokens)
    return tokens


@pytest.mark.parametrize(
    ("shape", "ahead"), [("llama", False), ("llama", True), ("mistral", True), ("qwen3", False)]
)
def test_replayed_steps_give_the_tokens_of_computed_ones(
    shape: str, ahead: bool, make_engine: Callable[..., Engine]
) -> None:
    recorder = Recorder()
    found = answers(make_engine(shape, recorder, ahead=ahead), sampling)
    assert found == answers(make_engine(shape, None), sampling)
    assert len({token for tokens in found.values() for token in tokens}) > 20
    assert recorder.replays > NEW_TOKENS


def changing(n: int) -> SamplingParams:
    """Some rows are drawn from changed logits, beside the graph."""
    return (
        sampling(n)
        if n % 2
        else replace(sampling(n), frequency_penalty=1.5, min_p=0.01, logit_bias=((9, 3.0),))
    )


@pytest.mark.parametrize("ahead", [False, True])
def test_rows_that_change_their_logits_share_a_replay_with_rows_that_do_not(
    ahead: bool, make_engine: Callable[..., Engine]
) -> None:
    recorder = Recorder()
    found = answers(make_engine("llama", recorder, ahead=ahead), changing)
    assert found == answers(make_engine("llama", None), changing)
    plain = answers(make_engine("llama", None), sampling)
    assert [found[name] == plain[name] for name in sorted(found)] == [
        bool(int(name) % 2) for name in sorted(found)
    ]
    assert recorder.replays > NEW_TOKENS


@pytest.mark.parametrize("ahead", [False, True])
def test_tokens_stay_when_sequences_are_preempted_between_replays(
    ahead: bool, make_engine: Callable[..., Engine]
) -> None:
    engine = make_engine("llama", Recorder(), pages=12, ahead=ahead)
    assert answers(engine, sampling) == answers(make_engine("llama", None), sampling)
    assert engine.scheduler.counters.preemptions > 0


def test_greedy_rows_alone_take_one_replay_a_step(make_engine: Callable[..., Engine]) -> None:
    recorder = Recorder()
    engine = make_engine("llama", recorder)
    engine.add(Request("a", (5, 6, 7), SamplingParams(10, temperature=0, ignore_eos=True)))
    while not engine.scheduler.idle:
        engine.step()
    assert recorder.replays == 9  # the first token comes from the prompt's step


def test_steps_with_an_adapter_are_not_replayed_and_the_others_are(
    make_engine: Callable[..., Engine], model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    path = str(lora.save(model_folder("llama"), tmp_path, r=4, target_modules=lora.ALL))
    recorder = Recorder()
    engines = [make_engine("llama", one, loras=1) for one in (recorder, None)]
    for engine in engines:
        assert engine.runner.stack is not None
        load_at_start(engine.runner.stack, engine.scheduler.adapters, [("sql", path)])
    plain = [answers(engine, sampling) for engine in engines]
    assert plain[0] == plain[1]
    before = recorder.replays
    assert before > NEW_TOKENS
    some = [answers(engine, sampling, lambda n: "sql" if n % 2 else "") for engine in engines]
    assert some[0] == some[1]
    assert [some[0][name] == plain[0][name] for name in "012345678"] == [n % 2 == 0 for n in range(9)]
    every = [answers(engine, sampling, lambda _: "sql") for engine in engines]
    assert every[0] == every[1]
    replays = recorder.replays
    answers(engines[0], sampling, lambda _: "sql")
    assert recorder.replays == replays


@pytest.mark.parametrize("ahead", [False, True])
def test_a_row_that_is_no_number_fails_alone_in_a_replayed_step(
    ahead: bool, make_engine: Callable[..., Engine]
) -> None:
    engine = make_engine("llama", Recorder(), ahead=ahead)
    for name in "ab":
        engine.add(Request(name, (5, 6, 7, ord(name)), SamplingParams(9, temperature=1.0, ignore_eos=True)))
    engine.step()
    victim = engine.scheduler._members.groups["a"].members[0]
    with torch.inference_mode():
        for layer in engine.runner.backend.cache.layers.values():  # type: ignore[attr-defined]  # a ModelRunner
            layer.keys.view(-1, PAGE, 2 * 16)[victim.table[0], 0] = torch.nan
    ends = {}
    while not engine.scheduler.idle:
        ends |= {output.id: output.finish.value for output in engine.step() if output.finish}
    assert ends == {"a": "failed", "b": "length"}


@pytest.mark.parametrize("recorder", [Waiting, Refused])
def test_a_model_that_cannot_be_recorded_is_served_without_graphs(
    recorder: type[Recorder], make_engine: Callable[..., Engine]
) -> None:
    broken = recorder()
    assert answers(make_engine("llama", broken), sampling) == answers(make_engine("llama", None), sampling)
    assert broken.replays == 0


def test_the_largest_steps_move_no_tensor_that_a_graph_reads(make_engine: Callable[..., Engine]) -> None:
    runner = make_engine("llama", Recorder()).runner
    inputs = runner.backend._inputs  # type: ignore[attr-defined]  # a Varlen
    before = inputs.tables.data_ptr(), inputs._numbers.tensor.data_ptr()
    for batch in largest_batches(6, 64, 128, PAGE):
        runner.run(batch)
    assert (inputs.tables.data_ptr(), inputs._numbers.tensor.data_ptr()) == before


@pytest.mark.parametrize(
    ("most", "sizes"), [(1, (1,)), (3, (1, 2, 4)), (6, (1, 2, 4, 8)), (256, SIZES), (1000, SIZES)]
)
def test_there_is_a_graph_for_each_batch_size_up_to_the_most_rows(most: int, sizes: tuple[int, ...]) -> None:
    assert sizes_for(most) == sizes


@pytest.mark.parametrize(("rows", "tokens", "longest"), [(6, 64, 128), (256, 8192, 40_960), (4, 100, 10)])
def test_the_steps_that_are_measured_are_the_largest_that_can_come(
    rows: int, tokens: int, longest: int
) -> None:
    many, long = largest_batches(rows, tokens, longest, PAGE)
    assert len(many.rows) == rows
    assert many.tokens == min(tokens // rows, longest) * rows
    assert all(row.sample for row in many.rows)
    (row,) = long.rows
    assert row.count == min(tokens, longest)
    assert row.start + row.count == longest
    assert len(row.sequence.table) * PAGE >= longest


def test_the_next_step_begins_before_the_tokens_are_read_and_a_row_that_has_ended_gets_none(
    make_engine: Callable[..., Engine],
) -> None:
    """One stops at a token, which shows only when the next step has begun; one is aborted while it runs; another one comes."""
    plain = make_engine("llama", None)
    for name in "abc":
        plain.add(
            Request(name, (5, 6, ord(name)), SamplingParams(12, temperature=0.9, seed=3, ignore_eos=True))
        )
    wanted = tokens_of(plain)
    stop = next(place for place in range(2, 10) if wanted["b"].index(wanted["b"][place]) == place)

    recorder = Recorder()
    engine = make_engine("llama", recorder, ahead=True)
    for name in "abc":
        stops = frozenset({wanted["b"][stop]}) if name == "b" else frozenset()
        asked = SamplingParams(12, temperature=0.9, seed=3, ignore_eos=True, stop_token_ids=stops)
        engine.add(Request(name, (5, 6, ord(name)), asked))
    outputs = engine.step() + engine.step()
    assert recorder.replays == 4, "two steps of two graphs each, of which one has been read"
    outputs += engine.abort("c")
    outputs += engine.step()
    late = SamplingParams(12, temperature=0, ignore_eos=True)
    engine.add(Request("late", (9, 9), late))
    found = tokens_of(engine, outputs)
    assert found["a"] == wanted["a"]
    assert found["b"] == wanted["b"][: stop + 1]
    assert found["c"] == wanted["c"][:2]
    plain.add(Request("late", (9, 9), late))
    assert found["late"] == tokens_of(plain)["late"]
    assert engine.scheduler.blocks.held == 0


def tokens_of(engine: Engine, outputs: list[RequestOutput] | None = None) -> dict[str, list[int]]:
    """By the request's id, those of `outputs` included."""
    found: dict[str, list[int]] = {}
    outputs = outputs or []
    while not engine.scheduler.idle:
        outputs = outputs + engine.step()
    for output in outputs:
        found.setdefault(output.id, []).extend(output.tokens)
    return found


def test_a_launch_that_fails_costs_no_request_a_token(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine("llama", Recorder(), ahead=True)
    graphs = engine.runner._graphs  # type: ignore[attr-defined]  # a ModelRunner
    launch, calls = graphs.launch, []

    def failing(*args: Any) -> Any:
        calls.append(args)
        if len(calls) % 5 == 0:
            raise RuntimeError("no memory")
        return launch(*args)

    graphs.launch = failing
    assert answers(engine, sampling) == answers(make_engine("llama", None), sampling)
    assert len(calls) > NEW_TOKENS


def test_a_request_alone_outlives_a_launch_ahead_that_fails(make_engine: Callable[..., Engine]) -> None:
    """Its own step is computed: what failed is the next one, which is tried again."""
    engine = make_engine("llama", Recorder(), ahead=True)
    graphs = engine.runner._graphs  # type: ignore[attr-defined]  # a ModelRunner
    launch, failed = graphs.launch, []

    def failing(batch: Any, after: Any = None) -> Any:
        if after is not None:
            failed.append(batch)
            raise RuntimeError("no memory")
        return launch(batch)

    graphs.launch = failing
    alone = Request("alone", (5, 6, 7), SamplingParams(9, temperature=0, ignore_eos=True))
    engine.add(alone)
    steps = 0
    outputs: list[RequestOutput] = []
    while not engine.scheduler.idle:
        outputs += engine.step()
        steps += 1
    plain = make_engine("llama", None)
    plain.add(alone)
    assert not any(output.detail for output in outputs)
    assert tokens_of(engine, outputs) == tokens_of(plain)
    assert len(failed) == 7, "each step but the prompt's and the last"
    assert steps == 9, "no step is computed again"
