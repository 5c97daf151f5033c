"""docs/benchmarks.md: `make bench-operator` goes through with 3,000 endpoints. Its figures are printed, not asserted."""

import pytest

from tests.bench.operator import main


@pytest.mark.extended
@pytest.mark.timeout(7200)
def test_three_thousand_endpoints_get_all_their_children_and_come_to_rest() -> None:
    assert main(["--endpoints", "3000", "--edits", "50"]) == 0
