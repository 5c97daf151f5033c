"""What becomes of a request, for its span: when it came, how long it waited, and which replica got it. Never its body."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from llmendpoint_gateway.core.envoy.wire import Stream
from llmendpoint_gateway.core.placement.placement import Placed
from llmendpoint_gateway.core.request.request import Head
from llmendpoint_gateway.core.request.trace_context import Parent, chosen, read_traceparent, write_traceparent


@dataclass(slots=True, eq=False)
class Traced:
    """`parent`: the caller's span. `began`, `waits`, `decided`, `ended`: seconds, monotonic; `waits` None: it did not wait,
    `decided` None: nothing was decided before its caller left. `outcome`: as in the metric of decisions. `status`: that the
    gateway answered; 0: a replica did. `cluster`, `address`: of the replica that answered."""

    head: Head
    trace_id: int
    span_id: int
    parent: Parent | None
    began: float
    waits: float | None = None
    decided: float | None = None
    ended: float = 0.0
    outcome: str = ""
    status: int = 0
    placed: Placed | None = None
    address: str = ""


class Traces(Protocol):
    """Is told of each stream of ext_proc. No method waits, and none raises."""

    def begin(self, stream: Stream, head: Head) -> None: ...

    def wait(self, stream: Stream) -> None:
        """It waits for a replica."""

    def place(self, stream: Stream, head: Head, placed: Placed) -> str | None:
        """The `traceparent` for the replica; None: the caller's own, if it has one."""

    def answer(self, stream: Stream, outcome: str, status: int) -> None:
        """The gateway answers it. `status` 0: not an error."""

    def end(self, stream: Stream) -> None: ...

    def close(self) -> None:
        """Export what waits, for a short time."""


class Untraced:
    def begin(self, stream: Stream, head: Head) -> None:
        pass

    def wait(self, stream: Stream) -> None:
        pass

    def place(self, stream: Stream, head: Head, placed: Placed) -> str | None:
        return None

    def answer(self, stream: Stream, outcome: str, status: int) -> None:
        pass

    def end(self, stream: Stream) -> None:
        pass

    def close(self) -> None:
        pass


class Tracer:
    """Follows the chosen requests; `export` gets each at its end. `ratio`: the share that is chosen of those without a
    `traceparent`, whose sender decides otherwise. `clock`: seconds, monotonic."""

    def __init__(
        self,
        ratio: float,
        clock: Callable[[], float],
        export: Callable[[Traced], None],
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._ratio, self._clock, self._export, self.close = ratio, clock, export, close
        self._open: dict[Stream, Traced] = {}

    def begin(self, stream: Stream, head: Head) -> None:
        parent = read_traceparent(head.traceparent) if head.traceparent else None
        trace_id = secrets.randbits(128) or 1 if parent is None else parent.trace_id
        if chosen(trace_id, self._ratio) if parent is None else parent.sampled:
            self._open[stream] = Traced(head, trace_id, _span_id(), parent, self._clock())

    def wait(self, stream: Stream) -> None:
        traced = self._open.get(stream)
        if traced is not None and traced.decided is None:
            traced.waits = self._clock()

    def place(self, stream: Stream, head: Head, placed: Placed) -> str | None:
        traced = self._open.get(stream)
        if traced is not None:
            traced.decided, traced.outcome, traced.placed = self._clock(), "picked", placed
            return write_traceparent(traced.trace_id, traced.span_id, sampled=True)
        if head.traceparent and read_traceparent(head.traceparent) is not None:
            return None
        return write_traceparent(
            secrets.randbits(128) or 1, _span_id(), sampled=False
        )  # or the engine would choose

    def answer(self, stream: Stream, outcome: str, status: int) -> None:
        traced = self._open.get(stream)
        if traced is not None:
            traced.decided, traced.outcome, traced.status = self._clock(), outcome, status

    def end(self, stream: Stream) -> None:
        traced = self._open.pop(stream, None)
        if traced is not None:
            traced.ended = self._clock()
            if traced.placed is not None:
                traced.address = traced.placed.address  # a retry has moved it
            self._export(traced)


def _span_id() -> int:
    return secrets.randbits(64) or 1
