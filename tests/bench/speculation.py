"""Output tokens per second with speculation (prompt lookup) beside the same engine without it: `make bench-speculation`.

One Llama of 110M parameters, the shape of `make bench-engine`. Its weights are random, but for one thing: its most probable
next token depends on the last token only, by a fixed permutation of the vocabulary. So the benchmark can write prompts that hold a
passage which the greedy answer repeats, word for word or with changes, and prompts that make every guess wrong. How often real answers
copy is not measured here.

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

from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.loop import Engine, make_scheduler
from llmendpoint_server.engine.machine import spin_briefly
from llmendpoint_server.protocol import Configure
from tests.bench.engine import CONFIG, VOCAB
from tests.bench.results import Result, write

PASSAGE, TOKENS_OUT = 120, 96
EDITED_EVERY = 16
"""Of so many tokens of an edited passage one is not what the answer has there."""


@dataclass(frozen=True)
class Contenders:
    """One model's two engines."""

    drafting: Engine
    plain: Engine


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
        for place in self._random.sample(range(2, PASSAGE), PASSAGE // EDITED_EVERY):
            prompt[place] = self._random.randrange(VOCAB)
        return prompt

    def misleading(self) -> list[int]:
        """Each two tokens that follow each other in the answer stand in the prompt too, and something else follows them there."""
        prompt, token = [], self._random.randrange(VOCAB)
        for _ in range(TOKENS_OUT):
            prompt += [token, self._follows[token], self._random.randrange(VOCAB)]
            token = self._follows[token]
        return [*prompt, *prompt[:2]]


@dataclass(frozen=True)
class Workload:
    name: str
    concurrency: int
    prompt: Callable[[Passages], list[int]]
    goal: str = ""


EDITED = "the answer copies a passage and changes 1 token in 16"
WORKLOADS = (
    Workload(EDITED, 1, Passages.edited, goal="ratio >= 1.5"),
    Workload("the answer copies a passage", 1, Passages.copied),
    Workload(EDITED, 4, Passages.edited),
    Workload(EDITED, 16, Passages.edited, goal="ratio >= 0.95"),
    Workload("every guess is wrong", 1, Passages.misleading),
)


def run(engine: Engine, prompts: Sequence[list[int]]) -> float:
    """Answers the prompts, all at once; output tokens per second."""
    sampling = SamplingParams(TOKENS_OUT, temperature=0, ignore_eos=True)
    start = time.perf_counter()
    for n, prompt in enumerate(prompts):
        engine.add(Request(str(n), tuple(prompt), sampling))
    made = 0
    while not engine.scheduler.idle:
        made += sum(len(output.tokens) for output in engine.step())
    return made / (time.perf_counter() - start)


def measure(workload: Workload, contenders: Contenders, passages: Passages, rounds: int) -> Result:
    counters = contenders.drafting.scheduler.counters
    pairs, drafted, accepted = [], counters.draft_tokens, counters.accepted_tokens
    for turn in range(rounds + 1):
        prompts = [workload.prompt(passages) for _ in range(workload.concurrency)]
        rates = [run(engine, prompts) for engine in (contenders.drafting, contenders.plain)]
        if turn:  # the first round is not measured
            pairs.append(rates)
            figures = f"{rates[0]:.0f} and {rates[1]:.0f} tokens/s"
            print(f"  {workload.name}, {workload.concurrency} at a time: {figures}", flush=True)
    drafted, accepted = counters.draft_tokens - drafted, counters.accepted_tokens - accepted
    ours, plain = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    share = f"{100 * accepted / drafted:.0f} % of {drafted} draft tokens accepted" if drafted else "no drafts"
    return Result(
        f"{workload.name}, {workload.concurrency} at a time ({share})",
        ours,
        "tokens/s",
        f"without speculation: {plain:.0f}",
        statistics.median(a / b for a, b in pairs),
        workload.goal,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    spin_briefly()
    with tempfile.TemporaryDirectory() as folder:
        passages = Passages(save_copying_model(Path(folder)))
        contenders = make_contenders(Path(folder))
    write("speculation", [measure(workload, contenders, passages, rounds) for workload in WORKLOADS])


if __name__ == "__main__":
    main()
