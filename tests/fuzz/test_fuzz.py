"""docs/contribute/contracts.md: no body that a stranger sends ends a process, hangs, or gets an undocumented 5xx.

This is a bounded part of `make fuzz`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz import campaign
from tests.fuzz.targets import Targets, running_targets

BODIES = 1500


@pytest.fixture(scope="module")
def targets() -> Iterator[Targets]:
    with running_targets() as running:
        yield running


def test_no_drawn_body_gets_an_undocumented_5xx_or_leaves_anything_behind(targets: Targets) -> None:
    report = campaign.run(targets, BODIES, seeded=0)
    assert report.wrong == []
    assert report.sent >= BODIES
    assert targets.settle() == {}
