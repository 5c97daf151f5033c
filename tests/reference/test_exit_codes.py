"""docs/reference/exit-codes.md: the page has the codes that the programs end with."""

from __future__ import annotations

import re
import signal

import pytest
from typer.testing import CliRunner

from llmendpoint_cli.__main__ import app
from llmendpoint_cli.errors import CliError
from llmendpoint_fit.__main__ import MISSING, UNREADABLE
from llmendpoint_server.errors import (
    BadConfiguration,
    LoadError,
    ModelNotFound,
    UnsupportedArchitecture,
)
from llmendpoint_server.weights.__main__ import EXAMPLES
from tests.reference.__main__ import PAGES

INTERRUPTED = 128 + signal.SIGINT
STOPPED = {128 + signal.SIGINT, 128 + signal.SIGTERM}


def codes(section: str, program: str = "") -> set[int]:
    """Of the table below a heading; of the rows of one program where the table has several."""
    page = (PAGES / "exit-codes.md").read_text()
    text = page.partition(f"## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(rf"^\| {f'`{program}` . ' if program else ''}([\d, ]+) \|", text, re.M)
    return {int(code) for row in rows for code in row.split(",")}


def codes_of(base: type[Exception]) -> set[int]:
    kinds = [base]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return {kind.exit_code for kind in kinds}  # type: ignore[attr-defined]  # each of them has one


def test_of_kubectl_llm() -> None:
    assert codes("kubectl llm") == {0, INTERRUPTED} | codes_of(CliError)


def test_of_kubectl_llm_in_its_help() -> None:
    said = CliRunner().invoke(app, ["--help"]).output.partition("Exit codes:")[2].partition("Examples:")[0]
    assert {int(code) for code in re.findall(r"^ +(\d+) ", said, re.M)} == codes("kubectl llm")


def test_of_the_engine_are_those_that_only_a_download_does_not_have() -> None:
    loading = {kind.exit_code for kind in (BadConfiguration, ModelNotFound, UnsupportedArchitecture)}
    assert codes("llmendpoint-server, llmendpoint-simulator") == {0, 1} | loading


def test_of_the_downloader() -> None:
    serving = {UnsupportedArchitecture.exit_code}
    assert codes("llmendpoint-model") == {0} | STOPPED | codes_of(LoadError) - serving


def test_of_the_downloader_in_its_help() -> None:
    said = EXAMPLES.partition("exit codes:")[2].replace("\n", " ")
    assert {int(code) for code in re.findall(r" (\d) ", said)} == codes("llmendpoint-model") - STOPPED


@pytest.mark.parametrize(
    ("program", "found"),
    [("llmendpoint-probe", {0, 1, 2}), ("llmendpoint-inspect", {0, UNREADABLE, 2, MISSING})],
)
def test_of_the_programs_beside_an_engine(program: str, found: set[int]) -> None:
    assert codes("llmendpoint-probe, llmendpoint-inspect", program) == found
