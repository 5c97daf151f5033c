"""docs/contribute/contracts.md: `/readyz` tells the watch's staleness: from the first break until both watches stand again."""

from llmendpoint_gateway.core.endpoint.reach import Reach
from llmendpoint_gateway.core.endpoint.view import Kind


def test_it_is_out_of_reach_for_as_long_as_the_watch_that_broke_first_and_until_both_stand() -> None:
    reach = Reach()
    assert (reach.stale, reach.seconds(9)) == (False, 0)
    assert reach.lost(Kind.ENDPOINT, 10) == 0
    assert reach.lost(Kind.SLICE, 12) == 0
    assert reach.lost(Kind.ENDPOINT, 15) == 5  # it was already
    assert (reach.stale, reach.seconds(15)) == (True, 5)
    reach.found(Kind.ENDPOINT)
    assert (reach.stale, reach.seconds(15)) == (True, 3)
    reach.found(Kind.SLICE)
    assert (reach.stale, reach.seconds(15)) == (False, 0)
