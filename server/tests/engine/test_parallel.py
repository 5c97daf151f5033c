"""docs/concepts/parallelism.md: two processes on CPU give the same tokens as one, and when one of them ends, all do.

In float32: bf16's logits change with the order of sums, and so with the number of ranks.
"""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from llmendpoint_server import protocol
from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.request import FinishReason, Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.attention.base import Backend
from llmendpoint_server.engine.attention.cache import PagedCache
from llmendpoint_server.engine.attention.gathered import Gathered
from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.loading import open_folder
from llmendpoint_server.engine.loop import Engine as Loop
from llmendpoint_server.engine.loop import make_scheduler
from llmendpoint_server.engine.parallel import group as groups
from llmendpoint_server.engine.parallel import ranks, worker
from llmendpoint_server.engine.parallel.dividing import DIVIDED, check_divisible
from llmendpoint_server.engine.parallel.messages import Kind, Line
from llmendpoint_server.engine.preparing import Prepared
from llmendpoint_server.errors import BadConfiguration, ModelNotFound
from server.tests.engine.engine_process import LIMIT_SECONDS, Engine, ends
from server.tests.engine.test_tokens import NEW_TOKENS, PAGE_BYTES, prompts

EXACT = 2e-5
"""The largest difference of logits in float32, as a share of their spread."""
GREEDY = SamplingParams(NEW_TOKENS, temperature=0, ignore_eos=True, logprobs=2)
SEEDED = SamplingParams(NEW_TOKENS, temperature=0.9, top_p=0.9, seed=7, ignore_eos=True)


def configure(folder: Path, size: int = 2, **settings: object) -> protocol.Configure:
    return protocol.Configure(
        **{
            "model_path": str(folder),
            "device": "cpu",
            "dtype": "float32",
            "max_model_len": 128,
            "tensor_parallel_size": size,
            **settings,
        }  # type: ignore[arg-type]  # names are checked at run time
    )


def requests() -> list[Request]:
    return [Request(str(n), text, SEEDED if n % 3 == 2 else GREEDY) for n, text in enumerate(prompts())]


Answers = dict[str, tuple[list[int], list[float]]]
"""of each request its tokens, and their log probabilities"""


def add(answers: Answers, output: protocol.RequestOutput) -> None:
    tokens, told = answers.setdefault(output.id, ([], []))
    tokens += output.tokens
    told += [one.logprob for one in output.logprobs]


def answers_of_one(settings: protocol.Configure) -> Answers:
    runner, info = load(settings)
    engine = Loop(runner, make_scheduler(settings, info))
    answers: Answers = {}
    for request in requests():
        engine.add(request)
    while not engine.scheduler.idle:
        for output in engine.step():
            add(answers, output)
    return answers


def answers_of_two(engine: Engine, sent: list[Request]) -> Answers:
    engine.send(*(protocol.AddRequest(request) for request in sent))
    answers: Answers = {}
    open_requests = len(sent)
    while open_requests:
        message = engine.next()
        assert isinstance(message, protocol.StepOutput), message
        for output in message.outputs:
            add(answers, output)
            assert output.finish in (None, FinishReason.LENGTH), output
            open_requests -= output.finish is not None
    return answers


def same(two: Answers, one: Answers) -> bool:
    """Of the requests that two have."""
    tokens = all(found == one[name][0] for name, (found, _) in two.items())
    return tokens and all(told == pytest.approx(one[name][1], abs=1e-3) for name, (_, told) in two.items())


