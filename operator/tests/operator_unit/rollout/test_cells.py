"""docs/concepts/rollouts.md: failures that come in clumps count less; how much less is measured in cells of a few seconds."""

from __future__ import annotations

import random

import pytest

from llmendpoint_operator.core.rollout.measurements import Counts, Measurements


def measured(failures: list[int], each: int = 20) -> Measurements:
    """Of one gateway, read every two seconds; so many of `each` requests had failed."""
    found, requests, errors = Measurements(600), 0, 0
    found.add_gateway("gw", "i", {"green": Counts()})
    found.sampled(0)
    found.begin(0)
    for look, failed in enumerate(failures):
        requests, errors = requests + each, errors + failed
        found.add_gateway("gw", "i", {"green": Counts(requests, errors)})
        found.sampled(2 * look + 2)
    return found


def clump(found: Measurements) -> float:
    figures = found.in_window("green")
    assert figures is not None
    return figures.clumping


def test_failures_in_one_look_are_a_clump() -> None:
    assert clump(measured([10, *[0] * 19])) == pytest.approx(10, rel=0.1)


def test_failures_one_by_one_are_none() -> None:
    drawn = random.Random(3)
    spread = [sum(drawn.random() < 0.05 for _ in range(20)) for _ in range(60)]
    assert clump(measured(spread)) < 1.5


def test_looks_with_a_request_or_two_are_put_together() -> None:
    """Ten failures in a row at one request a second: in cells of two requests they would look like five."""
    assert clump(measured([0] * 60 + [2] * 5 + [0] * 60, each=2)) > 4


def test_a_window_has_cells_of_its_own() -> None:
    found = measured([20] * 3)
    found.begin(100)
    found.add_gateway("gw", "i", {"green": Counts(80, 60)})
    found.sampled(102)
    figures = found.in_window("green")
    assert figures is not None
    assert (figures.requests, figures.errors, figures.clumping) == (20, 0, 10)


def spells(failed_in_a_row: int, cells: int = 64) -> list[int]:
    """So many looks in a row in which two of 20 requests fail, and none in the others."""
    return [2] * failed_in_a_row + [0] * (cells - failed_in_a_row)


def test_a_spell_that_lasts_for_many_cells_is_a_clump_too() -> None:
    one_by_one = [1 if look % 4 == 0 else 0 for look in range(64)]
    assert clump(measured(one_by_one)) < 1.2
    assert clump(measured(spells(8))) > 3, "each cell alone shows two failures of 20: almost nothing"


def test_failures_one_by_one_rarely_look_like_a_clump_at_any_size() -> None:
    drawn = random.Random(4)
    found = [
        clump(measured([sum(drawn.random() < 0.05 for _ in range(20)) for _ in range(120)]))
        for _ in range(100)
    ]
    assert sum(found) / len(found) < 1.25
