"""docs/reference/cli.md: `kubectl llm batch` goes through the API server's proxy to the Service of the batch service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from llmendpoint_cli.__main__ import app
from llmendpoint_cli.core.batches import describe, form_around, url_of
from llmendpoint_cli.errors import BadUsage, CliError, NotFound, Refused, TimedOut, Unreachable

from .api_server import ApiServer, status_text
from .samples import Json

PROXY = "/api/v1/namespaces/llm/services/llmendpoint-batch:http/proxy/v1"
SERVICES = {"items": [{"metadata": {"name": "llmendpoint-batch", "namespace": "llm"}}]}
LINE = '{"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {"model": "team-a/chat"}}\n'


def batch(status: str = "completed", **more: Any) -> Json:
    counts = {"total": 4, "completed": 3, "failed": 1}
    return {"id": "batch_1", "status": status, "request_counts": counts, "errors": None, **more}


def run(config: str, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["batch", *arguments, "--kubeconfig", config])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.fixture
def service(server: ApiServer) -> ApiServer:
    server.answers = {
        "/proxy/v1/files/file-out/content": (200, '{"custom_id": "1"}\n'),
        "/proxy/v1/files": (200, {"id": "file-in"}),
        "/proxy/v1/batches": (200, batch("validating")),
        "/services?": (200, SERVICES),
    }
    return server


def test_a_file_is_uploaded_and_its_batch_made(service: ApiServer, config: str, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(LINE * 3)
    found = json.loads(
        run(config, "submit", str(tmp_path / "in.jsonl"), "--metadata", "team=red", "-o", "json")
    )
    assert found["id"] == "batch_1"
    upload, made = service.asked[-2:]
    assert (upload[0], upload[1]) == ("POST", f"{PROXY}/files")
    assert LINE * 3 in upload[3].decode()
    assert made[3] == {
        "input_file_id": "file-in",
        "endpoint": "/v1/completions",
        "completion_window": "24h",
        "metadata": {"team": "red"},
    }


@pytest.mark.parametrize(
    ("content", "more", "said"),
    [
        ("{}\n", (), "the first line has no url"),
        ("no json", (), "the first line has no url"),
        (LINE, ("--metadata", "team"), "KEY=VALUE"),
        (None, (), "cannot be read"),
    ],
)
def test_what_cannot_be_submitted_is_not_sent(
    service: ApiServer, config: str, tmp_path: Path, content: str | None, more: tuple[str, ...], said: str
) -> None:
    if content is not None:
        (tmp_path / "in.jsonl").write_text(content)
    with pytest.raises(BadUsage, match=said):
        run(config, "submit", str(tmp_path / "in.jsonl"), *more)
    assert service.asked == []


def test_status_tells_of_a_batch_and_fails_with_it(service: ApiServer, config: str) -> None:
    assert "validating, 4 of 4 lines answered, 1 of them failed" in run(config, "status", "batch_1")
    faults = {"data": [{"line": n, "message": "custom_id is missing"} for n in range(1, 9)]}
    service.answers["/proxy/v1/batches"] = (200, batch("failed", errors=faults))
    with pytest.raises(CliError, match=r"failed.*\n  line 1: custom_id is missing[^$]*and 3 more"):
        run(config, "status", "batch_1")
    assert json.loads(run(config, "status", "batch_1", "-o", "json", code=1))["status"] == "failed"


def test_waiting_ends_with_the_batch_or_not_in_time(service: ApiServer, config: str) -> None:
    with pytest.raises(TimedOut, match="the end of batch_1"):
        run(config, "status", "batch_1", "--wait", "--timeout", "1")
    service.answers["/proxy/v1/batches"] = (200, batch())
    assert "completed" in run(config, "status", "batch_1", "--wait", "--timeout", "5")


def test_results_are_the_files_lines(service: ApiServer, config: str) -> None:
    with pytest.raises(Refused, match="its results come when it has ended"):
        run(config, "results", "batch_1")
    service.answers["/proxy/v1/batches"] = (200, batch(output_file_id="file-out", error_file_id=None))
    assert run(config, "results", "batch_1") == '{"custom_id": "1"}\n'
    assert json.loads(run(config, "results", "batch_1", "-o", "json")) == [{"custom_id": "1"}]
    assert run(config, "results", "batch_1", "--errors") == ""


@pytest.mark.parametrize(
    ("answers", "error", "said"),
    [
        ({"/services?": (200, {"items": []})}, NotFound, "batch.enabled"),
        ({"/batches": (404, {"error": {"message": "No such batch: 'x'"}})}, NotFound, "No such batch"),
        ({"/batches": (400, {"error": {"message": "bad"}})}, Refused, "bad"),
        ({"/batches": (507, {"error": {"message": "full"}})}, Unreachable, "full"),
        ({"/batches": (503, status_text("no endpoints available"))}, Unreachable, "no endpoints available"),
        ({"/batches": (200, "<html>")}, Unreachable, "another version"),
    ],
)
def test_what_goes_wrong_has_its_error(
    service: ApiServer, config: str, answers: dict[str, Any], error: type[CliError], said: str
) -> None:
    service.answers = {**answers, **{k: v for k, v in service.answers.items() if k not in answers}}
    with pytest.raises(error, match=said):
        run(config, "status", "x")


def test_a_files_name_cannot_break_the_form() -> None:
    before, _ = form_around('a"\r\nb\u00e4.jsonl', "b")
    assert b'filename="a___b_.jsonl"' in before


def test_the_endpoint_is_that_of_the_first_line() -> None:
    assert url_of(LINE.encode()) == "/v1/completions"
    assert url_of(b"[1]") is None


def test_text_shows_no_more_faults_than_one_reads() -> None:
    assert len(list(describe(batch(errors={"data": [{"message": "x"}] * 50})))) == 7
