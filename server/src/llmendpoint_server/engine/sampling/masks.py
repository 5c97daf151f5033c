"""The tokens that a grammar allows next, for the rows that have one: computed in a thread while the model computes the step.

Each sequence has its own matcher, which is told the sequence's tokens before its next mask is computed. So nothing has to be told
when a step's result is known, and a sequence that was preempted, or whose step is computed again, goes on where it is.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Row
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from llguidance import LLExecutor, LLMatcher, LLTokenizer

from llmendpoint_server import guidance
from llmendpoint_server.core.batch import Scheduled
from llmendpoint_server.core.grammar import Grammar
from llmendpoint_server.core.sequence import Sequence

COMPILED_KEPT = 16
"""Grammars that are kept for requests to come; a typical one takes less than 1 MB."""
THREADS_MAX = 4
BITS = 32
Bits = npt.NDArray[np.int32]
SLOW_SECONDS = 0.005
"""For one mask. Those of usual schemas take less than 4 ms with a vocabulary of 150k, and mostly 0.1. All rows of a step wait for it."""
SLOW_SECONDS_MAX, SLOW_SECONDS_MIN = 0.25, 0.05
"""Processor time that the slow masks of one answer may take together: the first, shared by a request's answers, but not less than the
second. A grammar of 30 characters may take 0.1 s for each token."""
TOO_SLOW = "It takes too long to compute which tokens the grammar of this request allows. Make it simpler: less that is optional or ambiguous."
NO_TOKEN = "No token of this model can go on with the grammar of this request."
WATCHED_STEPS = 16
"""After a slow step. In these each row's mask is computed alone, so that its time is known."""


@dataclass(slots=True)
class Matching:
    """A sequence's matcher, which knows the first `known` tokens of its answer."""

    matcher: LLMatcher
    known: int = 0
    slow: float = 0.0
    """seconds of its slow masks"""

    def took(self, seconds: float) -> None:
        if seconds > SLOW_SECONDS:
            self.slow += seconds


@dataclass(frozen=True, slots=True)
class Work:
    """A row of a step: where its masks are in the step's, one for each token of the draft and one."""

    sequence: Sequence
    matching: Matching
    line: int
    draft: list[int]


@dataclass(frozen=True, slots=True)
class Mask:
    """What one sequence may say. `bits`: int32 `[1 + tokens of its draft, words]`, a bit for each token, the first one the lowest. `ends`:
    the grammar is at its end, and only these tokens may come. `fault`: why the grammar cannot go on; then the rest says nothing."""

    bits: npt.NDArray[np.int32]
    ends: tuple[int, ...] = ()
    fault: str = ""


NONE: Mapping[Sequence, Mask] = {}


