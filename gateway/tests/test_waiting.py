"""Who waits, who is next, and who makes way."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llmendpoint_gateway.core.waiting import Claim, Priority, Waiting


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


def test_a_higher_band_goes_first() -> None:
    queue: Waiting[str] = Waiting()
    for item, priority in (("l", Priority.LOW), ("n", Priority.NORMAL), ("h", Priority.HIGH)):
        queue.add("a", item, claim(priority=priority))
    assert order(queue) == ["h", "n", "l"]


def test_in_a_full_queue_a_higher_band_displaces_the_newest_of_the_lowest() -> None:
    queue: Waiting[str] = Waiting()
    for item in ("l1", "l2"):
        queue.add("a", item, claim(priority=Priority.LOW), most=3)
    queue.add("a", "n1", claim(), most=3)
    assert queue.add("a", "h1", claim(priority=Priority.HIGH), most=3).displaced == "l2"
    assert queue.add("a", "n2", claim(), most=3).displaced == "l1"
    assert not queue.add("a", "l3", claim(priority=Priority.LOW), most=3).admitted
    assert not queue.add("a", "n3", claim(), most=3).admitted
    assert order(queue) == ["h1", "n1", "n2"]


def test_in_a_full_queue_a_tenant_with_few_displaces_the_newest_of_who_has_most() -> None:
    queue: Waiting[str] = Waiting()
    for item in ("a1", "a2", "a3", "a4"):
        queue.add("a", item, claim(tenant="a"), most=4)
    assert queue.add("a", "b1", claim(tenant="b"), most=4).displaced == "a4"
    assert queue.add("a", "b2", claim(tenant="b"), most=4).displaced == "a3"
    assert not queue.add("a", "b3", claim(tenant="b"), most=4).admitted
    assert not queue.add("a", "a5", claim(tenant="a"), most=4).admitted


def test_when_all_is_full_the_longest_queue_makes_way_for_the_others() -> None:
    queue: Waiting[str] = Waiting(most_requests=4)
    for item in ("1", "2", "3", "4"):
        queue.add("a", item, claim())
    assert queue.add("b", "5", claim()).displaced == "4"
    assert not queue.add("a", "6", claim()).admitted
    assert queue.count("a") == 3


def test_when_all_is_full_nobody_makes_way_for_a_lower_priority_of_another_endpoint() -> None:
    queue: Waiting[str] = Waiting(most_requests=4)
    for item in ("1", "2", "3"):
        queue.add("a", item, claim(priority=Priority.HIGH))
    assert queue.add("b", "low", claim(priority=Priority.LOW)).admitted
    assert queue.add("b", "normal", claim()).displaced == "low"
    assert not queue.add("b", "another", claim()).admitted
    assert queue.add("b", "high", claim(priority=Priority.HIGH)).displaced == "3"
    assert (queue.count("a"), queue.count("b")) == (2, 2)


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
        endpoint=st.sampled_from("ab"),
        size=st.integers(0, 60),
        tenant=st.sampled_from("xyz"),
        priority=st.sampled_from(Priority),
    )
    def one_comes(self, endpoint: str, size: int, tenant: str, priority: Priority) -> None:
        self.numbers += 1
        mine = claim(size, tenant, priority)
        admission = self.waiting.add(endpoint, self.numbers, mine, self.OF_ONE)
        if admission.displaced is not None:
            _, other = self.here.pop(admission.displaced)
            assert admission.admitted
            assert other.priority >= mine.priority
        if admission.admitted:
            self.here[self.numbers] = (endpoint, mine)

    @rule(endpoint=st.sampled_from("ab"))
    def one_is_served(self, endpoint: str) -> None:
        item = self.waiting.first(endpoint)
        waiting = {i: c for i, (e, c) in self.here.items() if e == endpoint}
        assert (item is None) == (not waiting)
        if item is None:
            return
        assert waiting[item].priority == min(c.priority for c in waiting.values())
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
        for endpoint in "ab":
            count = sum(e == endpoint for e, _ in self.here.values())
            assert self.waiting.count(endpoint) == count <= self.OF_ONE
        assert set(self.waiting) == {e for e, _ in self.here.values()}


TestQueues = Queues.TestCase
TestQueues.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
