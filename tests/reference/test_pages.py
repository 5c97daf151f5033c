"""docs/reference: a page says what the code does: the parts that are made from it, and no part that nothing makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reference.__main__ import MADE, PAGES, main, stale
from tests.reference.chart import CHART, read_entries, read_schema
from tests.reference.pages import fill, table
from tests.repository.names import broken_links

PAGE = """# Title
<!-- made by `make reference`: one -->
old
<!-- end of one -->
the rest
"""


def test_every_page_is_what_the_code_makes_of_it() -> None:
    assert stale(write=False) == []
    assert main(["--check"]) == 0


@pytest.mark.parametrize("page", [*(PAGES / name for name in MADE), PAGES / "exit-codes.md", CHART / "README.md"])  # fmt: skip
def test_no_link_of_a_page_is_broken(page: Path) -> None:
    assert broken_links(page) == []


def test_a_part_is_replaced_and_the_rest_stays() -> None:
    filled = fill(PAGE, {"one": lambda: "new"})
    assert "new" in filled
    assert "old" not in filled
    assert filled.startswith("# Title\n")
    assert filled.endswith("the rest\n")
    assert fill(filled, {"one": lambda: "new"}) == filled


def test_a_part_without_a_place_and_a_place_without_a_part_are_refused() -> None:
    with pytest.raises(ValueError, match="no place for: two"):
        fill(PAGE, {"one": str, "two": str})
    with pytest.raises(KeyError):
        fill(PAGE, {})


def test_a_cell_with_a_bar_stays_one_cell() -> None:
    assert table(("a",), [("x|y",)]).splitlines()[-1] == "| x\\|y |"


def test_a_value_without_a_comment_is_refused_with_its_name() -> None:
    values = (CHART / "values.yaml").read_text()
    without = values.replace("    # Port of the Service.\n", "")
    assert without != values
    with pytest.raises(ValueError, match=r"gateway\.service\.port has no comment"):
        list(read_entries(without, read_schema()))


def test_a_value_that_the_schema_does_not_know_is_refused() -> None:
    values = (CHART / "values.yaml").read_text() + "\n# New.\nnew: 1\n"
    with pytest.raises(ValueError, match=r"lacks .*new"):
        list(read_entries(values, read_schema()))


def test_every_value_has_a_type_a_default_and_a_meaning() -> None:
    entries = list(read_entries((CHART / "values.yaml").read_text(), read_schema()))
    found = {entry.name: entry for entry in entries if entry.default is not None}
    assert len(found) > 50
    assert all(entry.rule and entry.text for entry in found.values())
    assert found["gateway.drainSeconds"].rule == "integer, 1 to 3600"
    assert found["gateway.service.type"].rule == "`ClusterIP`, `NodePort` or `LoadBalancer`"
    assert found["gateway.hostPort"].default == "null"
