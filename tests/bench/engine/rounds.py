"""Contenders in turn: the same work for each, round after round."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.bench.engine.environments import CannotRun
from tests.bench.engine.shapes import Shape, Work

Say = Callable[[str], None]
SAME_MODEL_SHARE = 0.25
"""Of the first tokens, greedy. Random parameters give close logits, so that another precision changes some; another
model changes almost all of them."""


class Answering(Protocol):
    title: str

    def ask(self, prompts: list[list[int]], **sampling: float) -> dict[str, Any]: ...
    def close(self) -> None: ...


@dataclass
class Field:
    """The contenders that run, by name, why the others do not, and what those that ever ran call themselves."""

    running: dict[str, Answering] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, process: Answering) -> None:
        self.running[name], self.titles[name] = process, process.title

    def drop(self, name: str, reason: str) -> None:
        if name in self.running:
            self.running.pop(name).close()
        self.absent[name] = reason

    def close(self) -> None:
        for process in self.running.values():
            process.close()


class Prompter:
    """Prompts that share no prefix with any before."""

    def __init__(self, vocab: int) -> None:
        self._random, self._vocab = random.Random(1), vocab

    def __call__(self, work: Work) -> list[list[int]]:
        return [
            [self._random.randrange(3, self._vocab) for _ in range(work.tokens_in)] for _ in range(work.count)
        ]


def measure(
    contenders: Field, shape: Shape, work: Work, rounds: int, prompter: Prompter, first: str, say: Say
) -> dict[str, list[float]]:
    """Seconds of each contender in each round; one unmeasured round comes before. All get the same prompts in a round.
    A contender that fails is dropped. `first` names the one whose first tokens the others must share; its failure is
    raised."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders.running}
    for turn in range(rounds + 1):
        prompts = prompter(work)
        expected: Sequence[int] = ()
        for name, process in list(contenders.running.items()):
            try:
                answer = _answer(process, shape, work, prompts)
                if name == first:
                    expected = answer["first"]
                elif not turn and shape.temperature == 0:
                    say(f"{name}: {_agreement(expected, answer['first'])}")
            except CannotRun as error:
                if name == first:
                    raise
                say(f"{name} is out: {error}")
                contenders.drop(name, str(error))
                seconds.pop(name)
                continue
            if turn:
                seconds[name].append(answer["seconds"])
                say(f"{describe(work)}, round {turn}: {name} {_figure(work, answer['seconds'])}")
    return seconds


def _answer(process: Answering, shape: Shape, work: Work, prompts: list[list[int]]) -> dict[str, Any]:
    answer = process.ask(
        prompts, max_tokens=work.tokens_out, temperature=shape.temperature, top_p=shape.top_p
    )
    if answer["made"] != work.count * work.tokens_out:
        raise CannotRun(f"made {answer['made']} tokens, not {work.count * work.tokens_out}")
    return answer


def _agreement(expected: Sequence[int], found: Sequence[int]) -> str:
    """Raises CannotRun if the first tokens are another model's."""
    same = sum(a == b for a, b in zip(expected, found, strict=True))
    if len(found) >= 8 and same < SAME_MODEL_SHARE * len(found):
        raise CannotRun(f"only {same} of {len(found)} first tokens are those of the same model")
    return f"{same} of {len(found)} first tokens as this project's engine"


def describe(work: Work) -> str:
    return f"{work.count:2} at a time" if work.decodes else f"{work.tokens_in}-token prompt"


def _figure(work: Work, seconds: float) -> str:
    if work.decodes:
        return f"{work.count * work.tokens_out / seconds:.0f} tokens/s"
    return f"{seconds * 1000:.0f} ms"
