"""One step's batch as index tensors: which flat row is which position of which sequence's pages.

Decoding sequences come first, the shortest context first, so that those of similar length form a contiguous group,
which one padded batched matmul serves. Then come the prompt chunks. Index tensors are made once per step for each kind
of layer (window, number of key heads) and shared by all layers of that kind.
"""

from __future__ import annotations

from collections.abc import Sequence as Row
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import torch

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.engine.inputs import Inputs

_SMALLEST_GROUP_PAGES = 8
"""Contexts up to this many pages share a group; above it, each doubling has its own group."""


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Flat rows `start` to `end`. `rows`: page rows of a layer's cache, `[sequences * kv_heads * pages]`. `bias`: 0 for
    a key that is seen and -inf elsewhere, `[sequences * kv_heads, 1, pages * page_size]`."""

    start: int
    end: int
    rows: torch.Tensor
    bias: torch.Tensor


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """`count` tokens from position `start` on, at flat rows `row` to `row + count`."""

    row: int
    start: int
    count: int
    table: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a step's tokens lie, in int32. `rows` `[sequences, 4]`: first flat row, tokens, position of the first token, start of
    its pages in the flat `tables`. `slots`: of each token, page * page_size + its place in the page."""

    rows: torch.Tensor
    tables: torch.Tensor
    slots: torch.Tensor


@dataclass(frozen=True, slots=True)
class Ragged:
    """Sequences of any lengths, as CUDA kernels read them: int32, but for `slots`. `query_ends`, `key_ends` `[n + 1]`: 0, and the
    sums of each row's queries and keys. `key_counts` `[n]`. `tables` `[n, pages]`. `most_queries`: of any row. `most_keys`: as many as the tables have place for."""

    slots: torch.Tensor
    query_ends: torch.Tensor
    key_ends: torch.Tensor
    key_counts: torch.Tensor
    tables: torch.Tensor
    most_queries: int
    most_keys: int


