"""Output tokens per second with speculation (prompt lookup) beside the same engine without it: `make bench-speculation`.

Copying: one Llama of 110M parameters, the shape of `make bench-engine`. Its weights are random, but for one thing: its most probable
next token depends on the last token only, by a fixed permutation of the vocabulary. So the benchmark can write prompts that hold a
passage which the greedy answer repeats, word for word or with changes. How often real answers copy is not measured here.

Real text: embedded://demo answers its own questions. It quotes nothing.

The two run in turn (A, B, A, …) in one process, on the same weights and pages, with prompts that never repeat; the figures are medians,
the ratios medians of the ratios within a turn.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from llmendpoint_server.api.model_files import resolve_model
from llmendpoint_server.api.tokenizer import ModelTokenizer
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.engine.loop import Engine, make_scheduler
from llmendpoint_server.engine.machine import spin_briefly
from llmendpoint_server.engine.runner import load
from llmendpoint_server.protocol import Configure
from tests.bench.engine import CONFIG, VOCAB
from tests.bench.results import Result, write

PASSAGE, TOKENS_OUT = 120, 96
EDITED_EVERY = 16
"""Each of these tokens of an edited passage is not what the answer has there."""
QUESTIONS = Path(__file__).parents[2] / "server" / "demo_model" / "questions.txt"

Prompts = Callable[[], Sequence[int]]
"""Each call gives another prompt."""


@dataclass(frozen=True)
class Contenders:
    """One model's two engines."""

    drafting: Engine
    plain: Engine


@dataclass(frozen=True)
class Workload:
    name: str
    concurrency: int
    prompts: Prompts
    contenders: Contenders
    ignore_eos: bool = True
    goal: str = ""


def make_contenders(folder: Path) -> Contenders:
    settings = Configure(str(folder), max_num_seqs=16, kv_cache_memory=2**30, prefix_caching=False)
    drafting = Configure(str(folder), prefix_caching=False, speculative_method="ngram")
    runner, info = load(settings)
    print(f"{info.architecture}, {info.dtype} on {info.device}", flush=True)
    return Contenders(*(Engine(runner, make_scheduler(each, info)) for each in (drafting, settings)))


def save_copying_model(folder: Path) -> list[int]:
    """A Llama whose greedy token is a function of the last one: the output layer is the embedding, permuted, and what the layers add to
    the embedding is too little to change the choice. They cost what they always cost. Returns the next token of each token."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG)
    follows = torch.randperm(VOCAB)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(0.01)
            layer.mlp.down_proj.weight.mul_(0.01)
        model.lm_head.weight[follows] = model.model.embed_tokens.weight
    model.save_pretrained(folder)
    return [int(token) for token in follows]


class Passages:
    """Prompts for the copying model that share nothing with any before."""

    def __init__(self, follows: list[int]) -> None:
        self._follows = follows
        self._random = random.Random(1)

    def copied(self) -> list[int]:
        """A passage, and its first two tokens again: the answer repeats it."""
        passage = [self._random.randrange(VOCAB)]
        while len(passage) < PASSAGE:
            passage.append(self._follows[passage[-1]])
        return [*passage, *passage[:2]]

    def edited(self) -> list[int]:
        """The same, but the answer changes a token of the passage now and then."""
        prompt = self.copied()
        for place in range(EDITED_EVERY, PASSAGE, EDITED_EVERY):
            prompt[place] = self._random.randrange(VOCAB)
        return prompt

    def new(self) -> list[int]:
        """The answer repeats nothing."""
        return [self._random.randrange(VOCAB) for _ in range(PASSAGE)]


def demo_questions(folder: Path) -> Prompts:
    lines = QUESTIONS.read_text(encoding="utf-8").splitlines()
    questions = iter([line.removeprefix("Q: ") for line in lines if line.startswith("Q: ")])
    tokenizer = ModelTokenizer(folder)

    def prompt() -> Sequence[int]:
        text = tokenizer.render_chat([{"role": "user", "content": next(questions)}])
        return tokenizer.encode(text, add_special_tokens=False)

    return prompt


def run(engine: Engine, prompts: Sequence[Sequence[int]], ignore_eos: bool) -> float:
    """Answers the prompts, all at once; output tokens per second."""
    sampling = SamplingParams(TOKENS_OUT, temperature=0, ignore_eos=ignore_eos)
    start = time.perf_counter()
    for n, prompt in enumerate(prompts):
        engine.add(Request(str(n), tuple(prompt), sampling))
    made = 0
    while not engine.scheduler.idle:
        made += sum(len(output.tokens) for output in engine.step())
    return made / (time.perf_counter() - start)


def measure(workload: Workload, rounds: int) -> list[Result]:
    counters = workload.contenders.drafting.scheduler.counters
    pairs, drafted, accepted = [], counters.draft_tokens, counters.accepted_tokens
    for turn in range(rounds + 1):
        prompts = [workload.prompts() for _ in range(workload.concurrency)]
        engines = (workload.contenders.drafting, workload.contenders.plain)
        rates = [run(engine, prompts, workload.ignore_eos) for engine in engines]
        if turn:  # the first round is not measured
            pairs.append(rates)
            figures = f"{rates[0]:.0f} and {rates[1]:.0f} tokens/s"
            print(f"  {workload.name}, {workload.concurrency} at a time: {figures}", flush=True)
    drafted, accepted = counters.draft_tokens - drafted, counters.accepted_tokens - accepted
    ours, plain = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    share = f"{100 * accepted / drafted:.0f} % of {drafted} draft tokens accepted" if drafted else "no drafts"
    return [
        Result(
            f"{workload.name}, {workload.concurrency} at a time ({share})",
            ours,
            "tokens/s",
            f"without speculation: {plain:.0f}",
            statistics.median(a / b for a, b in pairs),
            workload.goal,
        )
    ]


def workloads(copying: Contenders, passages: Passages) -> list[Workload]:
    demo = resolve_model("embedded://demo", None)
    contenders = make_contenders(demo)
    edits = "the answer copies a passage and changes 1 token in 16"
    return [
        Workload(edits, 1, passages.edited, copying, goal="ratio >= 1.5"),
        Workload("the answer copies a passage", 1, passages.copied, copying),
        Workload(edits, 4, passages.edited, copying),
        Workload(edits, 16, passages.edited, copying),
        Workload("the answer repeats nothing", 1, passages.new, copying, goal="ratio >= 0.95"),
        Workload(
            "embedded://demo answers its questions", 1, demo_questions(demo), contenders, ignore_eos=False
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    spin_briefly()
    with tempfile.TemporaryDirectory() as folder:
        passages = Passages(save_copying_model(Path(folder)))
        copying = make_contenders(Path(folder))
    rows = [row for workload in workloads(copying, passages) for row in measure(workload, rounds)]
    write("speculation", rows)


if __name__ == "__main__":
    main()
