"""docs/reference/cli.md: the page and `--help` have every command of `kubectl llm`, every option, and an example of each."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from llmendpoint_cli.__main__ import app
from tests.reference.__main__ import PAGES
from tests.reference.commands import PROGRAM, commands, leaves

LEAVES = dict(leaves())


@pytest.mark.parametrize("words", LEAVES)
def test_a_command_is_on_the_page_with_its_options(words: str) -> None:
    page = (PAGES / "cli.md").read_text()
    section = page.partition(f"## {words}")[2].partition("\n## ")[0]
    shared = page.partition("## Options of every command")[2].partition("\n## ")[0]
    assert section
    for parameter in LEAVES[words].params:
        for name in parameter.opts if parameter.param_type_name == "option" else [parameter.metavar]:
            assert f"`{name}" in section + shared, f"{words}: {name}"


@pytest.mark.parametrize("words", LEAVES)
def test_help_has_each_option_and_an_example(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(app, [*words.removeprefix(PROGRAM).split(), "--help"])
    assert result.exit_code == 0
    examples = result.output.partition("Examples:")[2]
    assert words in examples
    options = [option for p in LEAVES[words].params if p.param_type_name == "option" for option in p.opts]
    assert [option for option in options if option not in result.output] == []


def test_a_command_without_an_example_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = typer.Typer()

    @other.command("bare")
    def bare() -> None:
        """Does nothing."""

    @other.command("second", epilog="Examples:\n\n  kubectl llm second\n")
    def second() -> None:
        """Makes a group of the program."""

    monkeypatch.setattr("tests.reference.commands.app", other)
    with pytest.raises(ValueError, match="kubectl llm bare has no example"):
        commands()


def test_an_option_without_help_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = typer.Typer()

    def silent(mute: Any = typer.Option(None, "--mute")) -> None:  # noqa: B008  # typer's own form
        """Has an option without help."""

    for name in ("one", "two"):
        other.command(name, epilog=f"Examples:\n\n  kubectl llm {name}\n")(silent)
    monkeypatch.setattr("tests.reference.commands.app", other)
    with pytest.raises(ValueError, match="mute has no help"):
        commands()
