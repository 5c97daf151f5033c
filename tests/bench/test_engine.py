"""docs/benchmarks.md: contenders of an engine run in turn, a ratio is one within a turn, and who cannot run is a row that says why."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.bench.engine import environments, processes, tables
from tests.bench.engine.contenders import OURS, Contender
from tests.bench.engine.environments import CannotRun
from tests.bench.engine.limits import Machine
from tests.bench.engine.processes import Process
from tests.bench.engine.rounds import Field, Prompter, measure
from tests.bench.engine.shapes import FIRST_TOKEN, LLAMA, QWEN3, Work, decoding

PEER = Contender("peer", "peer", "run_peer.py")
WORK = Work(8, 4, 2)
MACHINE = Machine(bandwidth=1e10, flops=1e12, dtype=torch.bfloat16)


class Canned:
    """A contender that answers from a list; an exception in it is raised."""

    title = "Peer 1.0"

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self._answers, self.closed = iter(answers), False

    def ask(self, prompts: list[list[int]], **sampling: float) -> dict[str, Any]:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


def answer(seconds: float, first: int = 7, made: int = 16) -> dict[str, Any]:
    return {"first": [first] * WORK.count, "made": made, "seconds": seconds}


def run(ours: Canned, peer: Canned, rounds: int = 1) -> tuple[Field, dict[str, list[float]]]:
    field = Field()
    for name, contender in ((OURS.name, ours), (PEER.name, peer)):
        field.add(name, contender)
    return field, measure(field, LLAMA, WORK, rounds, Prompter(LLAMA.vocab), OURS.name, lambda _: None)


def test_the_first_round_is_not_measured() -> None:
    _, seconds = run(Canned(answer(9), answer(1)), Canned(answer(9), answer(2)))
    assert seconds == {OURS.name: [1], PEER.name: [2]}


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([CannotRun("no memory")], "no memory"),
        ([answer(1), CannotRun("died")], "died"),
        ([answer(1, made=15)], "made 15 tokens, not 16"),
        ([answer(1, first=8)], "only 0 of 8 first tokens are those of the same model"),
    ],
)
def test_a_peer_that_fails_is_dropped_and_its_row_says_why(
    answers: list[dict[str, Any] | Exception], reason: str
) -> None:
    peer = Canned(*answers)
    field, seconds = run(Canned(answer(1), answer(1)), peer)
    assert peer.closed
    assert seconds == {OURS.name: [1]}
    row, _ = tables.rows(WORK, seconds, field, (PEER,), LLAMA, MACHINE)
    assert row.against == f"peer did not run: {reason}"
    assert row.ratio is None
    assert not row.goal


def test_without_this_projects_engine_there_is_no_table() -> None:
    with pytest.raises(CannotRun, match="no memory"):
        run(Canned(CannotRun("no memory")), Canned(answer(1)))


def test_a_ratio_is_the_median_of_the_ratios_within_a_turn() -> None:
    field = Field(titles={PEER.name: Canned.title})
    seconds = {OURS.name: [1.0, 10.0, 2.0], PEER.name: [2.0, 20.0, 1.0]}
    decode, limit = tables.rows(decoding(8), seconds, field, (PEER,), LLAMA, MACHINE)
    assert (decode.ratio, decode.goal) == (2, "ratio >= 1")
    assert limit.ratio == pytest.approx(decode.value / MACHINE.tokens_per_second(LLAMA, decoding(8)))
    (first,) = tables.rows(FIRST_TOKEN, seconds, field, (PEER,), LLAMA, MACHINE)
    assert (first.value, first.ratio, first.goal) == (2000, 0.5, "ratio <= 1")


def test_int8_is_compared_with_int8_once_the_engine_has_it() -> None:
    peer = Contender("peer", "peer", "run_peer.py", weights="int8")
    field = Field(titles={PEER.name: Canned.title})
    without, _ = tables.rows(WORK, {OURS.name: [2.0], "peer": [1.0]}, field, (peer,), LLAMA, MACHINE)
    assert (without.ratio, without.goal) == (0.5, "")
    seconds = {OURS.name: [2.0], "llmendpoint-int8": [0.5], "peer": [1.0]}
    row, _ = tables.rows(WORK, seconds, field, (peer,), LLAMA, MACHINE)
    assert (row.ratio, row.goal) == (2, "ratio >= 1")
    assert row.metric.endswith("int8")


def test_the_limit_is_that_of_memory_at_one_and_of_arithmetic_at_many() -> None:
    one, many = decoding(1), Work(4096, 1, 1)
    weights = LLAMA.parameters * 2
    assert MACHINE.tokens_per_second(LLAMA, one) == pytest.approx(1e10 / weights, rel=0.03)
    assert MACHINE.tokens_per_second(LLAMA, many) == pytest.approx(1e12 / weights)


def test_parameters_are_those_of_transformers_models() -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    for shape in (LLAMA, QWEN3):
        options = {key: value for key, value in shape.config.items() if key != "model_type"}
        config = AutoConfig.for_model(shape.config["model_type"], **options)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        linear = [p.numel() for name, p in model.named_parameters() if "norm" not in name]
        untied = 0 if shape.config["tie_word_embeddings"] else shape.vocab * shape.config["hidden_size"]
        assert shape.parameters == sum(linear) - untied


SPEAKING = """
from wire import serve
def load(options):
    print("a library prints")
    if options.form == "broken":
        raise OSError("no such\\nmodel")
    def answer(prompts, sampling):
        if sampling.max_tokens == 13:
            raise ValueError("unlucky")
        return [[prompt[0]] * sampling.max_tokens for prompt in prompts]
    return "Peer 1.0", answer
