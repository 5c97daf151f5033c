"""Output tokens per second with speculation (prompt lookup) beside the same engine without it: `make bench-speculation`.

One Llama of 110M parameters, the shape of `make bench-engine`. Its weights are random, but for one thing: its most probable next token
depends on the last token only, by a fixed permutation of the vocabulary. So the benchmark can write prompts that hold a passage which
the greedy answer repeats. It copies as real models do when they quote, edit or extract; how often they do that is not what is measured.

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
from llmendpoint_server.engine.loop import Engine, make_scheduler
from llmendpoint_server.engine.machine import spin_briefly
from llmendpoint_server.engine.runner import load
from llmendpoint_server.protocol import Configure
from tests.bench.engine import CONFIG, VOCAB
from tests.bench.results import Result, write

PASSAGE, TOKENS_OUT = 160, 128
EDITED_EVERY = 16
"""Each of these tokens of an edited passage is not what the answer has there."""
Follows = list[int]
"""Token -> the token that the model chooses after it."""


def save_model(folder: Path) -> Follows:
    """A Llama whose greedy token is a function of the last one: the output layer is the embedding, permuted, and what the layers add to
    the embedding is too little to change the choice. They cost what they always cost."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG)
    follows = torch.randperm(VOCAB)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(0.01)
            layer.mlp.down_proj.weight.mul_(0.01)
        model.lm_head.weight[follows] = model.model.embed_tokens.weight
    model.save_pretrained(folder)
    return follows.tolist()


class Prompter:
    """Prompts that share nothing with any before. `edited`: of a passage of the answer, that many tokens lie between two changes."""

    def __init__(self, follows: Follows) -> None:
        self._follows = follows
        self._random = random.Random(1)

    def copied(self) -> list[int]:
        """A passage, and the token after which the answer repeats it word for word."""
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
        """An answer that repeats nothing."""
        return [self._random.randrange(VOCAB) for _ in range(PASSAGE)]


@dataclass(frozen=True)
class Workload:
    name: str
    concurrency: int
    prompt: Callable[[Prompter], list[int]]
    goal: str = ""


WORKLOADS = (
    Workload("the answer copies a passage of the prompt, and changes 1 token in 16", 1, Prompter.edited, "ratio >= 1.5"),
    Workload("the answer copies a passage of the prompt", 1, Prompter.copied),
    Workload("the answer copies and changes 1 token in 16", 4, Prompter.edited),
    Workload("the answer copies and changes 1 token in 16 (no drafts: the step is full)", 8, Prompter.edited, "ratio >= 0.95"),
    Workload("the answer repeats nothing", 1, Prompter.new, "ratio >= 0.95"),
)  # fmt: skip


def run(engine: Engine, prompts: Sequence[list[int]]) -> float:
    """Answers the prompts, all at once; output tokens per second."""
    sampling = SamplingParams(TOKENS_OUT, temperature=0, ignore_eos=True)
    start = time.perf_counter()
    for n, prompt in enumerate(prompts):
        engine.add(Request(str(n), tuple(prompt), sampling))
    made = 0
    while not engine.scheduler.idle:
        made += sum(len(output.tokens) for output in engine.step())
    if made != len(prompts) * TOKENS_OUT:
        raise RuntimeError(f"{made} tokens were made, not {len(prompts) * TOKENS_OUT}")
    return made / (time.perf_counter() - start)


def measure(
    workload: Workload, with_drafts: Engine, without: Engine, prompter: Prompter, rounds: int
) -> list[Result]:
    pairs = []
    counters = with_drafts.scheduler.counters
    before = counters.draft_tokens, counters.accepted_tokens, counters.steps
    for turn in range(rounds + 1):
        rates = [
            run(engine, [workload.prompt(prompter) for _ in range(workload.concurrency)])
            for engine in (with_drafts, without)
        ]
        if turn:  # the first round is not measured
            pairs.append(rates)
            print(
                f"  {workload.name}, {workload.concurrency} at a time: {rates[0]:.0f} and {rates[1]:.0f} tokens/s",
                flush=True,
            )
    drafted, accepted = counters.draft_tokens - before[0], counters.accepted_tokens - before[1]
    ours, plain = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    metric = f"output tokens/s, {workload.concurrency} at a time: {workload.name}"
    against = f"without speculation: {plain:.0f}"
    ratio = statistics.median(a / b for a, b in pairs)
    rows = [Result(metric, ours, "tokens/s", against, ratio, workload.goal)]
    if drafted:
        rows.append(
            Result("its draft tokens that were accepted", 100 * accepted / drafted, "%", f"{drafted} drafted")
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    spin_briefly()
    with tempfile.TemporaryDirectory() as folder:
        follows = save_model(Path(folder))
        settings = Configure(folder, max_num_seqs=16, kv_cache_memory=2**30, prefix_caching=False)
        runner, info = load(settings)
    drafting = Configure(folder, prefix_caching=False, speculative_method="ngram")
    with_drafts, without = (Engine(runner, make_scheduler(each, info)) for each in (drafting, settings))
    print(f"{info.dtype} on {info.device}", flush=True)
    prompter = Prompter(follows)
    rows = [
        row for workload in WORKLOADS for row in measure(workload, with_drafts, without, prompter, rounds)
    ]
    write("speculation", rows)


if __name__ == "__main__":
    main()
