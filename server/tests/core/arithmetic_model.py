"""A model that exists only as arithmetic, and a scheduler for it.

`Machine` is a KV cache and a language model in one: it writes into each slot what was computed there, refuses to go on
when a slot that a sequence reads holds anything else, and answers with a function of the whole sequence so far.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Rows

from msgspec.structs import replace

from llmendpoint_server.core.batch import NOTHING, Batch, Sampled, Scheduled
from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.config import SchedulerConfig
from llmendpoint_server.core.request import FinishReason, Priority, Request, SamplingParams, TokenLogprobs
from llmendpoint_server.core.scheduler import Scheduler
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.core.speculation import PromptLookup, Proposer, accept

VOCAB = 7
EOS = 6


NONE_COME: Mapping[Sequence, tuple[int, ...]] = {}


def next_token(tokens: tuple[int, ...]) -> int:
    return (sum(tokens) * 31 + len(tokens)) % VOCAB


class Machine:
    """`at_once`: tokens that a row gets in one step, as from a model that guesses ahead."""

    def __init__(self, page_size: int, window: int | None = None, at_once: int = 1) -> None:
        self.page_size = page_size
        self.window = window
        self.at_once = at_once
        self.slots: dict[tuple[int, int], tuple[int, ...]] = {}

    def run(self, batch: Batch, coming: Mapping[Sequence, tuple[int, ...]] = NONE_COME) -> list[Sampled]:
        """`coming`: what the step before, which has not ended, gives each sequence."""
        sampled: list[Sampled] = []
        for row in batch.rows:
            own = (*row.sequence.tokens, *coming.get(row.sequence, ()))
            tokens, table = own + row.draft, row.sequence.table
            first = 0 if self.window is None else max(row.start - self.window + 1, 0)
            for position in range(first, row.start + row.count):
                slot = (table[position // self.page_size], position % self.page_size)
                if position >= row.start:
                    self.slots[slot] = tokens[: position + 1]
                assert self.slots[slot] == tokens[: position + 1], (
                    "a page holds somebody else's keys and values"
                )
            scores = tuple(
                TokenLogprobs(tokens[place + 1], -float(sum(tokens[: place + 1]))) for place in row.scored
            )
            new = self.sample(row, own) if row.sample else NOTHING
            sampled.append(replace(new, prompt_logprobs=scores))
        return sampled

    def sample(self, row: Scheduled, tokens: tuple[int, ...]) -> Sampled:
        places = range(len(row.draft) + 1)
        new = accept(row.draft, tuple(next_token(tokens + row.draft[:place]) for place in places))
        for _ in range(self.at_once - 1):
            new += (next_token(tokens + new),)
        return Sampled(new)


class Guesser:
    """Guesses right, but for every `wrong`-th token of the sequence; 0: always right."""

    def __init__(self, wrong: int) -> None:
        self.wrong = wrong

    def propose(self, tokens: Rows[int], most: int) -> tuple[int, ...]:
        known: tuple[int, ...] = tuple(tokens)
        draft: tuple[int, ...] = ()
        for place in range(len(known), len(known) + most):
            token = next_token(known + draft)
            draft += ((token + 1) % VOCAB if self.wrong and place % self.wrong == 0 else token,)
        return draft


def scores_of(prompt: tuple[int, ...]) -> tuple[TokenLogprobs | None, ...]:
    """What the machine says of a prompt."""
    places = range(1, len(prompt))
    return None, *(TokenLogprobs(prompt[place], -float(sum(prompt[:place]))) for place in places)


def make_scheduler(
    pages: int = 8,
    page_size: int = 2,
    max_num_seqs: int = 3,
    budget: int = 5,
    queue: int = 4,
    caching: bool = True,
    window: int | None = None,
    queued_tokens: int = 1000,
    speculative: int = 0,
    proposer: Callable[[], Proposer] = PromptLookup,
) -> Scheduler:
    config = SchedulerConfig(
        max_model_len=pages * page_size,
        max_num_seqs=max_num_seqs,
        max_queued_requests=queue,
        max_batched_tokens=budget,
        vocab_size=VOCAB,
        eos_token_ids=frozenset({EOS}),
        prefix_caching=caching,
        prefix_key=b"secret",
        sliding_window=window,
        max_queued_tokens=queued_tokens,
        num_speculative_tokens=speculative,
    )
    return Scheduler(config, BlockManager(pages, page_size), proposer)


def request(
    name: str,
    prompt: tuple[int, ...],
    max_tokens: int = 8,
    *,
    ignore_eos: bool = True,
    salt: str = "",
    arrival: float = 0.0,
    priority: Priority = Priority.NORMAL,
    deadline: float | None = None,
    n: int = 1,
    prompt_logprobs: int | None = None,
) -> Request:
    sampling = SamplingParams(
        max_tokens, temperature=0, ignore_eos=ignore_eos, prompt_logprobs=prompt_logprobs
    )
    return Request(name, prompt, sampling, arrival, salt, priority, deadline, n)


def expected(prompt: tuple[int, ...], sampling: SamplingParams, max_model_len: int) -> tuple[int, ...]:
    tokens = prompt
    while len(tokens) - len(prompt) < sampling.max_tokens and len(tokens) < max_model_len:
        tokens += (next_token(tokens),)
        if tokens[-1] == EOS and not sampling.ignore_eos:
            break
    return tokens[len(prompt) :]


def finish_all(scheduler: Scheduler, machine: Machine) -> dict[str, tuple[tuple[int, ...], FinishReason]]:
    """Steps until nothing is left; what each request got, and how it ended."""
    got: dict[str, tuple[int, ...]] = {}
    ends: dict[str, tuple[tuple[int, ...], FinishReason]] = {}
    for step in range(1000):
        if scheduler.idle:
            return ends
        batch = scheduler.schedule(float(step))
        for output in scheduler.update(batch, machine.run(batch), step + 0.5):
            got[output.id] = got.get(output.id, ()) + output.tokens
            if output.finish:
                ends[output.id] = (got[output.id], output.finish)
    raise AssertionError("1000 steps were not enough: a sequence does not advance")
