"""Decode steps as CUDA graphs: one launch computes a whole step, for each of some batch sizes.

A batch is padded to the next size with rows that write to the spare page. The graph of a size holds the forward and the
most probable tokens; two others draw tokens, with filters or without, and one of them is replayed if a row is not greedy. The logits stay in
a buffer, so that what else a row wants of them is computed beside the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import structlog
import torch

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.attention.base import Backend
from llmendpoint_server.engine.forward import forward
from llmendpoint_server.engine.inputs import Numbers
from llmendpoint_server.engine.loading import CausalLM
from llmendpoint_server.engine.sampling.static import Parameters
from llmendpoint_server.engine.step import Step
from llmendpoint_server.engine.triton import stages

SIZES = (1, 2, 4, *range(8, 257, 8))
"""Rows of the graphs. Larger steps run without one."""
Work = Callable[[], None]


class Recorder(Protocol):
    """Turns work on the device into a replay of it."""

    def rehearse(self, work: Work) -> None:
        """Do the work once, as it must be before it is recorded. Raises RuntimeError if it waits for the device."""

    def record(self, work: Work) -> Work: ...


class CudaRecorder:
    """All graphs share a pool of memory: only one is replayed at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def rehearse(self, work: Work) -> None:
        here, aside = torch.cuda.current_stream(self._device), torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]  # torch publishes no type
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            work()  # allocates and compiles what the first time does
            torch.cuda.set_sync_debug_mode("error")
            try:
                work()
            finally:
                torch.cuda.set_sync_debug_mode("default")
        here.wait_stream(aside)

    def record(self, work: Work) -> Work:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            work()
        return graph.replay


@dataclass(frozen=True, slots=True)
class Recorded:
    """The graphs of one size: `compute` the forward and the most probable tokens, `draw` the tokens of rows that are not greedy,
    `draw_filtered` too if one of them asks for top_p or top_k."""

    compute: Work
    draw: Work
    draw_filtered: Work


@dataclass(frozen=True, slots=True)
class Launched:
    """A step that the device computes. `sequences`: of its rows, in their order, without the padding."""

    step: Step
    sequences: list[Sequence]
    _read: torch.Tensor
    _done: torch.cuda.Event | None

    def tokens(self) -> list[int]:
        """Of each row. Waits for the device. The second step that is launched after this one overwrites them."""
        if self._done is not None:
            self._done.synchronize()
        found: list[int] = self._read.tolist()
        return found


def sizes_for(most: int) -> tuple[int, ...]:
    """The sizes that batches of up to `most` rows need."""
    return tuple(size for place, size in enumerate(SIZES) if place == 0 or SIZES[place - 1] < most)


