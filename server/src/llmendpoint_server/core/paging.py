"""Finds the pages of a sequence in the prefix cache, allocates, names and releases them."""

from __future__ import annotations

from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.sequence import GONE, Sequence


class Paging:
    """`prefix_key` None: no prefix cache. `window`: the most keys that a query sees in any layer; None if a layer has
    no window."""

    def __init__(self, blocks: BlockManager, prefix_key: bytes | None, window: int | None) -> None:
        self._blocks = blocks
        self._prefix_key = prefix_key
        self._window = window

    def take(self, sequence: Sequence, budget: int, spare: int) -> bool:
        """Get pages for all tokens of a sequence without pages, cached ones first. With a sliding window it allocates
        pages for the next step of `budget` tokens only: later steps reuse the pages that the window has passed. Takes
        none, and returns False, if fewer than `spare` pages would be left."""
        blocks, size, tokens = self._blocks, self._blocks.page_size, len(sequence.tokens)
        found = self._found(sequence)
        if self._window is not None:
            tokens = min(tokens, len(found) * size + budget)
        need = -(-tokens // size) - len(found)
        if need + blocks.idle(found) + spare > blocks.available:
            return False
        blocks.hold(found)
        sequence.table = found + blocks.allocate(need)
        sequence.computed = len(found) * size
        sequence.named = len(found)
        self.release_unseen(sequence)
        return True

    def cached(self, sequence: Sequence) -> int:
        """How many tokens of a sequence without pages are in the prefix cache now."""
        return len(self._found(sequence)) * self._blocks.page_size

    def _found(self, sequence: Sequence) -> list[int]:
        if self._prefix_key is None:
            return []
        size = self._blocks.page_size
        # The last token is always computed: the next one is sampled from its logits.
        names = sequence.page_names(self._prefix_key, size, sequence.cacheable // size)
        return self._blocks.find(names)

    def grow(self, sequence: Sequence, count: int) -> None:
        """The next `count` tokens of the sequence have keys and values: name the pages that have become full, and release those that
        no query sees any more."""
        sequence.computed += count
        if self._prefix_key is not None:
            full = sequence.computed // self._blocks.page_size
            if full != sequence.named:
                self._name(sequence, self._prefix_key, full)
        if self._window is not None:
            self.release_unseen(sequence)

    def _name(self, sequence: Sequence, key: bytes, full: int) -> None:
        """Name the first `full` pages."""
        names = sequence.page_names(key, self._blocks.page_size, full)
        for page in range(sequence.named, full):
            self._blocks.name(sequence.table[page], names[page])
        sequence.named = full

    def release_unseen(self, sequence: Sequence) -> None:
        """Release the pages that the sliding window has passed. Full pages keep their names."""
        if self._window is None:
            return
        seen = max(sequence.computed - self._window + 1, 0) // self._blocks.page_size
        unseen = sequence.table[sequence.released : seen]
        if unseen:
            self._blocks.release(unseen)
            sequence.table[sequence.released : seen] = [GONE] * len(unseen)
            sequence.released = seen

    def give_back(self, sequence: Sequence) -> None:
        """Release all pages of a sequence. Its KV would have to be computed again."""
        self._blocks.release(sequence.held)
        sequence.table = []
        sequence.computed = sequence.named = sequence.released = 0
