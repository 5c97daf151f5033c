"""CONTRIBUTING.md: the page, SECURITY.md, templates, hooks and the devcontainer name only what is there."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import stages
from tests.repository.names import ROOT, broken_links, make_targets, unknown_targets

FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
PAGES = ("CONTRIBUTING.md", "SECURITY.md", "docs/contribute/releasing.md", ".github/pull_request_template.md")
ELEMENTS = {"markdown", "textarea", "input", "dropdown", "checkboxes"}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_for_contributors_names_targets_and_files_that_are_there(page: str) -> None:
    assert unknown_targets((ROOT / page).read_text()) == set()
    assert broken_links(ROOT / page) == []


@pytest.mark.parametrize("path", [form for form in FORMS if form.name != "config.yml"], ids=lambda p: p.name)
def test_an_issue_form_has_what_a_form_needs(path: Path) -> None:
    form: dict[str, Any] = yaml.safe_load(path.read_text())
    assert set(form) == {"name", "description", "labels", "body"}
    asked = [element for element in form["body"] if element["type"] != "markdown"]
    assert {element["type"] for element in form["body"]} <= ELEMENTS
    assert len({element["id"] for element in asked}) == len(asked)
    assert all(element["attributes"]["label"] for element in asked)
    assert any(element["validations"]["required"] for element in asked)
    assert unknown_targets(path.read_text()) == set()
    for link in re.findall(r"\]\(\.\./blob/main/([^)]+)\)", path.read_text()):
        assert (ROOT / link).exists()


def test_hooks_are_the_tools_of_lint_and_nothing_is_downloaded_for_them() -> None:
    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    checks = {tuple(part for part in command if part not in ("--check", ".")) for command in stages.LINT}
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        program, *arguments = hook["entry"].split()
        if program == "make":
            assert arguments == ["lint"]
        else:
            assert (program.removeprefix(".venv/bin/"), *arguments) in checks


def test_the_devcontainer_is_made_on_the_base_of_our_images_by_a_target_that_is_there() -> None:
    folder = ROOT / ".devcontainer"
    settings = json.loads((folder / "devcontainer.json").read_text())
    assert unknown_targets(f"`{settings['postCreateCommand']}`") == set()
    base = re.compile(r"^ARG BASE_BUILD=.*$", re.MULTILINE)
    [ours] = base.findall((folder / settings["build"]["dockerfile"]).read_text())
    [theirs] = base.findall((ROOT / "Dockerfile.operator").read_text())
    assert ours == theirs


def test_every_target_of_make_runs_modules_that_are_there_and_is_phony() -> None:
    phony = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split()
    for target, recipe in make_targets().items():
        assert target in phony
        for module in re.findall(r"-m (tests[\w.]*)", recipe):
            path = ROOT / module.replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()


def test_what_is_not_there_is_found() -> None:
    assert unknown_targets("run `make nonsense` and `make venv`, and make sure of it") == {"nonsense"}
    assert unknown_targets("steps:\n  - run: make nonsense\n") == {"nonsense"}
