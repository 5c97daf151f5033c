"""Requests whose grammar is being compiled, before the scheduler has them: no step waits for a compilation."""

from __future__ import annotations

from concurrent.futures import Future

from llmendpoint_server.core.request import FinishReason, Request, RequestOutput
from llmendpoint_server.engine.sampling.masks import Masks

POLL_SECONDS = 0.002
"""How often an engine without other work looks whether a grammar is compiled."""
DETAIL = "the engine compiles as many grammars as it may have requests in its queue"


class Held:
    """At most `most` requests."""

    def __init__(self, masks: Masks | None, most: int) -> None:
        self._masks = masks
        self._most = most
        self._requests: dict[str, tuple[Request, Future[None], set[int]]] = {}
        """the set: the answers that are not wanted any more"""

    def __len__(self) -> int:
        return len(self._requests)

    def takes(self, request: Request) -> bool:
        """Whether the request must be held: its grammar is not compiled yet."""
        grammar = request.sampling.grammar
        return grammar is not None and self._masks is not None and not self._masks.knows(grammar)

    def hold(self, request: Request) -> list[RequestOutput]:
        """Begin to compile its grammar, or say why not: one end for each answer."""
        grammar = request.sampling.grammar
        assert grammar is not None, "it must be held"
        assert self._masks is not None, "it must be held"
        if len(self._requests) >= self._most:
            return _ends(request, FinishReason.REJECTED, DETAIL, 1.0)
        self._requests[request.id] = request, self._masks.prepare(grammar), set()
        return []

    def ready(self) -> list[tuple[Request, set[int]]]:
        """Those whose grammar is compiled, or cannot be, each returned once, and which of its answers are to be aborted."""
        done = [
            (request, unwanted) for request, compiled, unwanted in self._requests.values() if compiled.done()
        ]
        for request, _ in done:
            del self._requests[request.id]
        return done

    def abort(self, request_id: str, index: int | None = None) -> list[RequestOutput]:
        """End a request; with `index`, once that is said of each of its answers."""
        found = self._requests.get(request_id)
        if found is None:
            return []
        request, compiled, unwanted = found
        if index is not None:
            unwanted.add(index)
            if len(unwanted) < request.n:
                return []
        del self._requests[request_id]
        compiled.cancel()
        return _ends(request, FinishReason.ABORTED)


def _ends(
    request: Request, reason: FinishReason, detail: str = "", again: float = 0.0
) -> list[RequestOutput]:
    return [
        RequestOutput(request.id, finish=reason, detail=detail, retry_after=again, index=index)
        for index in range(request.n)
    ]
