"""docs/guides/roll-out.md: `rollout plan` reads the spec from the cluster or a file, and measures the traffic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from llmendpoint_cli import rollout_plan
from llmendpoint_cli.__main__ import app
from llmendpoint_cli.core.rollout_plan import Traffic
from llmendpoint_cli.core.traffic import traffic_between
from llmendpoint_cli.errors import BadUsage, NotFound, Unreachable
from tests.guides import page as guide
from tests.guides.page import Commands, File
from tests.guides.script import matches

from .api_server import ApiServer, status_text
from .samples import BLUE, GREEN, Json, serving
from .test_rollout_plan import ALL, spec


def page(instance: str = "x", **revisions: tuple[int, int]) -> Json:
    counts = {name: {"requests": r, "errors": e} for name, (r, e) in revisions.items()}
    return {"instance": instance, "revisions": counts}


def test_traffic_is_what_came_on_all_gateways_and_errors_are_those_of_the_active_revision() -> None:
    before = {"a": page(blue=(100, 1), old=(50, 50)), "b": page(blue=(200, 0))}
    after = {"a": page(blue=(130, 1), old=(50, 50)), "b": page(blue=(220, 1)), "c": page(blue=(50, 0))}
    assert traffic_between(before, after, 10, "blue") == Traffic(5.0, 2 / 400)


def test_a_gateway_that_began_anew_gives_what_it_has_counted_since() -> None:
    before, after = {"a": page("x", blue=(100, 1))}, {"a": page("y", blue=(20, 0))}
    assert traffic_between(before, after, 10, None) == Traffic(2.0, 0.0)
    assert traffic_between({}, {}, 10, None) == Traffic(0.0, 0.0)


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["rollout", "plan", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def gateway(name: str) -> Json:
    return {"metadata": {"name": name, "namespace": "llm"}, "status": {"phase": "Running"}}


def test_the_traffic_is_read_from_every_gateway_through_the_api_server(
    server: ApiServer, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers(more: int) -> dict[str, tuple[int, Any]]:
        revisions = {BLUE: {"requests": 5000 + more, "errors": 5}, GREEN: {"requests": 9, "errors": 9}}
        return {
            "gw-a:8081": (200, {"instance": "a", "revisions": revisions}),
            "gw-b:8081": (503, status_text("Envoy does not answer")),
            "/pods": (200, {"items": [gateway("gw-a"), gateway("gw-b")]}),
        }

    server.answers = answers(0)
    monkeypatch.setattr(rollout_plan.time, "sleep", lambda _: setattr(server, "answers", answers(1000)))
    result = run("chat", "--kubeconfig", config, "-o", "json")
    [found] = json.loads(result.stdout)
    assert found["endpoint"] == "team-a/chat"
    assert found["requestsPerSecond"] > 100
    assert found["errorRate"] == pytest.approx(5 / 6000)
    assert "1 of 2 gateways do not answer" in result.stderr
    assert "/api/v1/namespaces/llm/pods/gw-a:8081/proxy/revisions/team-a/chat" in [
        path for _, path, _, _ in server.asked
    ]


def test_without_a_gateway_the_traffic_has_to_be_given(server: ApiServer, config: str) -> None:
    server.answers = {"/pods": (200, {"items": []})}
    with pytest.raises(NotFound, match="give --requests-per-second"):
        run("chat", "--kubeconfig", config)
    server.answers = {"gw-a": (503, status_text("x")), "/pods": (200, {"items": [gateway("gw-a")]})}
    with pytest.raises(Unreachable, match="none of 1 gateways"):
        run("chat", "--kubeconfig", config)


@pytest.mark.parametrize(("rate", "code"), [("20", 0), ("0.001", 1), ("0", 1)])
def test_the_exit_code_says_whether_every_limit_can_be_decided(
    server: ApiServer, config: str, rate: str, code: int
) -> None:
    server.answer = (200, {**serving(), "spec": spec({"errorRate": {"max": 0.02}})})
    assert run("chat", "--kubeconfig", config, "--requests-per-second", rate).exit_code == code


def test_a_file_is_planned_without_a_cluster(tmp_path: Path) -> None:
    def manifest(name: str, **metadata: str) -> Json:
        return {"kind": "LLMEndpoint", "metadata": {"name": name, **metadata}, "spec": spec(ALL)}

    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all([manifest("chat"), manifest("code", namespace="b")]))
    given_rate = ("-f", str(path), "--requests-per-second", "100", "--kubeconfig", "/nowhere", "-o", "json")
    assert [one["endpoint"] for one in json.loads(run(*given_rate).stdout)] == ["chat", "b/code"]
    assert [one["endpoint"] for one in json.loads(run("code", *given_rate).stdout)] == ["b/code"]
    with pytest.raises(BadUsage, match="no LLMEndpoint other"):
        run("other", *given_rate)


@pytest.mark.parametrize(
    "wrong", [{"margin": "much"}, {"errorRate": 5}, {"falseRollbackRate": 0}, {"missRate": 0}, {"margin": 2}]
)
def test_a_spec_that_the_api_server_would_refuse_is_bad_usage(tmp_path: Path, wrong: Json) -> None:
    path = tmp_path / "chat.yaml"
    path.write_text(
        yaml.safe_dump({"kind": "LLMEndpoint", "metadata": {"name": "chat"}, "spec": spec(wrong)})
    )
    with pytest.raises(BadUsage, match="cannot be read"):
        run("-f", str(path), "--requests-per-second", "1")


def test_one_endpoint_has_to_be_named() -> None:
    with pytest.raises(BadUsage, match="NAME, or -f FILE"):
        run("--requests-per-second", "1")


def test_the_guide_shows_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = guide.read("roll-out").steps
    manifest = next(step for step in steps if isinstance(step, File))
    shown = next(step for step in steps if isinstance(step, Commands) and "rollout plan" in step.text)
    monkeypatch.chdir(tmp_path)
    Path(manifest.name).write_text(manifest.content)
    result = run(*shown.text.split()[4:])
    assert result.exit_code == 0
    assert matches(shown.expected or "", result.stdout)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--requests-per-second", "inf"), "--requests-per-second"),
        (("--requests-per-second", "nan"), "--requests-per-second"),
        (("--requests-per-second", "1000001"), "--requests-per-second"),
        (("--measure", "3601"), "--measure"),
    ],
)
def test_a_number_that_no_endpoint_has_is_refused(arguments: tuple[str, str], said: str) -> None:
    result = run("chat", *arguments)
    assert result.exit_code == 2
    assert said in result.output
