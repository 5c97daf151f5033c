"""docs/guides: the commands of each guide do what it says on a real cluster; tests/guides/table.py has what differs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.e2e import guide_runs
from tests.e2e.product import Product
from tests.guides import page, script

SIDE_BY_SIDE = 8  # a guide waits most of the time


@pytest.fixture(scope="module")
def outcomes(
    product: Product, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[guide_runs.Outcome]]]:
    """Of the guides that this run has selected, all started with the first of them, the longest first."""
    chosen = [item.callspec.params["name"] for item in request.session.items if item.path == request.path]  # type: ignore[attr-defined]
    chosen.sort(key=lambda name: len(page.read(name).steps), reverse=True)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        yield {
            name: pool.submit(guide_runs.follow, product, name, tmp_path_factory.mktemp(name))
            for name in chosen
        }


@pytest.mark.parametrize("name", page.pages())
def test_the_commands_of_a_guide_do_what_it_says(
    outcomes: dict[str, Future[guide_runs.Outcome]], name: str
) -> None:
    found = outcomes[name].result()
    print(f"{found.seconds:.0f} s\n{found.story()}")
    assert found.returncode == 0, f"the last command failed:\n{found.story()}"
    assert len(found.outputs) == len(found.page.commands)
    for typed, printed in zip(found.page.commands, found.outputs, strict=True):
        if typed.expected is not None:
            assert script.matches(typed.expected, printed), (
                f"$ {typed.text}\n{printed}\nis not\n{typed.expected}"
            )
    assert found.left == "", "the page leaves something behind"
