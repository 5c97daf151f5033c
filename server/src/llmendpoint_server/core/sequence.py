"""One answer of a request in the engine: its tokens, how many of them have KV, and in which pages."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from llmendpoint_server.core.adapters import NO_PLACE
from llmendpoint_server.core.prefix import PageHash, chain_hash
from llmendpoint_server.core.request import FinishReason, Request
from llmendpoint_server.core.speculation import Proposer

GONE = -1
"""In a table: the page was released. A read of it raises."""


class Status(enum.Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False, weakref_slot=True)
class Sequence:
    """`tokens` is prompt and output; the first `computed` of them have keys and values in the pages of `table`.

    If every layer has a sliding window, the first `released` entries of `table` are GONE: the window has passed their
    pages.
    """

    request: Request
    seed: int
    tokens: list[int]
    names: list[PageHash]
    """names[0] is the root of the chain, names[i + 1] names the i-th page's contents"""
    status: Status = Status.WAITING
    computed: int = 0
    table: list[int] = field(default_factory=list)
    released: int = 0
    named: int = 0
    """pages of `table` whose contents the block manager knows"""
    cached_tokens: int = 0
    decoding: bool = False
    """Whether a token was sampled since the sequence got its pages: then only what was sampled has no keys and values"""
    order: tuple[float, int] = (0.0, 0)
    """see `queue`: the lowest one starts first, and is preempted last"""
    proposer: Proposer | None = None
    """None until the sequence gets its first draft"""
    draft_length: int = 1
    """tokens that the next draft may have; 0: it gets none any more"""
    index: int = 0
    """of the request's answers"""
    began: float = 0.0
    """seconds: when it got its first pages"""
    begun: bool = False
    """Whether its request has begun to run, preempted since or not"""
    ready: bool = True
    """Whether it may begin; see `group`"""
    shared: int = 0
    """tokens of the prompt that it expects in the prefix cache"""
    scored: int = 0
    """tokens of the prompt whose log probabilities were told, if they are asked for"""
    ends: frozenset[int] = frozenset()
    """the tokens that end it"""
    place: int = NO_PLACE
    """of its adapter"""

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def held(self) -> list[int]:
        """The pages of `table` that are not released."""
        return self.table[self.released :]

    @property
    def scores(self) -> bool:
        """Whether log probabilities of its prompt are still to be told."""
        asked = self.request.sampling.prompt_logprobs is not None and self.index == 0
        return asked and self.scored < len(self.request.prompt)

    @property
    def cacheable(self) -> int:
        """Of so many of its first tokens no logits are needed, so that their keys and values may come from the prefix cache."""
        return max(self.scored - 1, 0) if self.scores else len(self.tokens) - 1

    @property
    def remaining(self) -> int:
        """Tokens without KV."""
        return len(self.tokens) - self.computed

    @property
    def due(self) -> int:
        """Tokens that are computed before the next one is sampled, if it has no pages."""
        return len(self.tokens) - self.shared

    @property
    def generated(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    @property
    def outstanding(self) -> int:
        """Tokens still to compute if the request runs to its limit."""
        request = self.request
        return len(request.prompt) + request.sampling.max_tokens - self.computed

    def steps_left(self, budget: int) -> int:
        """The most steps of `budget` tokens that are left until the sequence reaches its limit of tokens."""
        prefill = -(-max(self.remaining - 1, 0) // budget)
        return prefill + self.request.sampling.max_tokens - self.generated

    def page_names(self, key: bytes, page_size: int, pages: int) -> list[PageHash]:
        """Names of the first `pages` full pages, computed once each."""
        while len(self.names) <= pages:
            start = (len(self.names) - 1) * page_size
            self.names.append(chain_hash(key, self.names[-1], self.tokens[start : start + page_size]))
        return self.names[1 : pages + 1]


def ends_of(request: Request, eos_token_ids: frozenset[int]) -> frozenset[int]:
    """The tokens that end an answer to the request."""
    sampling = request.sampling
    without_eos = sampling.ignore_eos and sampling.grammar is None  # a grammar ends by such a token
    return sampling.stop_token_ids if without_eos else sampling.stop_token_ids | eos_token_ids


def finish_reason(sequence: Sequence, max_model_len: int) -> FinishReason | None:
    """Why the sequence's newest token ends it; None if it does not."""
    tokens = sequence.tokens
    if tokens[-1] in sequence.ends:
        return FinishReason.STOP
    return FinishReason.LENGTH if ends_at(sequence, len(tokens), max_model_len) else None


def ends_at(sequence: Sequence, length: int, max_model_len: int) -> bool:
    """Whether it may have no more tokens than `length`."""
    request = sequence.request
    return length >= max_model_len or length - len(request.prompt) >= request.sampling.max_tokens
