"""docs/reference/cli.md: what the API server warns of when a command writes is shown on standard error, once and as plain text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from llmendpoint_cli.__main__ import app
from llmendpoint_cli.core.cautions import LONGEST, MOST, Cautions

from .api_server import ApiServer, write_config

POLICY = (
    "Validation failed for ValidatingAdmissionPolicy 'llm': spec.runtime.image is not one that is allowed"
)


def header(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'


def run(server: ApiServer, folder: Path, *arguments: str) -> tuple[int, str, str]:
    path = write_config(folder / "config", server.url)
    done = CliRunner().invoke(app, [*arguments, "-n", "team-a", "--kubeconfig", path])
    return done.exit_code, done.stdout, done.stderr


def test_a_write_shows_what_a_policy_warns_of(server: ApiServer, tmp_path: Path) -> None:
    server.warnings = [header(POLICY)]
    code, out, err = run(server, tmp_path, "scale", "chat", "--replicas", "3")
    assert (code, err) == (0, f"Warning: {POLICY}\n")
    assert out == "team-a/chat: replicas 2 -> 3\n"


def test_json_on_standard_output_stays_json(server: ApiServer, tmp_path: Path) -> None:
    server.warnings = [header(POLICY)]
    _, out, err = run(server, tmp_path, "scale", "chat", "--replicas", "3", "-o", "json")
    assert json.loads(out)["replicas"] == 3
    assert err == f"Warning: {POLICY}\n"


def test_a_refused_write_shows_its_warnings_before_the_error(server: ApiServer, tmp_path: Path) -> None:
    server.warnings, server.answers = [header(POLICY)], {"/scale": (422, {"message": "no"})}
    code, _, err = run(server, tmp_path, "scale", "chat", "--replicas", "3")
    assert code != 0
    assert err == f"Warning: {POLICY}\n"


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        (['299 - "one"', '299 - "two"'], ["one", "two"]),
        (['299 - "one", 299 kube "two"'], ["one", "two"]),
        (['299 - "a \\"quoted\\" word, and a \\\\"'], ['a "quoted" word, and a \\']),
        (['299 - "old" "Sat, 25 Aug 2012 23:34:45 GMT"'], ["old"]),
        (['110 - "Response is Stale"', "no header", '299 - ""', '299 - "not ended'], []),
        (['299 - "twice"', '299 - "twice"'], ["twice"]),
        (["299 - \"caf\u00c3\u00a9\""], ["café"]),
        (['299 - "\x1b[2Jgone\x07 \u00c2\u009b31m \u00e2\u0080\u00aered"'], ["[2Jgone 31m red"]),
    ],
)  # fmt: skip
def test_headers_are_read_as_kubectl_reads_them(headers: list[str], shown: list[str]) -> None:
    """As http.client gives them: each byte a character."""
    assert Cautions().new_in(headers) == shown


def test_what_was_shown_is_not_shown_again() -> None:
    cautions = Cautions()
    assert cautions.new_in([header("one")]) == ["one"]
    assert cautions.new_in([header("one"), header("two")]) == ["two"]


def test_a_server_that_warns_without_end_is_cut_short() -> None:
    cautions = Cautions()
    shown = [line for i in range(9 * MOST) for line in cautions.new_in([header(f"{i} " + "x" * 9999)])]
    assert len(shown) == MOST + 1
    assert all(len(line) <= LONGEST for line in shown)
    assert shown[-1] == "further warnings of the API server are not shown"


@given(st.lists(st.text(max_size=200), max_size=9))
def test_no_header_breaks_a_command_or_moves_the_cursor(headers: list[str]) -> None:
    for line in Cautions().new_in([*headers, *(f'299 - "{text}"' for text in headers)]):
        assert line.isprintable()