class Graphs:
    """The graphs of a model on `backend`, for batches of up to `most` rows. `spare`: a row of one token in a page that no request
    uses."""

    def __init__(self, model: CausalLM, backend: Backend, spare: Scheduled, most: int) -> None:
        self._model, self._backend, self._spare = model, backend, spare
        self.sizes = sizes_for(most)
        self._recorded: dict[int, Recorded] = {}

    def capture(self, recorder: Recorder) -> bool:
        """Record all sizes, the largest first, whose memory the others use again. False, and a line in the log, if the model cannot
        be recorded: then every step runs without a graph. A device that refuses to record raises what a broken one does, which the next
        step tells."""
        try:
            self._make_buffers()  # outside of inference mode: other steps write to them, too
            with torch.inference_mode():
                for size in reversed(self.sizes):
                    self._recorded[size] = self._record(recorder, size)
        except RuntimeError as error:  # AcceleratorError, too
            self._recorded.clear()
            structlog.get_logger().warning("served without CUDA graphs, which is slower", cause=str(error))
        return bool(self._recorded)

    def _make_buffers(self) -> None:
        largest = self.sizes[-1]
        step = self._padding(largest)
        device = step.device
        self.logits = torch.empty_like(forward(self._model, self._backend, step))
        """`[rows, vocabulary]` of the last step, in the order of its `Step`"""
        self._stages = stages(device)
        self._highest = torch.empty(largest, dtype=torch.float32, device=device)
        self._tokens = torch.empty(largest, dtype=torch.int64, device=device)
        on_cuda = device.type == "cuda"
        self._reads = [
            (
                torch.empty(largest, dtype=torch.int64, pin_memory=on_cuda),
                torch.cuda.Event() if on_cuda else None,  # type: ignore[no-untyped-call]  # torch publishes no type
            )
            for _ in range(2)
        ]
        """tokens of the last two steps on the host, and when they are there"""
        self._places = Numbers(device, torch.int64)
        self._places.reserve(largest)
        self._parameters = Parameters(largest, device)

    def _padding(self, size: int) -> Step:
        return self._backend.prepare(Batch((), 0.0), [self._spare] * size)

    def _record(self, recorder: Recorder, size: int) -> Recorded:
        recorder.rehearse(lambda: self._compute(self._padding(size)))
        step = self._padding(
            size
        )  # anew: what its first layer derives from its tensors is a part of the graph
        compute = recorder.record(lambda: self._compute(step))
        self._parameters.load([self._spare.sequence] * size, size)
        draws = []
        for filtered in (False, True):
            recorder.rehearse(partial(self._draw, size, filtered))
            draws.append(recorder.record(partial(self._draw, size, filtered)))
        return Recorded(compute, *draws)

    def _compute(self, step: Step) -> None:
        size = len(step.rows)
        logits = self.logits[:size]
        logits.copy_(forward(self._model, self._backend, step))
        self._stages.most_probable(logits, self._highest[:size], self._tokens[:size])

    def _draw(self, size: int, filtered: bool) -> None:
        self._stages.draw(
            self.logits[:size],
            self._highest[:size],
            self._parameters.array(size),
            self._tokens[:size],
            filtered,
        )

    def fit(self, batch: Batch) -> bool:
        """Whether there is a graph for the batch: all of its rows decode, one token each, and without an adapter."""
        fits = bool(self._recorded) and len(batch.rows) <= self.sizes[-1] and batch.plain
        return fits and all(row.sequence.place < 0 for row in batch.rows)

    def run(self, batch: Batch) -> tuple[Step, list[int]]:
        """A token of each row, in the order of the step's rows. Waits for the device once, at the end."""
        launched = self.launch(batch)
        return launched.step, launched.tokens()

    def launch(self, batch: Batch, after: Launched | None = None) -> Launched:
        """Begin a batch. `after`: what was launched last, and gives the batch's rows their tokens; None: these are known."""
        with torch.inference_mode():
            return self._launch(batch, after)

    def _launch(self, batch: Batch, after: Launched | None) -> Launched:
        rows = len(batch.rows)
        size = next(size for size in self.sizes if size >= rows)
        step = self._backend.prepare(batch, [self._spare] * (size - rows))
        sequences = [row.sequence for row in step.rows[:rows]]
        if after is not None:
            self._hand_over(step, sequences, after)
        recorded = self._recorded[size]
        params = [sequence.request.sampling for sequence in sequences]
        draws = not all(one.temperature == 0 for one in params)
        if draws:  # written before the graph is launched: the next step waits for this copy
            self._parameters.load(sequences, size, coming=int(after is not None))
        recorded.compute()
        if draws:
            filtered = any(one.top_p < 1 or one.top_k for one in params)
            (recorded.draw_filtered if filtered else recorded.draw)()
        self._reads.reverse()  # the other one may not have been read yet
        read, done = self._reads[0]
        read[:rows].copy_(self._tokens[:rows], non_blocking=True)
        if done is not None:
            done.record(torch.cuda.current_stream(step.device))
        return Launched(step, sequences, read[:rows], done)

    def _hand_over(self, step: Step, sequences: list[Sequence], after: Launched) -> None:
        """Give a step the tokens of the one that runs."""
        tokens = self._tokens
        if sequences != after.sequences[: len(sequences)]:
            places = {sequence: place for place, sequence in enumerate(after.sequences)}
            tokens = tokens[self._places.fill([places[sequence] for sequence in sequences])]
        # A row that is not a number has no token; its request fails, and nobody reads what follows.
        step.ids[0, : len(sequences)].copy_(tokens[: len(sequences)].clamp(min=0))
