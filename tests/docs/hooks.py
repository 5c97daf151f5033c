"""What `make docs` does beside mkdocs: links from a page to files outside docs/ work in the site, too.

On GitHub `../../examples/cpu.yaml` leads to the file. The site holds docs/ alone, and has no public address of the
repository that it could name instead. So each file that a page links to is copied into the site as a page of its own,
below repository/: readable in a browser, found by the search, of the same commit as the page, and there offline.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = "docs"
COPIES = "repository"
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?(?=\))")


def target_of(path: str, source: str) -> str | None:
    """The file or folder, named from the root of the repository, to which a link of the file `source` leads; None for
    what is not in it."""
    found = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    return found if not found.startswith(("..", "/")) and (ROOT / found).exists() else None


def place_of(file: str) -> str:
    """Where the site has a file of the repository. A copy that is no Markdown becomes a page around its text."""
    if file.startswith(f"{PAGES}/"):
        return file.removeprefix(f"{PAGES}/")
    return f"{COPIES}/{file}" if file.endswith(".md") else f"{COPIES}/{file}.md"


def source_of(place: str) -> str:
    """The file of the repository that the page at this place of the site was written as."""
    return place.removeprefix(f"{COPIES}/") if place.startswith(f"{COPIES}/") else f"{PAGES}/{place}"


def copied_by(markdown: str, source: str) -> Iterator[str]:
    """The files outside docs/ that the links of a page lead to."""
    for link in _LINK.finditer(markdown):
        target = target_of(link["path"], source)
        if target is not None and not target.startswith(f"{PAGES}/"):
            yield target


def with_links_of_the_site(markdown: str, place: str) -> str:
    """The page at `place`, each link to a file of the repository leading to where the site has it."""

    def rewritten(link: re.Match[str]) -> str:
        target = target_of(link["path"], source_of(place))
        if target is None:
            return link[0]
        return posixpath.relpath(place_of(target), posixpath.dirname(place)) + (link["anchor"] or "")

    return _LINK.sub(rewritten, markdown)


def page_of(file: str) -> str:
    """A copy as Markdown: a Markdown file as it is, any other as code, of a folder the names in it."""
    path = ROOT / file
    if path.is_dir():
        held = sorted(entry.name + "/" * entry.is_dir() for entry in path.iterdir() if _is_shown(entry))
        return "\n".join(
            [f"# {file}/", "", "A folder of the repository. It holds:", "", *(f"- `{name}`" for name in held)]
        )
    text = path.read_text()
    if path.suffix == ".md":
        return text
    return f"# {file}\n\nA file of the repository.\n\n````{path.suffix[1:]}\n{text}\n````\n"


def _is_shown(entry: Path) -> bool:
    return not entry.name.startswith((".", "__")) and entry.suffix != ".egg-info"


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Adds the copies, and the copies that copied pages link to."""
    pages = [(file.content_string, source_of(file.src_uri)) for file in files.documentation_pages()]
    while pages:
        for target in copied_by(*pages.pop()):
            place = place_of(target)
            if files.get_file_from_path(place) is None:
                text = page_of(target)
                files.append(File.generated(config, place, content=text))
                if target.endswith(".md"):
                    pages.append((text, target))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrites the links of a page, but not what stands in a copied file of code."""
    place = page.file.src_uri
    return with_links_of_the_site(markdown, place) if (ROOT / source_of(place)).exists() else markdown
