"""CONTRIBUTING.md: `make docs` builds the site, names what is broken, loads nothing from another machine, and has every page in its navigation."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs import hooks
from tests.repository.names import ROOT, make_targets

DOCS = ROOT / "docs"
_LIST = re.compile(r"^ *([-*+]|\d+\.) ")
_LOADED = re.compile(
    r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)"
)
"""Elements whose address a browser fetches without a click."""


def recipe() -> list[str]:
    """What `make docs` runs, by the interpreter of this test."""
    line, *_ = make_targets()["docs"].strip().splitlines()
    return [sys.executable, *shlex.split(line)[1:]]


def build(*options: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*recipe(), *options], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build("--site-dir", str(folder))
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_builds_strictly(site: Path) -> None:
    assert "--strict" in recipe()
    pages = {path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")}
    built = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {page.replace("README.html", "index.html") for page in pages} - built == set()


def test_a_page_loads_nothing_from_another_machine(site: Path) -> None:
    loaded = {path.name: _LOADED.findall(path.read_text()) for path in site.rglob("*.html")}
    assert {name: found for name, found in loaded.items() if found} == {}
    styles = "\n".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^\"')]+", styles) == []


def test_a_file_that_a_page_links_to_is_in_the_site(site: Path) -> None:
    page = (site / "start" / "cpu.html").read_text()
    assert 'href="../repository/examples/cpu.yaml.html"' in page
    copy = (site / "repository" / "examples" / "cpu.yaml.html").read_text()
    assert "LLMEndpoint" in copy
    assert (
        'href="../contribute/where-to-change.html"' in (site / "repository" / "CONTRIBUTING.html").read_text()
    )


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A site with our settings and a page for each fault."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(
        "# Start\n\n[gone](nowhere.md), [moved](index.md#nowhere), [outside](../nowhere.yaml)\n"
    )
    (tmp_path / "docs" / "forgotten.md").write_text("# Forgotten\n")
    ours = settings() | {
        "nav": ["index.md"],
        "hooks": [str(ROOT / "tests" / "docs" / "hooks.py")],
        "site_dir": "site",
    }
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(ours))
    return tmp_path


def test_a_broken_link_a_broken_anchor_and_a_forgotten_page_each_fail_it(broken: Path) -> None:
    built = build(folder=broken)
    assert built.returncode != 0
    for fault in ("'nowhere.md'", "'index.md#nowhere'", "'../nowhere.yaml'", "forgotten.md"):
        assert fault in built.stderr


@cache
def settings() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    return found


def listed(nav: Any) -> Iterator[str]:
    """Every page of a navigation."""
    if isinstance(nav, str):
        yield nav
        return
    for each in nav.values() if isinstance(nav, dict) else nav:
        yield from listed(each)


def test_every_page_is_in_the_navigation_once_in_the_section_of_its_folder() -> None:
    pages = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    known = [page for page in listed(settings()["nav"]) if not page.startswith(f"{hooks.COPIES}/")]
    assert [page for page in pages if page not in known] == [], (
        "pages that mkdocs.yml does not list under nav"
    )
    assert [page for page in known if page not in pages] == [], "pages of mkdocs.yml that are not there"
    assert len(known) == len(set(known))
    for section in settings()["nav"]:
        [(title, held)] = section.items()
        folders = {page.split("/")[0] for page in listed(held) if "/" in page}
        assert folders <= {title.lower(), "decisions", hooks.COPIES}, title


def test_a_list_begins_after_an_empty_line() -> None:
    """GitHub shows a list without one, too; the site would show a paragraph with dashes."""
    faults = []
    for path in sorted(DOCS.rglob("*.md")):
        text = re.sub(
            r"^```.*?^```", lambda fence: "\n" * fence[0].count("\n"), path.read_text(), flags=re.M | re.S
        )
        lines = text.splitlines()
        faults += [
            f"{path.relative_to(ROOT)}:{number}"
            for number, (before, line) in enumerate(pairwise(lines), start=2)
            if _LIST.match(line) and before.strip() and not (_LIST.match(before) or before.startswith(" "))
        ]
    assert faults == []


@pytest.mark.parametrize(
    ("place", "link", "there"),
    [
        ("start/cpu.md", "../../examples/cpu.yaml", "../repository/examples/cpu.yaml.md"),
        ("start/cpu.md", "../concepts/rollouts.md#limits", "../concepts/rollouts.md#limits"),
        ("index.md", "../fit", "repository/fit.md"),
        ("index.md", "../CONTRIBUTING.md", "repository/CONTRIBUTING.md"),
        ("repository/CONTRIBUTING.md", "docs/benchmarks.md", "../benchmarks.md"),
        ("repository/CONTRIBUTING.md", "LICENSE", "LICENSE.md"),
        ("index.md", "https://example.org/a.yaml", "https://example.org/a.yaml"),
        ("index.md", "nowhere.md", "nowhere.md"),
        ("index.md", "../../../etc/passwd", "../../../etc/passwd"),
    ],
)
def test_a_link_leads_to_where_the_site_has_the_file(place: str, link: str, there: str) -> None:
    assert hooks.with_links_of_the_site(f"a [b]({link}) c", place) == f"a [b]({there}) c"


def test_a_file_outside_the_repository_is_never_copied() -> None:
    assert list(hooks.copied_by("[a](../../../../../../etc/passwd) [b](/etc/passwd)", "docs/index.md")) == []