serve(load)
"""


def start_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, form: str = "") -> Process:
    monkeypatch.setattr(processes, "RESULTS", tmp_path)
    monkeypatch.setattr(processes, "SCRIPTS", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(environments.SCRIPTS))
    (tmp_path / "run_peer.py").write_text(text)
    options = {"model": "", "dtype": "bfloat16", "threads": 1, "batch": 1, "form": form}
    return Process("peer", Path(sys.executable), "run_peer.py", options)


def test_a_peer_answers_over_its_pipe_whatever_its_library_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = start_peer(tmp_path, monkeypatch, SPEAKING)
    assert peer.title == "Peer 1.0"
    found = peer.ask([[5, 6], [7]], max_tokens=3, temperature=0, top_p=1)
    assert (found["first"], found["made"]) == ([5, 7], 6)
    with pytest.raises(CannotRun, match="ValueError: unlucky"):
        peer.ask([[5]], max_tokens=13, temperature=0, top_p=1)


@pytest.mark.parametrize(
    ("text", "form", "reason"),
    [
        (SPEAKING, "broken", "OSError: no such model"),
        ("import nothing_of_this_name", "", "No module named 'nothing_of_this_name'"),
    ],
)
def test_a_peer_that_cannot_load_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, form: str, reason: str
) -> None:
    with pytest.raises(CannotRun, match=reason):
        start_peer(tmp_path, monkeypatch, text, form)


def test_a_peer_that_does_not_answer_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LOAD_LIMIT_S", 0.2)
    with pytest.raises(CannotRun, match=r"no answer within 0 s"):
        start_peer(tmp_path, monkeypatch, "import time; time.sleep(60)")


def test_an_environment_that_cannot_be_made_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_PEERS", str(tmp_path / "peers"))
    monkeypatch.setattr(environments, "SCRIPTS", tmp_path)
    (tmp_path / "peer.txt").write_text("not a requirement\n")
    with pytest.raises(CannotRun, match="cannot be installed"):
        environments.python("peer", lambda _: None)
    assert not (tmp_path / "peers" / "peer").exists()


def test_requirements_name_one_version_each_and_no_address() -> None:
    files = sorted(environments.SCRIPTS.glob("*.txt"))
    lines = [line for file in files for line in file.read_text().splitlines() if not line.startswith("#")]
    assert lines
    assert [line for line in lines if line.count("==") != 1 or "/" in line] == []
