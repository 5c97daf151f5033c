"""Requests that wait until a replica has room: each is answered in turn, or when its time is over."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from llmendpoint_gateway.core.endpoint.departed import GRACE_SECONDS
from llmendpoint_gateway.core.endpoint.names import Meant
from llmendpoint_gateway.core.envoy.wire import Stream
from llmendpoint_gateway.core.placement.pick import Picked
from llmendpoint_gateway.core.placement.placement import Placement
from llmendpoint_gateway.core.placement.waiting import Waiting
from llmendpoint_gateway.core.request.refusals import Rejected, queue_full, unknown_model
from llmendpoint_gateway.core.request.request import Head, Request
from llmendpoint_gateway.serve.metrics import Metrics
from llmendpoint_gateway.serve.request import writing
from llmendpoint_gateway.serve.request.answers import Answers

MARGIN_SECONDS = 5.0  # how much longer Envoy waits than the gateway

Later = Callable[[float, Callable[[], None]], asyncio.TimerHandle]
"""Calls a function after some seconds, like an event loop's `call_later`."""

JudgeAgain = Callable[[Head, str | Meant], Rejected | None]
"""Whether the caller of a request that has waited may still use what it asked for; None: it may."""


@dataclass(slots=True, eq=False)
class Held:
    """A request that waits for a replica of `endpoint`, which it asked for by `name`. `since`: seconds, monotonic.
    `until`: how long Envoy was told to wait. `none`: its answer if no replica comes; it names the adapter that the request
    is for."""

    stream: Stream
    request: Request
    endpoint: str
    name: str | Meant
    none: Rejected
    timer: asyncio.TimerHandle
    since: float
    until: float


class HeldRequests:
    """`waiting` holds them. `first` is called with an endpoint when the first request waits for it. A waiting stream's
    `state` is its Held."""

    def __init__(
        self,
        placement: Placement,
        waiting: Waiting[Held],
        answers: Answers,
        metrics: Metrics,
        clock: Callable[[], float],
        later: Later,
        first: Callable[[str], None],
        judge_again: JudgeAgain | None = None,
    ) -> None:
        self.waiting = waiting
        self._placement, self._answers, self._metrics = placement, answers, metrics
        self._clock, self._later, self._first = clock, later, first
        self._judge_again = judge_again

    def hold(self, stream: Stream, request: Request, name: str | Meant, none: Rejected) -> bool:
        """Let the request wait if a replica will come or have room; `none` is the answer if none does in time. Returns
        whether it waits, or was answered because the queue has no room."""
        endpoint = none.awaited
        if endpoint is None:
            return False
        seconds = self._placement.patience(endpoint)
        if seconds <= 0:
            return False
        timer = self._later(seconds, lambda: self._expire(held))
        longest, now = self._placement.longest_patience(endpoint), self._clock()
        held = Held(stream, request, endpoint, name, none, timer, now, now + longest)
        admission = self.waiting.add(endpoint, held, request.claim, self._placement.queue_of(endpoint).most)
        if not admission.admitted:
            timer.cancel()
            self._answers.give(stream, request, self._full(endpoint), time.perf_counter())
            return True
        self._placement.changed.add(endpoint)
        if self.waiting.count(endpoint) == 1:
            self._first(endpoint)
        stream.state = held
        stream.send(writing.wait(longest + MARGIN_SECONDS))
        for displaced in admission.displaced:
            displaced.timer.cancel()
            self._answer(displaced, self._full(displaced.endpoint))
        return True

    def leave(self, held: Held) -> None:
        """The request waits no longer."""
        held.timer.cancel()
        self.waiting.remove(held.endpoint, held)
        self._placement.changed.add(held.endpoint)

    def retry_all(self) -> None:
        """Replicas may have come, routes may have changed, or time may have made room, as the end of an ejection does."""
        for endpoint in self.waiting:
            self.retry(endpoint)

    def retry(self, endpoint: str) -> None:
        """The endpoint may have room: its waiting requests go on, in turn. Where none of an adapter's replicas has room, or
        there is none, its requests hold up no others."""
        blocked: set[str] = set()
        while held := self.waiting.first(endpoint, lambda one: one.none.adapter in blocked):
            decision = self._place(held)
            if isinstance(decision, Rejected) and decision.awaited == endpoint:
                if decision.status == 404:
                    self._endpoint_gone(endpoint)
                    return
                if not decision.adapter:
                    return
                held.none = decision
                blocked.add(decision.adapter)
                continue
            held.timer.cancel()
            seconds = self._clock() - held.since
            self.waiting.serve(endpoint, held, seconds)
            if endpoint not in self._placement.view.endpoints:
                self.forget(endpoint)
            self._placement.changed.add(endpoint)
            self._metrics.waited(seconds)
            self._answer(held, decision)

    def forget(self, endpoint: str) -> None:
        """The endpoint is deleted: forget how long requests waited. Requests may still wait for it."""
        self.waiting.forget(endpoint)

    def _place(self, held: Held) -> Picked | Rejected:
        request = held.request
        refusal = self._judge_again(request.head, held.name) if self._judge_again else None
        return refusal or self._placement.place(
            held.name, self._clock(), request.caller, request.print_, request.prompt
        )

    def _expire(self, held: Held) -> None:
        """The request's time is over. If its endpoint was deleted and exists again, it waits on."""
        if held.none.status == 404 and held.endpoint in self._placement.view.endpoints:
            decision = self._place(held)
            if isinstance(decision, Rejected) and decision.awaited == held.endpoint:
                self._wait_on(held, decision, self._placement.hold_seconds)
                return
        self.leave(held)
        self._answer(held, held.none)

    def _wait_on(self, held: Held, none: Rejected, seconds: float) -> None:
        """Wait for `seconds`, within what Envoy was told. `none` is the answer after that."""
        held.timer.cancel()
        held.none = none
        left = min(seconds, held.until - self._clock())
        held.timer = self._later(max(left, 0.0), lambda: self._expire(held))

    def _endpoint_gone(self, endpoint: str) -> None:
        """The endpoint was deleted: its waiting requests get 404, unless it is back within GRACE_SECONDS."""
        for held in self.waiting.items(endpoint):
            if held.none.status != 404:
                self._wait_on(held, replace(unknown_model(str(held.name)), awaited=endpoint), GRACE_SECONDS)

    def _full(self, endpoint: str) -> Rejected:
        return queue_full(endpoint, self.waiting.count(endpoint), self.waiting.seconds(endpoint))

    def _answer(self, held: Held, decision: Picked | Rejected) -> None:
        """Answer a request that waits no longer."""
        held.stream.state = None
        try:
            self._answers.give(held.stream, held.request, decision, time.perf_counter())
        except Exception:  # any: this request fails; the next ones go on
            self._answers.fail(held.stream)