class Step:
    """The tensors of one batch, in `inputs`, which hold until the next one; attention bias in `dtype`. `padding`: more rows of one
    token, after those that decode."""

    def __init__(
        self,
        batch: Batch,
        inputs: Inputs,
        device: torch.device,
        dtype: torch.dtype,
        padding: Row[Scheduled] = (),
    ) -> None:
        self.page_size = inputs.page_size
        self.device = device
        self.dtype = dtype
        rows = batch.rows
        starts = [row.start for row in rows]
        order = sorted((i for i, row in enumerate(rows) if row.count == 1), key=starts.__getitem__)
        singles = len(order)
        if singles < len(rows):
            chunks = [i for i, row in enumerate(rows) if row.count > 1]
            order += sorted(chunks, key=lambda i: (starts[i] > 0, rows[i].count))
        self.rows = [rows[i] for i in order]
        self._decodes = self.rows[:singles]
        self.singles = singles if singles < len(rows) else singles + len(padding)
        """the first rows, of one token each"""
        self.sampled: list[int] = order
        """places in the batch of the rows that sample; each has as many `logit_rows` as it has tokens in its draft, and one"""
        self.scored: list[int] = []
        """places in the batch of the rows that score their prompt; each has a row of logits for each position that it scores, after
        those of all rows that sample"""
        logit_rows = (
            range(len(order) + len(padding)) if batch.plain else self._logit_rows(order, len(padding))
        )
        self.rows += padding
        self._inputs = inputs
        self.loaded = inputs.load(self.rows, logit_rows)
        self.ids, self.positions = self.loaded.ids, self.loaded.positions
        self.logit_rows = self.loaded.logit_rows
        self._slots: dict[int, torch.Tensor] = {}
        self._opened_rows: dict[int, torch.Tensor] = {}
        self._groups: dict[tuple[int | None, int], list[DecodeGroup]] = {}
        self._contexts: dict[tuple[int, int | None, int], tuple[torch.Tensor, torch.Tensor]] = {}

    def _logit_rows(self, order: list[int], padding: int) -> list[int]:
        """Flat rows, of the rows that sample, of the padding, and of those that score; at least one. Finds which sample and score."""
        self.sampled = []
        logit_rows: list[int] = []
        scored_rows: list[int] = []
        end = 0
        for i, row in zip(order, self.rows, strict=True):
            end += row.count
            if row.sample:
                self.sampled.append(i)
                logit_rows += range(end - 1 - len(row.draft), end)
            if scored := row.scored:
                self.scored.append(i)
                first = end - row.count - row.start
                scored_rows += range(first + scored.start, first + scored.stop)
        logit_rows += range(end, end + padding)
        return logit_rows + scored_rows or [end - 1]

    @cached_property
    def chunk_batches(self) -> list[list[PrefillChunk]]:
        """The chunks in consecutive rows, those of equal length that begin alike together."""
        chunks = []
        first = len(self._decodes)
        for row in self.rows[first:]:
            chunks.append(PrefillChunk(first, row.start, row.count, tuple(row.sequence.table)))
            first += row.count
        return [list(some) for _, some in groupby(chunks, key=lambda chunk: (chunk.start > 0, chunk.count))]

    @cached_property
    def _opened(self) -> list[int]:
        return [page for row in self.rows if (page := self._opened_page(row)) is not None]

    def _opened_page(self, row: Scheduled) -> int | None:
        """The page whose first token the row computes, but not its last; None if there is no such page."""
        end = row.start + row.count
        last = (end - 1) // self.page_size
        fills = end % self.page_size == 0
        return None if fills or last * self.page_size < row.start else row.sequence.table[last]

    @cached_property
    def layout(self) -> Layout:
        return Layout(self._inputs.spans(self.rows), self.loaded.tables, self.loaded.slots.int())

    @cached_property
    def ragged(self) -> Ragged:
        """Made by the first layer that asks. So it is a part of the graph, if the step is captured."""
        loaded, rows = self.loaded, len(self.rows)
        counts = loaded.lengths.int()
        ends = torch.nn.functional.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))
        most_queries = max(row.count for row in self.rows)
        most_keys = loaded.tables.shape[1] * self.page_size
        tables = loaded.tables[:rows]
        return Ragged(loaded.slots, loaded.ends.int(), ends, counts, tables, most_queries, most_keys)

    def opened(self, kv_heads: int) -> torch.Tensor | None:
        """Page rows that the step begins and does not fill. They must be cleared: they still hold their former
        contents, and a hidden key or value that is not a number makes the whole result not a number."""
        if self._opened and kv_heads not in self._opened_rows:
            self._opened_rows[kv_heads] = self._page_rows([self._opened], kv_heads)
        return self._opened_rows.get(kv_heads)

    def slots(self, kv_heads: int) -> torch.Tensor:
        """The slots of the step's keys: token slots `[T * kv_heads]` in a cache seen as `[-1, head_dim]`."""
        found = self._slots.get(kv_heads)
        if found is None:
            heads = torch.arange(kv_heads, device=self.device)
            slots = self.loaded.slots[:, None]
            offsets = slots % self.page_size
            found = (slots - offsets) * kv_heads + heads * self.page_size + offsets
            found = self._slots[kv_heads] = found.flatten()
        return found

    def decode_groups(self, window: int | None, kv_heads: int) -> list[DecodeGroup]:
        """The decoding sequences in groups of similar context, without the pages that a window has passed."""
        key = (window, kv_heads)
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = self._make_groups(window, kv_heads)
        return found

    def _make_groups(self, window: int | None, kv_heads: int) -> list[DecodeGroup]:
        size, groups, start = self.page_size, [], 0
        spans = [(_first_page(row.start, window, size), row.start // size + 1) for row in self._decodes]
        for _, members in groupby(spans, key=lambda span: _group_key(span[1] - span[0])):
            count = len(list(members))
            part, rows = spans[start : start + count], self._decodes[start : start + count]
            pages = max(end - first for first, end in part)
            tables = []
            for (first, end), row in zip(part, rows, strict=True):
                table = row.sequence.table[first:end]
                # Padded with the sequence's own last page: another sequence's page may hold what is not a number, and
                # the bias would not hide that.
                tables.append(table + table[-1:] * (pages - end + first))
            positions = torch.tensor([row.start for row in rows], device=self.device)[:, None]
            firsts = torch.tensor([first for first, _ in part], device=self.device)[:, None]
            bias = self._bias(
                firsts * size + torch.arange(pages * size, device=self.device), positions, window
            )
            bias = bias[:, None].expand(-1, kv_heads, -1).reshape(count * kv_heads, 1, -1)
            groups.append(DecodeGroup(start, start + count, self._page_rows(tables, kv_heads), bias))
            start += count
        return groups

    def chunk_context(
        self, chunk: PrefillChunk, window: int | None, kv_heads: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Page rows of everything that the chunk sees, and its bias `[1, 1, count, keys]`."""
        key = (chunk.row, window, kv_heads)
        found = self._contexts.get(key)
        if found is None:
            first, end = _first_page(chunk.start, window, self.page_size), chunk.start + chunk.count
            table = list(chunk.table[first : -(-end // self.page_size)])
            keys = first * self.page_size + torch.arange(len(table) * self.page_size, device=self.device)
            queries = torch.arange(chunk.start, end, device=self.device)[:, None]
            bias = self._bias(keys[None], queries, window)[None, None]
            found = self._contexts[key] = (self._page_rows([table], kv_heads), bias)
        return found

    def _page_rows(self, tables: list[list[int]], kv_heads: int) -> torch.Tensor:
        heads = torch.arange(kv_heads, device=self.device)[None, :, None]
        pages = torch.tensor(tables, device=self.device)[:, None, :]
        return (pages * kv_heads + heads).flatten()

    def _bias(self, keys: torch.Tensor, queries: torch.Tensor, window: int | None) -> torch.Tensor:
        unseen = keys > queries
        if window is not None:
            unseen = unseen | (keys <= queries - window)
        return torch.zeros(unseen.shape, dtype=self.dtype, device=self.device).masked_fill_(
            unseen, float("-inf")
        )


def _first_page(position: int, window: int | None, page_size: int) -> int:
    """The first page that a query at `position` still sees."""
    return 0 if window is None else max(position - window + 1, 0) // page_size


def _group_key(pages: int) -> int:
    return 0 if pages <= _SMALLEST_GROUP_PAGES else (pages - 1).bit_length()
