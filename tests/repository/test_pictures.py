"""docs/pictures: what the commands print today, drawn anew, and nothing that a browser would fetch elsewhere."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs import pictures
from tests.repository.names import ROOT

EVERY = sorted(pictures.FOLDER.glob("*.svg"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_shows_what_the_command_prints(name: str) -> None:
    committed = (pictures.FOLDER / f"{name}.svg").read_text()
    assert pictures.drawn(name) == committed, "run `make pictures`"


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_a_picture_is_whole_and_loads_nothing(path: Path) -> None:
    text = path.read_text()
    ElementTree.fromstring(text)
    addresses = set(re.findall(r"(?:https?:)?//[^\"'\s)<]+", text)) - {"http://www.w3.org/2000/svg"}
    assert {address for address in addresses if "gateway.llm.svc" not in address} == set()


def test_every_picture_is_shown_with_a_text_for_those_who_cannot_see_it() -> None:
    pages = "\n".join(page.read_text() for page in PAGES)
    shown = dict(re.findall(r"!\[([^\]]{20,})\]\([^)]*?pictures/([\w-]+\.svg)\)", pages))
    assert {path.name for path in EVERY} == set(shown.values())