@pytest.mark.parametrize("shape", ["llama", "gemma3_text"])
def test_two_ranks_give_the_tokens_of_one_greedy_and_seeded_in_chunks_preempted_and_from_the_prefix_cache(
    shape: str, model_folder: Callable[[str], Path]
) -> None:
    folder = model_folder(shape)
    one = answers_of_one(configure(folder, 1, prefix_caching=False))
    with Engine() as engine:
        # Of one KV head a rank: half of a page's bytes.
        settings = configure(
            folder, kv_cache_memory=PAGE_BYTES[shape] // 2 * 20, max_batched_tokens=19, max_num_seqs=16
        )
        engine.send(settings)
        assert engine.until_ready().kv_pages == 20
        assert same(answers_of_two(engine, requests()), one)
        longest = max(requests(), key=lambda request: len(request.prompt))
        for _ in range(2):
            assert same(answers_of_two(engine, [longest]), one)
        assert engine.stats.counters.preemptions > 0
        assert engine.stats.counters.prefix_cache_hits > 0
        (rank,) = engine.children()
        engine.process.kill()
        assert ends(rank), "no rank outlives rank 0"


def test_a_draft_model_guesses_on_rank_0_alone_and_changes_no_token(
    model_folder: Callable[[str], Path],
) -> None:
    folder = model_folder("qwen3")
    one = answers_of_one(configure(folder, 1))
    with Engine() as engine:
        engine.send(configure(folder, draft_model_path=str(folder), max_num_seqs=1))
        engine.until_ready()
        assert same(answers_of_two(engine, requests()[:4]), one)
        assert engine.stats.counters.accepted_tokens > 0


def test_a_rank_that_is_killed_ends_the_engine_at_once_with_the_cause(
    model_folder: Callable[[str], Path],
) -> None:
    """In the middle of a step, and without requests."""
    with Engine() as busy, Engine() as idle:
        for engine in (busy, idle):
            engine.send(configure(model_folder("llama")))
        for engine in (busy, idle):
            engine.until_ready()
        sampling = SamplingParams(100, temperature=0, ignore_eos=True)
        busy.send(protocol.AddRequest(Request("a", (3, 4, 5), sampling)))
        assert isinstance(busy.next(), protocol.StepOutput)
        for engine in (busy, idle):
            (rank,) = engine.children()
            began = time.monotonic()
            os.kill(rank, signal.SIGKILL)
            while isinstance(message := engine.next(), protocol.StepOutput):
                pass
            assert isinstance(message, protocol.StateChanged)
            assert (message.state, message.exit_code) == ("failed", 1)
            assert "Rank 1 of 2, a process of this engine, ended with exit code -9" in message.detail
            assert engine.process.wait(LIMIT_SECONDS) == 1
            assert time.monotonic() - began < 15


RAISING = """
import torch
from llmendpoint_server.engine.parallel import layers

whole = layers.RowEmbedding.forward

def forward(self, ids):
    if BEFORE and (ids == 77).any() and self._group.rank in RANKS:
        raise ValueError("a token that nothing can compute")
    found = whole(self, ids)
    if not BEFORE and (ids == 77).any() and self._group.rank in RANKS:
        raise ValueError("a token that nothing can compute")
    return found

layers.RowEmbedding.forward = forward
"""


def raising(folder: Path, monkeypatch: pytest.MonkeyPatch, **values: object) -> None:
    """All processes started from now on raise at token 77, on some ranks, before or after a collective."""
    text = "".join(f"{name.upper()} = {value!r}\n" for name, value in values.items())
    (folder / "sitecustomize.py").write_text(text + RAISING)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


