"""The tensors that a step reads, in memory that stays where it is from step to step.

All numbers of a step go into one buffer, and so to a CUDA device in one copy that nothing waits for. Block tables are large and change
little: a step writes only the entries that differ from those of the step before. A step's tensors are views, and hold until
the next step is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence as Row
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from llmendpoint_server.core.batch import Scheduled

Array = npt.NDArray[Any]


class Numbers:
    """A buffer of numbers that lists are written to; on CUDA it is there twice, in pinned memory and on the device. It grows,
    unless `reserve` made it large enough."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self._copied = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]  # torch publishes no type
        self.reserve(1)

    def reserve(self, size: int) -> None:
        """Make room for `size` numbers, in new memory."""
        on_cuda = self._device.type == "cuda"
        self._host = torch.zeros(size, dtype=self._dtype, pin_memory=on_cuda)
        self._written = self._host.numpy()
        self.tensor = torch.zeros(size, dtype=self._dtype, device=self._device) if on_cuda else self._host

    def fill(self, values: list[int] | list[float] | Array) -> torch.Tensor:
        """The numbers on the device, a view."""
        count = len(values)
        if count > len(self._host):
            self.reserve(2 * count)
        if self._copied is None:
            self._written[:count] = values
            return self.tensor[:count]
        self._copied.synchronize()  # the copy of the step before: over for long, unless the host is far ahead
        self._written[:count] = values
        view = self.tensor[:count]
        view.copy_(self._host[:count], non_blocking=True)
        self._copied.record(torch.cuda.current_stream(self._device))
        return view


@dataclass(frozen=True, slots=True)
class Loaded:
    """A step's tensors, int64 but for `tables`. T tokens in all, in n rows.

    `ids`, `positions` `[1, T]`. `slots` `[T]`: page * page_size + place in the page. `ends` `[n + 1]`: 0, and the flat
    row after each row's last token. `lengths` `[n]`: of each row's keys, its own tokens included. `logit_rows`: as given. `tables`:
    int32 `[at least n, width]`, each row's pages; what follows a row's pages is anything.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    ends: torch.Tensor
    lengths: torch.Tensor
    logit_rows: torch.Tensor
    tables: torch.Tensor


class Inputs:
    """The buffers of one backend on `device`."""

    def __init__(self, page_size: int, device: torch.device) -> None:
        self.page_size = page_size
        self._device = device
        self._numbers = Numbers(device, torch.int64)
        self._spans = Numbers(device, torch.int32)
        self._row = np.arange(2)
        """0, 1, 2, and so on"""
        self._loaded: tuple[tuple[int, int, int], int, tuple[torch.Tensor, ...]] | None = None
        self.reserve(1, 1)

    def reserve_step(self, rows: int, tokens: int, pages: int) -> None:
        """Make room for every step of at most so many rows and tokens, and tables of at most `pages` pages."""
        self._numbers.reserve(4 * tokens + 3 * rows + 1 + 2 * rows * pages)
        self.reserve(rows, pages)

    def reserve(self, rows: int, pages: int) -> None:
        """Make room for the tables of `rows` rows of `pages` pages, in new memory."""
        self.tables = torch.zeros(rows, pages, dtype=torch.int32, device=self._device)
        self._pages = np.zeros((rows, pages), dtype=np.int64)
        """`tables`, on the host"""
        self._known: list[list[int]] = [[] for _ in range(rows)]
        """what the rows of `tables` hold; empty where that is not known"""
        self._row = np.arange(max(rows, len(self._row)) + 1)

    def load(self, rows: Row[Scheduled], logit_rows: Row[int]) -> Loaded:
        """Write a step's rows, in this order. Raises what a row of bad state raises, before anything is written."""
        ids: list[int] = []
        for row in rows:
            if row.count == 1:
                ids.append(row.token)
            else:
                ids += row.tokens
        starts = np.array([row.start for row in rows], dtype=np.int64)
        counts = np.array([row.count for row in rows], dtype=np.int64)
        tables = [row.sequence.table for row in rows]
        held = np.array([len(table) for table in tables], dtype=np.int64)
        lengths = starts + counts
        if (held * self.page_size < lengths).any():
            raise IndexError("A row computes tokens for which it has no page.")
        self._make_room(len(rows), int(held.max()))
        changed, places, pages = self._changes(tables)
        for i in changed:
            self._known[i] = []
        self._pages.reshape(-1)[places] = pages
        ends, positions, slots = self._flat(starts, counts)
        parts = ids, positions, slots, ends, lengths, logit_rows, places, pages
        whole = self._numbers.fill(np.concatenate(parts, dtype=np.int64))
        loaded = self._views(whole, (len(ids), len(rows), len(logit_rows)))
        if changed:
            at_places, at_pages = whole[-2 * len(places) :].view(2, -1)
            self.tables.view(-1).index_copy_(0, at_places, at_pages.int())
            for i in changed:
                self._known[i] = list(tables[i])
        return loaded

    def _flat(self, starts: Array, counts: Array) -> tuple[Array, Array, Array]:
        """Of rows whose pages are known: `ends`, and the position and the slot of each token."""
        size, rows = self.page_size, len(starts)
        ends = self._row[: rows + 1]
        row, positions = ends[:-1], starts
        if counts.max() > 1:
            ends = np.concatenate(([0], counts.cumsum()))
            row = np.repeat(row, counts)
            positions = np.arange(ends[-1]) + np.repeat(starts - ends[:-1], counts)
        return ends, positions, self._pages[row, positions // size] * size + positions % size

    def _views(self, whole: torch.Tensor, sizes: tuple[int, int, int]) -> Loaded:
        """Those of the step before, if it had as many tokens, rows and `logit_rows`."""
        if self._loaded is None or self._loaded[:2] != (sizes, whole.data_ptr()):
            tokens, rows, logits = sizes
            lengths = tokens, tokens, tokens, rows + 1, rows, logits
            ids, positions, *others = torch.split(whole[: sum(lengths)], list(lengths))
            self._loaded = sizes, whole.data_ptr(), (ids[None], positions[None], *others)
        return Loaded(*self._loaded[2], tables=self.tables)

    def _make_room(self, rows: int, pages: int) -> None:
        if rows > self.tables.shape[0] or pages > self.tables.shape[1]:
            self.reserve(max(rows, self.tables.shape[0]), max(pages + pages // 2, self.tables.shape[1]))

    def _changes(self, tables: list[list[int]]) -> tuple[list[int], Array, Array]:
        """The rows whose tables changed, and the entries to write: their places in the flat `tables`, and their pages."""
        width = self.tables.shape[1]
        changed = [
            i for i, (table, known) in enumerate(zip(tables, self._known, strict=False)) if table != known
        ]
        places: list[int] = []
        pages: list[int] = []
        for i in changed:
            table, known = tables[i], self._known[i]
            kept = len(known) if table[: len(known)] == known else 0
            places += range(i * width + kept, i * width + len(table))
            pages += table[kept:]
        return changed, np.array(places, dtype=np.int64), np.array(pages, dtype=np.int64)

    def spans(self, rows: Row[Scheduled]) -> torch.Tensor:
        """Int32 `[n, 4]`: each row's first flat row, tokens, position of the first token, and start of its pages in the flat `tables`."""
        values: list[int] = []
        width, first = self.tables.shape[1], 0
        for i, row in enumerate(rows):
            values += (first, row.count, row.start, i * width)
            first += row.count
        return self._spans.fill(values).view(-1, 4)
