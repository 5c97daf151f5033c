"""A scheduler on a machine that exists only as a formula for the time of a step."""

import random

from llmendpoint_server.core.batch import NOTHING, Sampled
from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.config import SchedulerConfig
from llmendpoint_server.core.request import Request, RequestOutput, SamplingParams
from llmendpoint_server.core.scheduler import Scheduler

BUDGET = 512


class Simulation:
    """A scheduler on a machine where a step takes `fixed` + `per_row` x rows + `per_token` x prompt tokens, in seconds,
    give or take a tenth; one step in 200 takes three times as long."""

    def __init__(self, fixed: float, per_row: float, per_token: float, seqs: int = 16) -> None:
        self.costs = fixed, per_row, per_token
        self.scheduler = Scheduler(
            SchedulerConfig(4096, seqs, 1000, BUDGET, 10, prefix_caching=False), BlockManager(20_000, 16)
        )
        self.draws = random.Random(7)
        self.now = 0.0
        self.sent = 0
        self.gaps: list[float] = []
        self.refused: dict[str, RequestOutput] = {}
        self.arrived: dict[str, float] = {}
        self.first: dict[str, float] = {}
        self.last: dict[str, float] = {}

    def send(self, prompt: int, answer: int, patience: float | None = None) -> str:
        """Returns the request's name. `patience`: seconds from now to its deadline."""
        self.sent += 1
        name = f"{prompt}/{self.sent}"
        self.arrived[name] = self.now
        sampling = SamplingParams(answer, temperature=0, ignore_eos=True)
        deadline = None if patience is None else self.now + patience
        new = Request(name, (1,) * prompt, sampling, self.now, deadline=deadline)
        self.refused |= {end.id: end for end in self.scheduler.add(new, 0, self.now)}
        return name

    def step(self) -> int:
        """Returns how many prompt tokens it computed."""
        self.refused |= {end.id: end for end in self.scheduler.expire(self.now)}
        batch = self.scheduler.schedule(self.now)
        prompt_tokens = batch.prompt_tokens
        fixed, per_row, per_token = self.costs
        seconds = fixed + per_row * len(batch.rows) + per_token * prompt_tokens
        seconds *= self.draws.uniform(0.9, 1.1)
        self.now += 3 * seconds if self.draws.random() < 0.005 else seconds
        sampled: list[Sampled] = [Sampled((1,)) if row.sample else NOTHING for row in batch.rows]
        if not batch.rows:
            return 0
        for output in self.scheduler.update(batch, sampled, self.now):
            if output.id in self.last:
                self.gaps.append(self.now - self.last[output.id])
            self.first.setdefault(output.id, self.now)
            self.last[output.id] = self.now
        return prompt_tokens