@pytest.mark.parametrize("before", [True, False])
def test_a_request_that_raises_on_all_ranks_alike_fails_alone(
    before: bool, model_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = answers_of_one(configure(model_folder("llama"), 1))
    raising(tmp_path, monkeypatch, ranks=(0, 1), before=before)
    with Engine() as engine:
        engine.send(configure(model_folder("llama")))
        engine.until_ready()
        (rank,) = engine.children()
        for _ in range(2):
            bad = protocol.AddRequest(Request("bad", (3, 77, 5), SamplingParams(2, temperature=0)))
            good = [request for request in requests() if 77 not in request.prompt]
            engine.send(bad, *(protocol.AddRequest(request) for request in good))
            answers, ends_of = Answers(), dict[str, FinishReason]()
            while len(ends_of) < len(good) + 1:
                message = engine.next()
                assert isinstance(message, protocol.StepOutput), message
                for output in message.outputs:
                    if output.id != "bad":
                        add(answers, output)
                    if output.finish is not None:
                        ends_of[output.id] = output.finish
            assert ends_of.pop("bad") is FinishReason.FAILED
            assert set(ends_of.values()) == {FinishReason.LENGTH}
            assert same(answers, one)
        assert engine.children() == [rank]


@pytest.mark.parametrize("which", [0, 1])
def test_a_request_that_raises_on_one_rank_ends_the_engine(
    which: int, model_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(tmp_path, monkeypatch, ranks=(which,), before=True)
    with Engine() as engine:
        engine.send(configure(model_folder("llama")))
        engine.until_ready()
        engine.send(protocol.AddRequest(Request("bad", (3, 77, 5), GREEDY)))
        while isinstance(message := engine.next(), protocol.StepOutput):
            pass
        assert isinstance(message, protocol.StateChanged)
        assert (message.state, message.exit_code) == ("failed", 1)
        assert "a token that nothing can compute" in message.detail
        assert engine.process.wait(LIMIT_SECONDS) == 1


def test_where_ranks_find_each_other_is_reached_from_no_other_address() -> None:
    """What is on all addresses answers on any address of the loopback net."""
    store = groups.open_store(2)
    with socket.create_connection((groups.HOST, store.port), timeout=5):
        pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", store.port), timeout=5)


def test_each_family_that_is_divided_says_the_same_as_whole(model_folder: Callable[[str], Path]) -> None:
    store = groups.open_store(2)
    script = str(Path(__file__).with_name("divided.py"))
    folders = {shape: str(model_folder(shape)) for shape in DIVIDED}
    started = [
        subprocess.Popen(
            [sys.executable, script, str(rank), str(store.port), *folders.values()],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    told = [one.communicate(timeout=LIMIT_SECONDS)[0] for one in started]
    apart = json.loads(told[0].splitlines()[-1])
    found = {shape: apart[Path(folder).name] for shape, folder in folders.items()}
    assert {shape: one for shape, one in found.items() if one[0] > EXACT} == {}
    assert {shape: one for shape, one in found.items() if one[1] > 0.75} == {}, "most weights are divided"


@pytest.mark.parametrize(
    ("shape", "settings", "words"),
    [
        ("llama", {"size": 3}, "this model has 4 heads and 2 KV heads, which 3 accelerators cannot share evenly: it must be 1 or 2."),
        ("llama", {"size": 4}, "4 heads and 2 KV heads, which 4 accelerators cannot share evenly: it must be 1 or 2."),
        ("gpt2", {}, "--tensor-parallel-size is 2, and a model of the family gpt2 is not divided: set it to 1"),
        ("llama", {"quantization": "int8"}, "--tensor-parallel-size is 2, and --quantization is int8"),
        ("llama", {"max_loras": 1}, "--tensor-parallel-size is 2, and --enable-lora is set"),
    ],
)  # fmt: skip
def test_what_cannot_be_divided_is_refused_with_the_flag_and_what_would_be_right(
    shape: str, settings: dict[str, object], words: str, model_folder: Callable[[str], Path]
) -> None:
    with pytest.raises(BadConfiguration, match=re.escape(words)):
        load(configure(model_folder(shape), **settings))  # type: ignore[arg-type]  # as above


def test_weights_that_are_not_whole_are_refused_as_without_ranks(
    model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(model_folder("llama"), tmp_path / "model"))
    tensors = load_file(folder / "model.safetensors")
    lacking = "model.layers.1.self_attn.q_proj.weight"
    del tensors[lacking]
    save_file(tensors, folder / "model.safetensors")
    with Engine() as engine:
        engine.send(configure(folder))
        while (message := engine.next()) == protocol.StateChanged("loading", f"reading {folder}"):
            pass
        assert isinstance(message, protocol.StateChanged)
        assert (message.state, message.exit_code) == ("failed", ModelNotFound.exit_code)
        assert f"no weights for 1 tensors, such as {lacking}" in message.detail


FAILING = """
import socket, sys
import msgspec
from llmendpoint_server.engine.parallel.messages import Failed, Kind, Line
line = Line(socket.socket(fileno=int(sys.argv[2])))
line.receive()
line.send(Kind.FAILED, msgspec.msgpack.encode(Failed("no room for its part", 6)))
"""


@pytest.mark.parametrize(
    ("script", "words", "code"),
    [(FAILING, "no room for its part", 6), ("import sys; sys.exit(9)", "Rank 1 of 2, a process of this engine, ended with exit code 9", None)],
    ids=["told", "silent"],
)  # fmt: skip
def test_a_rank_that_cannot_start_is_told_by_rank_0(
    script: str,
    words: str,
    code: int | None,
    model_folder: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ranks, "COMMAND", (sys.executable, "-c", script))
    with pytest.raises(Exception, match=words) as caught:
        load(configure(model_folder("llama")))
    assert getattr(caught.value, "exit_code", None) == code


class Listening(ranks.Worker):
    """A rank of which only the socket is there."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.rank, self.code, self.failed = 1, None, None
        self.line, self.theirs, self.ended = Line(ours), Line(theirs), threading.Event()
        self.raised = queue.SimpleQueue()


def one_row(table: list[int]) -> Batch:
    request = Request("a", (3, 4, 5), GREEDY)
    return Batch((Scheduled(Sequence(request, 0, [3, 4, 5], [], table=table), 0, 3),), 0.0)


def test_a_step_that_raises_fails_alone_where_all_ranks_raised_alike_or_were_not_told_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = Listening()
    leader = ranks.Ranks(groups.Group(0, 2, torch.device("cpu")), [worker])

    def fail() -> torch.Tensor:
        raise ValueError("no room")

    monkeypatch.setattr(ranks, "ALIKE_SECONDS", 0.1)
    monkeypatch.setattr(ranks, "NOTICE_SECONDS", 0.1)
    for collectives in (None, 3):
        if collectives is not None:
            worker.raised.put(collectives)
        with pytest.raises(ranks.RankEnded, match="that 2 ranks compute together: ValueError: no room"):
            leader.together(one_row([0]), fail)
        assert worker.theirs.receive()[0] is Kind.STEP
    worker.raised.put(0)
    with pytest.raises(ValueError, match="no room"):
        leader.together(one_row([0]), fail)
    assert worker.theirs.receive()[0] is Kind.STEP
    assert worker.theirs.receive()[0] is Kind.GO_ON
    with pytest.raises(TypeError):
        leader.together(one_row(None), fail)  # type: ignore[arg-type]  # the fault to inject
    worker.theirs.stream.setblocking(False)
    with pytest.raises(EOFError):  # nothing is there to read
        worker.theirs.receive()


def test_all_ranks_have_room_for_the_largest_steps_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels for decodes are compiled for the width of the tables: on CUDA each width that comes later costs a second of all requests."""
    backends: list[Gathered] = []

    def make(pages: int) -> Backend:
        backends.append(Gathered(pages, 16, torch.device("cpu"), torch.float32))
        return backends[-1]

    there, group = Listening(), groups.Group(0, 2, torch.device("cpu"))
    leader = ranks.Ranks(group, [there])
    leader.reserve(leader.leading(make)(9), 3, 40, 100)
    there.line.stream.close()
    monkeypatch.setattr("gc.freeze", lambda: None)
    prepared = Prepared(None, PagedCache(1, 16), make, None, {})  # type: ignore[arg-type]  # no step is computed
    with pytest.raises(EOFError):
        worker._compute(there.theirs, prepared, group)
    assert [tuple(one._inputs.tables.shape) for one in backends] == [(3, 7), (3, 7)]


def test_numbers_that_divide_are_taken(model_folder: Callable[[str], Path]) -> None:
    check_divisible(configure(model_folder("llama")), open_folder(str(model_folder("llama"))), None)
