"""docs/concepts/gateway.md: callers take turns, a priority orders one caller's requests, a full queue evicts from the largest."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llmendpoint_gateway.core.identity.priority import Priority
from llmendpoint_gateway.core.placement.waiting import Waiting
from llmendpoint_gateway.core.request.claim import Claim

LARGEST = 32 << 20
"""The body of a request that the gateway accepts."""


def claim(size: int = 0, tenant: str = "", priority: Priority = Priority.NORMAL) -> Claim:
    return Claim(size, hash(tenant), priority)


def order(waiting: Waiting[str], endpoint: str = "a") -> list[str]:
    """Everybody, as they are served."""
    found = []
    while (item := waiting.first(endpoint)) is not None:
        waiting.serve(endpoint, item, 1.0)
        found.append(item)
    return found


def test_what_has_no_room_to_wait_is_refused_and_the_room_is_found_again() -> None:
    queue: Waiting[str] = Waiting(most_requests=3, most_bytes=100)
    assert queue.add("a", "1", claim(60)).admitted
    assert not queue.add("a", "2", claim(41)).admitted
    assert queue.add("b", "3", claim(40)).admitted
    queue.remove("a", "1")
    assert queue.add("a", "4", claim()).admitted
    assert queue.add("a", "5", claim(), most=2).admitted
    assert not queue.add("a", "6", claim(), most=2).admitted
    assert order(queue) == ["4", "5"]


def test_one_endpoint_cannot_take_the_bytes_of_all() -> None:
    queue: Waiting[str] = Waiting(most_bytes=100)
    assert queue.add("a", "1", claim(30)).admitted
    assert not queue.add("a", "2", claim(30)).admitted
    assert queue.add("b", "3", claim(60)).admitted  # a single large one is none too many


def test_within_a_tenant_it_is_first_come_first_served_and_tenants_take_turns() -> None:
    queue: Waiting[str] = Waiting()
    for item in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.add("a", item, claim(tenant=item[0]))
    assert order(queue) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_a_tenant_that_comes_back_is_no_further_ahead_than_one_that_stayed() -> None:
    queue: Waiting[str] = Waiting()
    for item in ("a1", "b1", "b2"):
        queue.add("a", item, claim(tenant=item[0]))
    queue.serve("a", "a1", 1.0)
    queue.add("a", "a2", claim(tenant="a"))
    assert order(queue) == ["b1", "a2", "b2"]


def test_of_one_caller_a_higher_priority_goes_first() -> None:
    queue: Waiting[str] = Waiting()
    for item, priority in (("l", Priority.LOW), ("n", Priority.NORMAL), ("h", Priority.HIGH)):
        queue.add("a", item, claim(priority=priority))
    assert order(queue) == ["h", "n", "l"]


def test_in_a_full_queue_a_callers_higher_priority_displaces_its_own_newest_of_the_lowest() -> None:
    queue: Waiting[str] = Waiting()
    for item in ("l1", "l2"):
        queue.add("a", item, claim(priority=Priority.LOW), most=3)
    queue.add("a", "n1", claim(), most=3)
    assert queue.add("a", "h1", claim(priority=Priority.HIGH), most=3).displaced == ("l2",)
    assert queue.add("a", "n2", claim(), most=3).displaced == ("l1",)
    assert not queue.add("a", "l3", claim(priority=Priority.LOW), most=3).admitted
    assert not queue.add("a", "n3", claim(), most=3).admitted
    assert order(queue) == ["h1", "n1", "n2"]


def test_in_a_full_queue_a_tenant_with_few_displaces_the_newest_of_who_has_most() -> None:
    queue: Waiting[str] = Waiting()
    for item in ("a1", "a2", "a3", "a4"):
        queue.add("a", item, claim(tenant="a"), most=4)
    assert queue.add("a", "b1", claim(tenant="b"), most=4).displaced == ("a4",)
    assert queue.add("a", "b2", claim(tenant="b"), most=4).displaced == ("a3",)
    assert not queue.add("a", "b3", claim(tenant="b"), most=4).admitted
    assert not queue.add("a", "a5", claim(tenant="a"), most=4).admitted


def test_when_all_is_full_the_longest_queue_makes_way_for_the_others() -> None:
    queue: Waiting[str] = Waiting(most_requests=4)
    for item in ("1", "2", "3", "4"):
        queue.add("a", item, claim())
    assert queue.add("b", "5", claim()).displaced == ("4",)
    assert not queue.add("a", "6", claim()).admitted
    assert queue.count("a") == 3


@pytest.mark.parametrize("priority", Priority)
def test_across_endpoints_priority_does_not_count(priority: Priority) -> None:
    queue: Waiting[str] = Waiting(most_requests=4)
    for item in ("1", "2", "3", "4"):
        queue.add("a", item, claim(priority=Priority.HIGH))
    assert queue.add("b", "5", claim(priority=priority)).displaced == ("4",)
    assert queue.add("b", "6", claim(priority=priority)).displaced == ("3",)
    assert queue.add("c", "8", claim(priority=priority)).displaced == ("2",)
    assert (queue.count("a"), queue.count("b"), queue.count("c")) == (1, 2, 1)


def test_two_endpoints_that_fill_the_bytes_shut_no_other_out() -> None:
    queue: Waiting[str] = Waiting()
    for endpoint in "ab":
        for number in range(2):
            assert queue.add(endpoint, f"{endpoint}{number}", claim(LARGEST - 1)).admitted
    for number in range(100):  # many small requests do not draw the displacement to their own endpoint
        assert queue.add("c", f"small{number}", claim(1000)).admitted
    assert queue.count("c") == 100
    assert queue.count("a") + queue.count("b") == 3
    assert queue.add("d", "large", claim(LARGEST)).admitted
    assert (queue.count("a"), queue.count("b"), queue.count("c")) == (1, 1, 100)


def test_a_large_body_takes_the_room_of_several_small_ones_of_who_holds_the_most_bytes() -> None:
    queue: Waiting[str] = Waiting(most_bytes=100)
    for number in range(5):
        queue.add("a", f"a{number}", claim(10))
        queue.add("b", f"b{number}", claim(10))
    assert set(queue.add("c", "c0", claim(30)).displaced) == {"a4", "b4", "a3"}
    assert not queue.add("d", "d0", claim(31)).admitted  # the others hold too little beyond that
    assert (queue.requests, queue.bytes) == (8, 100)


def test_the_largest_body_can_wait_where_nothing_else_does() -> None:
    queue: Waiting[str] = Waiting(most_bytes=LARGEST)
    assert queue.add("a", "1", claim(LARGEST)).admitted


def test_5000_requests_of_high_priority_shut_no_other_endpoint_out() -> None:
    queue: Waiting[tuple[str, int]] = Waiting()
    for endpoint in "abcde":
        for number in range(1000):
            queue.add(endpoint, (endpoint, number), claim(priority=Priority.HIGH))
    assert queue.requests == 5000
    for number in range(100):
        assert queue.add("z", ("z", number), claim()).admitted
    assert queue.count("z") == 100
    assert [queue.count(endpoint) for endpoint in "abcde"] == [980] * 5


def test_a_callers_high_priority_neither_displaces_nor_starves_other_callers() -> None:
    queue: Waiting[tuple[str, int]] = Waiting()
    for number in range(1000):
        queue.add("a", (f"caller{number}", 0), claim(tenant=f"caller{number}"))
    for number in range(1000):
        queue.add("a", ("greedy", number), claim(tenant="greedy", priority=Priority.HIGH))
    assert {caller for caller, _ in queue.items("a")} == {f"caller{number}" for number in range(1000)}
    for number in range(10):
        queue.remove("a", (f"caller{number}", 0))
        queue.add("a", ("greedy", number), claim(tenant="greedy", priority=Priority.HIGH))
    served = []
    for _ in range(991):
        item = queue.first("a")
        assert item is not None
        queue.serve("a", item, 1.0)
        served.append(item[0])
    assert served == [f"caller{number}" for number in range(10, 1000)] + ["greedy"]


def test_a_caller_with_one_large_body_displaces_of_the_caller_with_the_most_bytes() -> None:
    queue: Waiting[str] = Waiting(most_bytes=100)  # of which one endpoint may have 50
    queue.add("a", "x1", claim(40, "x", Priority.HIGH))
    for number in range(5):
        queue.add("a", f"y{number}", claim(1, "y"))
    assert queue.add("a", "z1", claim(10, "z", Priority.LOW)).displaced == ("x1",)


def test_3000_requests_across_50_endpoints_are_served_evenly_between_tenants() -> None:
    queue: Waiting[tuple[int, str, int]] = Waiting()
    tenants = {"greedy": 30, "usual": 20, "small": 10}
    for endpoint in range(50):
        for tenant, count in tenants.items():
            for number in range(count):
                assert queue.add(str(endpoint), (endpoint, tenant, number), claim(tenant=tenant)).admitted
    assert queue.requests == 3000
    served = dict.fromkeys(tenants, 0)
    for _ in range(27):  # rounds in which every endpoint has room for one: all tenants still wait
        for endpoint in range(50):
            item = queue.first(str(endpoint))
            assert item is not None
            queue.serve(str(endpoint), item, 1.0)
            served[item[1]] += 1
    assert max(served.values()) <= 1.1 * min(served.values())


class Queues(RuleBasedStateMachine):
    """Requests come, are served and leave in any order."""

    MOST, BYTES, OF_ONE = 6, 100, 4

    def __init__(self) -> None:
        super().__init__()
        self.waiting: Waiting[int] = Waiting(self.MOST, self.BYTES)
        self.here: dict[int, tuple[str, Claim]] = {}
        self.numbers = 0

    @rule(
        endpoint=st.sampled_from("abc"),
        size=st.integers(0, 60),
        tenant=st.sampled_from("xyz"),
        priority=st.sampled_from(Priority),
    )
    def one_comes(self, endpoint: str, size: int, tenant: str, priority: Priority) -> None:
        self.numbers += 1
        mine = claim(size, tenant, priority)
        admission = self.waiting.add(endpoint, self.numbers, mine, self.OF_ONE)
        before = dict(self.here)
        for item in admission.displaced:
            assert admission.admitted
            other_endpoint, other = self.here.pop(item)
            if other_endpoint != endpoint:
                assert self.holds_more(before, mine, endpoint, other_endpoint)
            elif other.caller == mine.caller:
                assert other.priority > mine.priority
            else:
                assert self.holds_more(before, mine, (endpoint, mine.caller), (endpoint, other.caller))
        if admission.admitted:
            self.here[self.numbers] = (endpoint, mine)

    @staticmethod
    def holds_more(
        before: dict[int, tuple[str, Claim]],
        mine: Claim,
        own: str | tuple[str, int],
        other: str | tuple[str, int],
    ) -> bool:
        """Than the new request's side holds with it, in bytes or in number."""
        held = dict.fromkeys((own, other), (0, 0))
        for endpoint, c in before.values():
            for side in (endpoint, (endpoint, c.caller)):
                if side in held:
                    held[side] = (held[side][0] + c.size, held[side][1] + 1)
        # Where the own side loses some at the same time, it may hold as much as the bound of one endpoint.
        return held[other][0] > min(held[own][0], Queues.BYTES // 2) or held[other][1] > held[own][1]

    @rule(endpoint=st.sampled_from("abc"))
    def one_is_served(self, endpoint: str) -> None:
        item = self.waiting.first(endpoint)
        waiting = {i: c for i, (e, c) in self.here.items() if e == endpoint}
        assert (item is None) == (not waiting)
        if item is None:
            return
        caller = waiting[item].caller
        assert waiting[item].priority == min(c.priority for c in waiting.values() if c.caller == caller)
        rivals = [
            i
            for i, c in waiting.items()
            if (c.caller, c.priority) == (waiting[item].caller, waiting[item].priority)
        ]
        assert item == min(rivals)
        self.waiting.serve(endpoint, item, 2.0)
        assert self.waiting.seconds(endpoint) == 2.0
        del self.here[item]

    @precondition(lambda self: self.here)
    @rule(data=st.data())
    def one_leaves(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(sorted(self.here)))
        endpoint, _ = self.here.pop(item)
        self.waiting.remove(endpoint, item)

    @invariant()
    def the_bounds_hold_and_nothing_is_counted_twice(self) -> None:
        assert self.waiting.requests == len(self.here) <= self.MOST
        assert self.waiting.bytes == sum(c.size for _, c in self.here.values()) <= self.BYTES
        for endpoint in "abc":
            count = sum(e == endpoint for e, _ in self.here.values())
            assert self.waiting.count(endpoint) == count <= self.OF_ONE
        assert set(self.waiting) == {e for e, _ in self.here.values()}


TestQueues = Queues.TestCase
TestQueues.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
