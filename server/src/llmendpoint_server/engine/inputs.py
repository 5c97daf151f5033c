"""The tensors that a step reads, in memory that stays where it is from step to step.

All numbers of a step go into one buffer, and so to a CUDA device in one copy that nothing waits for. Block tables are large and change
little: a step writes only the entries that differ from those of the step before. A step's tensors are views, and hold until
the next step is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence as Row
from dataclasses import dataclass

import torch

from llmendpoint_server.core.batch import Scheduled


class Numbers:
    """A buffer of numbers that lists are written to; on CUDA it is there twice, in pinned memory and on the device. It grows,
    unless `reserve` made it large enough."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self._copied: torch.cuda.Event | None = None
        self.reserve(1)

    def reserve(self, size: int) -> None:
        """Make room for `size` numbers, in new memory."""
        on_cuda = self._device.type == "cuda"
        self._host = torch.zeros(size, dtype=self._dtype, pin_memory=on_cuda)
        self._written = self._host.numpy()
        self.tensor = torch.zeros(size, dtype=self._dtype, device=self._device) if on_cuda else self._host

    def fill(self, values: list[int] | list[float]) -> torch.Tensor:
        """The numbers on the device, a view."""
        count = len(values)
        if count > len(self._host):
            self.reserve(2 * count)
        if self._copied is not None:
            self._copied.synchronize()  # the copy of the step before: over for long, unless the host is far ahead
        self._written[:count] = values
        view = self.tensor[:count]
        if self.tensor is not self._host:
            view.copy_(self._host[:count], non_blocking=True)
            self._copied = torch.cuda.current_stream(self._device).record_event()
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
        self.reserve(1, 1)

    def reserve_step(self, rows: int, tokens: int, pages: int) -> None:
        """Make room for every step of at most so many rows and tokens, and tables of at most `pages` pages."""
        self._numbers.reserve(4 * tokens + 3 * rows + 1 + 2 * rows * pages)
        self.reserve(rows, pages)

    def reserve(self, rows: int, pages: int) -> None:
        """Make room for the tables of `rows` rows of `pages` pages, in new memory."""
        self.tables = torch.zeros(rows, pages, dtype=torch.int32, device=self._device)
        self._known: list[list[int]] = [[] for _ in range(rows)]
        """what the rows of `tables` hold"""

    def load(self, rows: Row[Scheduled], logit_rows: list[int]) -> Loaded:
        """Write a step's rows, in this order. Raises what a row of bad state raises, before anything is written."""
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        ends, lengths = [0], []
        for row in rows:
            end = row.start + row.count
            if row.count == 1:
                ids.append(row.token)
            else:
                ids += row.tokens
            positions += range(row.start, end)
            self._add_slots(row.sequence.table, row.start, end, slots)
            ends.append(len(ids))
            lengths.append(end)
        tables = [row.sequence.table for row in rows]
        self._make_room(tables)
        places, pages = self._changes(tables)
        parts = ids, positions, slots, ends, lengths, logit_rows, places, pages
        whole = self._numbers.fill([number for part in parts for number in part])
        at_ids, at_positions, at_slots, at_ends, at_lengths, at_logits, at_places, at_pages = torch.split(
            whole, [len(part) for part in parts]
        )
        self._write(tables, at_places, at_pages)
        return Loaded(at_ids[None], at_positions[None], at_slots, at_ends, at_lengths, at_logits, self.tables)

    def _add_slots(self, table: list[int], start: int, end: int, slots: list[int]) -> None:
        size = self.page_size
        while start < end:
            page, offset = divmod(start, size)
            stop = min(end, start - offset + size)
            first = table[page] * size + offset
            slots += range(first, first + stop - start)
            start = stop

    def _make_room(self, tables: list[list[int]]) -> None:
        rows, pages = len(tables), max(map(len, tables), default=0)
        if rows > self.tables.shape[0] or pages > self.tables.shape[1]:
            self.reserve(max(rows, self.tables.shape[0]), max(pages + pages // 2, self.tables.shape[1]))

    def _changes(self, tables: list[list[int]]) -> tuple[list[int], list[int]]:
        """The entries to write: their places in the flat `tables`, and their pages."""
        width = self.tables.shape[1]
        places: list[int] = []
        pages: list[int] = []
        for i, (table, known) in enumerate(zip(tables, self._known, strict=False)):
            if table != known:
                kept = len(known) if table[: len(known)] == known else 0
                places += range(i * width + kept, i * width + len(table))
                pages += table[kept:]
        return places, pages

    def _write(self, tables: list[list[int]], places: torch.Tensor, pages: torch.Tensor) -> None:
        if len(places):
            self.tables.view(-1).index_copy_(0, places, pages.int())
            for i, table in enumerate(tables):
                if table != self._known[i]:
                    self._known[i] = list(table)

    def spans(self, rows: Row[Scheduled]) -> torch.Tensor:
        """Int32 `[n, 4]`: each row's first flat row, tokens, position of the first token, and start of its pages in the flat `tables`."""
        values: list[int] = []
        width, first = self.tables.shape[1], 0
        for i, row in enumerate(rows):
            values += (first, row.count, row.start, i * width)
            first += row.count
        return self._spans.fill(values).view(-1, 4)
