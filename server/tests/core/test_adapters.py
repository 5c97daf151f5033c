"""docs/concepts/adapters.md: an adapter has a place of its own as long as any request needs it, and a name only once it is filled."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llmendpoint_server.core.adapters import Places, PlacesFull
from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.config import SchedulerConfig
from llmendpoint_server.core.request import FinishReason, Request, SamplingParams
from llmendpoint_server.core.scheduler import Scheduler

NAMES = st.sampled_from("abcd")
MOST = 3


class Machine(RuleBasedStateMachine):
    """`wrote`: what was last written to each place, as a number of its own. A request must always find what its adapter was when it began."""

    def __init__(self) -> None:
        super().__init__()
        self.places = Places(MOST)
        self.wrote: dict[int, int] = {}
        self.writes = 0
        self.filling: list[int] = []
        self.requests: list[tuple[int, int]] = []
        """place and what it held"""
        self.meant: dict[str, int] = {}
        """what each name means"""
        self.names: dict[int, str] = {}
        self.generations: list[int] = []

    @rule(name=NAMES)
    def begin(self, name: str) -> None:
        self.places.settle({place for place, _ in self.requests})
        busy = {place for place, _ in self.requests} | set(self.filling)
        busy |= {placed.place for placed in map(self.places.find, self.places.names) if placed}
        known = {*self.meant, *(self.names[place] for place in self.filling)}
        try:
            place = self.places.begin(name)
        except PlacesFull:
            assert len(busy) == MOST + 1 or (name not in known and len(known) >= MOST)
            return
        assert place not in busy, "nobody needs what is there"
        self.writes += 1
        self.wrote[place] = self.writes
        self.filling.append(place)
        self.names[place] = name

    @precondition(lambda self: self.filling)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(self.filling))
        self.filling.remove(place)
        placed = self.places.finish(place)
        assert placed.place == place
        self.generations.append(placed.generation)
        self.meant[self.names[place]] = self.wrote[place]

    @precondition(lambda self: self.filling)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(self.filling))
        self.filling.remove(place)
        self.places.give_up(place)

    @rule(name=NAMES)
    def unload(self, name: str) -> None:
        assert self.places.unload(name) is (name in self.meant)
        self.meant.pop(name, None)

    @rule(name=NAMES)
    def ask(self, name: str) -> None:
        placed = self.places.find(name)
        assert (placed is not None) is (name in self.meant)
        if placed is not None:
            assert self.wrote[placed.place] == self.meant[name]
            self.requests.append((placed.place, self.wrote[placed.place]))

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def end_of_a_request(self, data: st.DataObject) -> None:
        self.requests.remove(data.draw(st.sampled_from(self.requests)))

    @invariant()
    def no_request_finds_another_adapter(self) -> None:
        assert all(self.wrote[place] == held for place, held in self.requests)

    @invariant()
    def every_load_has_a_number_of_its_own(self) -> None:
        assert len(set(self.generations)) == len(self.generations)
        assert len(self.places.names) <= MOST


TestPlaces = Machine.TestCase
TestPlaces.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def scheduler() -> Scheduler:
    config = SchedulerConfig(64, 4, 16, 64, 100, prefix_key=b"k" * 32, max_adapters=2)
    return Scheduler(config, BlockManager(64, 4))


def load(one: Scheduler, name: str) -> int:
    place = one.adapters.begin(name)
    one.adapters.finish(place)
    return place


def test_a_request_of_an_adapter_that_was_let_go_is_lost_with_each_of_its_answers_and_may_be_tried_elsewhere() -> (
    None
):
    one = scheduler()
    load(one, "sql")
    one.adapters.unload("sql")
    ends = one.add(Request("r", (1, 2), SamplingParams(2), n=2, adapter="sql"), 0)
    assert [(end.index, end.finish) for end in ends] == [(0, FinishReason.LOST), (1, FinishReason.LOST)]
    assert one.idle


def test_a_place_is_free_again_when_the_last_request_of_it_ends() -> None:
    one = scheduler()
    first = load(one, "sql")
    assert one.add(Request("r", (1, 2), SamplingParams(2), adapter="sql"), 0) == []
    assert load(one, "sql") != first, "it is replaced beside what its request runs with"
    one.free_places()
    load(one, "other")
    with pytest.raises(PlacesFull, match="requests still run"):
        one.adapters.begin("sql")
    one.abort("r")
    one.free_places()
    assert one.adapters.begin("sql") == first


def test_the_adapters_of_requests_are_told_by_whether_they_run() -> None:
    one = scheduler()
    load(one, "a")
    load(one, "b")
    for name, adapter in (("1", "a"), ("2", ""), ("3", "a")):
        one.add(Request(name, (1, 2), SamplingParams(2), adapter=adapter), 0)
    one.schedule(0.0)
    one.add(Request("4", (1, 2), SamplingParams(2), adapter="b"), 0)
    assert one.adapters_of_requests() == (("a",), ("b",))
