"""Engines in virtual time behind the real placement: each computes prompts one after another, and answers at once for all.

An engine keeps the beginnings of prompts in a cache of bounded size, as the bundled one does, and says what is left to be
computed when it is asked.
"""

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from llmendpoint_gateway.core.endpoint.loads import BUSY_PERIOD, Load
from llmendpoint_gateway.core.endpoint.objects import Assignment, Endpoint, Replica
from llmendpoint_gateway.core.endpoint.view import Part, View, change_view
from llmendpoint_gateway.core.outcome.attempt import Ended
from llmendpoint_gateway.core.placement.kept import Kept
from llmendpoint_gateway.core.placement.pick import Picked
from llmendpoint_gateway.core.placement.placement import Placement
from llmendpoint_gateway.core.placement.routing import change_table
from llmendpoint_gateway.core.placement.settle import settle
from llmendpoint_gateway.core.request.body import scan
from llmendpoint_gateway.core.request.paths import ByModel
from llmendpoint_gateway.core.request.request import Head, Request

CLUSTER = "a/chat/r1"
PREFILL = 5000.0  # tokens a second
DECODE = 50.0  # tokens a second of each answer
PAGE = 64  # bytes
HEAD = Head("POST", "/v1/chat/completions", ByModel(), 1)


def endpoint_of(*replicas: Replica) -> Part:
    chat = Endpoint("a", "chat", "2026-01-01T00:00:00Z", ("chat",), "r1", Assignment(1, (("r1", 100),)))
    return Part(chat, {"r1": tuple(replicas)})


def replica(number: int, pod: str = "", ready: bool = True) -> Replica:
    address = f"10.0.0.{number}:8000"
    return Replica(address, pod or f"pod-{number}", ready, False)


def placement_of(*replicas: Replica) -> Placement:
    placement = Placement(Kept(0, 0, 0), 0.0)
    follow(placement, *replicas)
    return placement


def follow(placement: Placement, *replicas: Replica) -> None:
    """From now on these are the endpoint's replicas."""
    view = change_view(placement.view or View(), {"a/chat": endpoint_of(*replicas)})
    addresses = frozenset(r.address for r in replicas)
    placement.follow(view, ["a/chat"], 0.0)
    placement.route_by(change_table(placement.table, view, ["a/chat"], lambda _: addresses), True)


def request_of(text: str, tokens: int = 64, session: int = 0) -> Request:
    body = b'{"model":"chat","max_tokens":%d,"prompt":"%s"}' % (tokens, text.encode())
    return Request(HEAD._replace(session=session), scan(body, prompted=True))


class Cache:
    """The pages of prompts, the least recently used one goes first."""

    def __init__(self, pages: int) -> None:
        self._most = pages
        self._pages: OrderedDict[str, None] = OrderedDict()

    def put(self, text: str) -> int:
        """Returns how many of its bytes were there."""
        found, whole = 0, True
        for end in range(PAGE, len(text) + 1, PAGE):
            name = text[:end]
            whole = whole and name in self._pages
            found = end if whole else found
            self._pages[name] = None
            self._pages.move_to_end(name)
        while len(self._pages) > self._most:
            self._pages.popitem(last=False)
        return found


@dataclass
class Engine:
    address: str
    cache: Cache
    free_at: float = 0.0
    running: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    served: int = 0
    computed: float = 0.0

    def begin(self, ticket: int, text: str, tokens: int, now: float) -> tuple[float, float, int]:
        """Returns when its first token comes, when its last one does, and how many bytes were cached."""
        cached = self.cache.put(text)
        prompt = (len(text) - cached) / 4
        start = max(self.free_at, now)
        first = self.free_at = start + prompt / PREFILL
        last = first + tokens / DECODE
        self.running[ticket] = (start, first, last)
        self.served += 1
        self.computed += prompt + tokens
        return first, last, cached

    def outstanding(self, now: float) -> int:
        left = 0.0
        for start, first, last in self.running.values():
            left += (first - max(min(now, first), start)) * PREFILL + (last - max(now, first)) * DECODE
        return round(left)

    def load(self, now: float) -> Load:
        return Load(len(self.running), 0, 0.0, 256, self.outstanding(now))


@dataclass
class Figures:
    """`uneven`: the busiest engine's share of the mean, at each reading."""

    first_token: list[float] = field(default_factory=list)
    cached: int = 0
    bytes: int = 0
    uneven: list[float] = field(default_factory=list)
    served: list[int] = field(default_factory=list)
    computed: list[float] = field(default_factory=list)

    @property
    def hits(self) -> float:
        return self.cached / self.bytes


Choose = Callable[[Placement, Request, float], Picked]


def by_us(placement: Placement, request: Request, now: float) -> Picked:
    decision = placement.place("chat", now, request.caller, request.print_, request.prompt)
    assert isinstance(decision, Picked)
    return decision


def by_requests(placement: Placement, request: Request, now: float) -> Picked:
    decision = placement.place("chat", now, request.caller, request.print_)
    assert isinstance(decision, Picked)
    return decision


def in_turn() -> Choose:
    turns = itertools.count()

    def choose(placement: Placement, _: Request, __: float) -> Picked:
        addresses = placement.table.routes["a/chat"].targets[0].addresses
        return Picked("a/chat", CLUSTER, (addresses[next(turns) % len(addresses)],))

    return choose


def run(
    texts: Iterator[str],
    choose: Choose,
    requests: int,
    at_once: int,
    engines: int = 4,
    pages: int = 10_000,
    tokens: int = 64,
    asked: bool = True,
) -> Figures:
    """So many requests, `at_once` of them all the time. `asked`: the gateway reads the engines' loads."""
    replicas = [replica(n) for n in range(engines)]
    placement, figures = placement_of(*replicas), Figures()
    of = {r.address: Engine(r.address, Cache(pages)) for r in replicas}
    events: list[tuple[float, int, str, int]] = []
    if asked:
        heapq.heappush(events, (0.0, 0, "read", 0))
    for n in range(at_once):
        heapq.heappush(events, (n * 1e-3, n + 1, "send", 0))
    numbers, sent, ended = itertools.count(at_once + 1), 0, 0
    while ended < requests:
        now, _, what, ticket = heapq.heappop(events)
        if what == "read":
            for engine in of.values():
                placement.loads.touched.add(engine.address)
            for address in placement.unread(now, 100):
                placement.note_load(address, of[address].load(now), now)
            left = [engine.outstanding(now) for engine in of.values()]
            if sum(left) and sent > requests // 10:
                figures.uneven.append(max(left) * len(left) / sum(left))
            heapq.heappush(events, (now + BUSY_PERIOD, next(numbers), "read", 0))
        elif what == "send" and sent < requests:
            sent += 1
            text = next(texts)
            request = request_of(text, tokens)
            placed = placement.take(choose(placement, request, now), request, now)
            number = placed.tag.ticket
            first, last, cached = of[placed.address].begin(number, text, tokens, now)
            figures.first_token.append(first - now)
            figures.cached, figures.bytes = figures.cached + cached, figures.bytes + len(text)
            heapq.heappush(events, (last, next(numbers), "end", number))
        elif what == "end":
            ended += 1
            address = placement.placed[ticket].address
            del of[address].running[ticket]
            settle(Ended(ticket), placement, now)
            heapq.heappush(events, (now, next(numbers), "send", 0))
    figures.served = [engine.served for engine in of.values()]
    figures.computed = [engine.computed for engine in of.values()]
    return figures