class Masks:
    """`make_tokenizer`: called once, when the first grammar comes. `vocab_size`: of the logits."""

    def __init__(self, make_tokenizer: Callable[[], LLTokenizer], threads: int, vocab_size: int) -> None:
        self._make_tokenizer = make_tokenizer
        self._vocab_size = vocab_size
        self._tokenizer: LLTokenizer | None = None
        self._executor = LLExecutor(min(threads, THREADS_MAX))
        self._thread = ThreadPoolExecutor(1, "masks")
        self._compiling = ThreadPoolExecutor(1, "grammars")
        self._making = threading.Lock()
        """held while the tokenizer is made"""
        self._lock = threading.Lock()
        """of the two that follow: the threads and the engine's loop use them"""
        self._live: WeakKeyDictionary[Grammar, LLMatcher] = WeakKeyDictionary()
        self._compiled: OrderedDict[Grammar, LLMatcher] = OrderedDict()
        self._of: WeakKeyDictionary[Sequence, Matching] = WeakKeyDictionary()
        self._watched = 0
        """steps yet in which each row is computed alone"""

    def begin(self, rows: Row[Scheduled]) -> Future[Mapping[Sequence, Mask]] | None:
        """Start to compute the masks of a step's rows; None if no row that samples has a grammar."""
        asked = [row for row in rows if row.sequence.request.sampling.grammar is not None and row.sample]
        return self._thread.submit(self._masks, asked) if asked else None

    def knows(self, grammar: Grammar) -> bool:
        """Whether it is compiled."""
        with self._lock:
            return self._found(grammar) is not None

    def prepare(self, grammar: Grammar) -> Future[None]:
        """Compile a grammar that will be needed, and keep it as long as somebody has it. What cannot be compiled is the fault of the
        sequence that needs it."""
        return self._compiling.submit(self._try, grammar)

    def _try(self, grammar: Grammar) -> None:
        with contextlib.suppress(guidance.BadGrammar):
            self._start(grammar)

    def _masks(self, rows: list[Scheduled]) -> Mapping[Sequence, Mask]:
        found: dict[Sequence, Mask] = {}
        work: list[Work] = []
        lines = 0
        for row in rows:
            try:
                matching = self._brought_up(row.sequence)
            except guidance.BadGrammar as error:
                found[row.sequence] = Mask(np.zeros((0, 0), np.int32), fault=str(error))
                continue
            work.append(Work(row.sequence, matching, lines, list(row.draft)))
            lines += 1 + len(row.draft)
        if not work:
            return found
        assert self._tokenizer is not None, "a matcher was made"
        bits = np.full((lines, -(-self._tokenizer.vocab_size // BITS)), -1, dtype=np.int32)
        self._compute(work, bits)
        self._narrow(bits)
        return found | {one.sequence: self._mask(one, bits) for one in work}

    def _compute(self, work: list[Work], bits: Bits) -> None:
        """All rows together in threads; one by one for some steps after one that was slow."""
        began = time.monotonic()
        if self._watched:
            self._watched -= 1
            for one in work:
                self._compute_alone(one, bits)
        else:
            self._compute_all(work, bits)
        if time.monotonic() - began > SLOW_SECONDS:
            self._watched = WATCHED_STEPS

    def _compute_all(self, work: list[Work], bits: Bits) -> None:
        place = bits.ctypes.data, bits.shape[1] * bits.itemsize, len(bits)
        if plain := [(one.matching.matcher, one.line) for one in work if not one.draft]:
            self._executor.unsafe_compute_mask_ptr(plain, *place)
        if drafted := [(one.matching.matcher, one.line, one.draft) for one in work if one.draft]:
            self._executor.unsafe_compute_mask_ptr_with_draft_token(drafted, *place)

    def _compute_alone(self, one: Work, bits: Bits) -> None:
        clock = time.monotonic if one.draft else time.thread_time  # a busy machine halts threads
        began = clock()
        if one.draft:  # in a thread of the executor
            self._compute_all([one], bits)
        else:
            one.matching.matcher.unsafe_compute_mask_ptr(
                bits[one.line].ctypes.data, bits.shape[1] * bits.itemsize
            )
        one.matching.took(clock() - began)

    def _narrow(self, bits: Bits) -> None:
        """A tokenizer may have more tokens than the model has logits; the model says none of these."""
        words, rest = divmod(self._vocab_size, BITS)
        if self._tokenizer is not None and self._tokenizer.vocab_size > self._vocab_size:
            bits[:, words + (rest > 0) :] = 0
            if rest:
                bits[:, words] &= np.int32((1 << rest) - 1)

    def _mask(self, one: Work, bits: Bits) -> Mask:
        matcher = one.matching.matcher
        if matcher.is_error():
            return Mask(bits[:0], fault=_fault(matcher))
        if not bits[one.line].any():
            return Mask(bits[:0], fault=NO_TOKEN)
        most = max(SLOW_SECONDS_MAX / one.sequence.request.n, SLOW_SECONDS_MIN)
        if one.matching.slow > most:
            return Mask(bits[:0], fault=TOO_SLOW)
        ends = tuple(self._tokenizer.eos_tokens) if self._tokenizer and matcher.is_stopped() else ()
        return Mask(bits[one.line : one.line + 1 + len(one.draft)], ends)

    def _brought_up(self, sequence: Sequence) -> Matching:
        """The sequence's matcher, which knows all of its answer. Raises BadGrammar."""
        matching = self._of.get(sequence)
        if matching is None:
            grammar = sequence.request.sampling.grammar
            assert grammar is not None, "only such rows are asked for"
            matching = self._of[sequence] = Matching(self._start(grammar).deep_copy())
        new = sequence.tokens[len(sequence.request.prompt) + matching.known :]
        began = time.thread_time()
        if new and not matching.matcher.consume_tokens(new):
            raise guidance.BadGrammar(_fault(matching.matcher))
        matching.took(time.thread_time() - began)
        matching.known += len(new)
        return matching

    def _start(self, grammar: Grammar) -> LLMatcher:
        """A matcher that has seen nothing, to be copied. Raises BadGrammar."""
        with self._making:
            if self._tokenizer is None:
                self._tokenizer = self._make_tokenizer()
        with self._lock:
            found = self._found(grammar)
        if found is None:
            found = guidance.compiled(self._tokenizer, grammar)
        with self._lock:
            self._live[grammar] = self._compiled[grammar] = found
            self._compiled.move_to_end(grammar)
            if len(self._compiled) > COMPILED_KEPT:
                self._compiled.popitem(last=False)
        return found

    def _found(self, grammar: Grammar) -> LLMatcher | None:
        return self._live.get(grammar) or self._compiled.get(grammar)


def _fault(matcher: LLMatcher) -> str:
    why = guidance.short(matcher.get_error())
    if why.startswith(guidance.DEAD_END):
        return "The grammar of this request cannot go on: no text that it allows follows what was answered. Remove its dead end."
    return f"The grammar of this request became too complex or cannot go on: {why}"
