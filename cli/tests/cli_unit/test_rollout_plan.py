"""docs/guides/roll-out.md: before a rollout, `rollout plan` says which limits this traffic can decide, and what it would see."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from llmendpoint_cli import rollout_plan
from llmendpoint_cli.__main__ import app
from llmendpoint_cli.core.observe_spec import asked_by
from llmendpoint_cli.core.rollout_plan import Plan, Traffic, make_plan
from llmendpoint_cli.core.traffic import traffic_between
from llmendpoint_cli.errors import BadUsage, NotFound, Unreachable
from llmendpoint_cli.render import make_console
from llmendpoint_cli.render_rollout_plan import plan_view
from tests.guides import page as guide
from tests.guides.page import Commands, File
from tests.guides.script import matches

from .api_server import ApiServer, status_text
from .samples import BLUE, GREEN, Json, serving
from .test_tree import check_golden

ALL = {
    "errorRate": {"max": 0.02, "maxIncrease": 0.01},
    "ttft": {"p95Seconds": 2, "maxRatio": 1.5},
}
RELATIVE = {"errorRate": {"maxIncrease": 0.01}}
CANARY = {"strategy": "Canary", "canary": {"steps": [{"weight": 10, "duration": 30}, {"weight": 50}]}}


def spec(observe: Json | None = None, **rollout: Any) -> Json:
    return {"rollout": {**rollout, "observe": observe or {}}}


def plan(rate: float, observe: Json | None = None, errors: float = 0.001, **rollout: Any) -> Plan:
    return make_plan("team-a/chat", asked_by(spec(observe, **rollout)), Traffic(rate, errors))


def test_enough_requests_decide_each_limit_at_each_step() -> None:
    found = plan(100, ALL, **CANARY)
    assert found.decidable
    assert [row.weight for row in found.rows] == [10] * 4 + [50] * 4 + [100] * 4
    assert all(row.requests is not None and row.smallest_seen is not None for row in found.rows)


def test_what_the_terminal_shows() -> None:
    check_golden("rollout_plan.txt", plan_view(plan(2, ALL, **CANARY)))


def test_one_limit_and_no_canary_is_one_line() -> None:
    check_golden("rollout_plan_simple.txt", plan_view(plan(10, {"errorRate": {"max": 0.02}})))


def test_the_share_of_the_new_revision_is_shown_where_the_old_one_keeps_requests() -> None:
    file = io.StringIO()
    make_console(file, width=160).print(plan_view(plan(10, {**RELATIVE, "control": 20})))
    assert "SHARE" in file.getvalue()
    assert "80 %" in file.getvalue()


def test_a_limit_that_takes_too_long_says_how_long_and_what_helps() -> None:
    [row] = plan(0.1, {"errorRate": {"max": 0.02}}).rows
    assert row.requests is not None
    assert row.why == (
        "not decidable in 600 s: at 0.1 requests/s it takes 96 requests, 960 s; raise maxDuration to 960, or margin to 0.105"
    )
    longer = {"errorRate": {"max": 0.02}, "maxDuration": 960}
    wider = {"errorRate": {"max": 0.02}, "margin": 0.105}
    assert plan(0.1, longer).decidable
    assert plan(0.1, wider).decidable
    assert not plan(0.1, {"errorRate": {"max": 0.02}, "margin": 0.1}).decidable


def test_errors_of_today_above_what_is_allowed_are_never_within_the_limit() -> None:
    [row] = plan(50, {"errorRate": {"max": 0.02}}, errors=0.07).rows
    assert row.requests is None
    assert row.why.startswith(
        "not decidable: 7.0% of the requests fail now, and the limit and the margin allow 5.0%"
    )
    assert "raise the limit, or margin to" in row.why


def test_few_requests_of_the_old_revision_are_named_and_how_many_it_takes() -> None:
    [row] = plan(0.3, {"errorRate": {"maxIncrease": 0.01}}).rows
    assert "about 18 requests of the old revision in 60 s before the switch are too few" in row.why
    assert "raise duration to" in row.why


def test_without_a_limit_and_a_choice_the_operator_waits_for_duration_only() -> None:
    [row] = plan(1, {"duration": 60}).rows
    assert row.field == "spec.rollout.observe.errorRate.max"
    assert row.within == 60
    assert "raise duration to 96" in row.why
    assert plan(1, {"duration": 60, "onInconclusive": "Pause"}).decidable


def test_limits_of_the_slo_count_where_the_rollout_has_none() -> None:
    asked = asked_by(
        {"slo": {"ttftSeconds": 2, "e2eSeconds": 30}, "rollout": {"observe": {"ttft": {"p95Seconds": 1}}}}
    )
    assert [limit.field for limit in asked.limits] == [
        "spec.rollout.observe.errorRate.max",
        "spec.rollout.observe.ttft.p95Seconds",
        "spec.slo.e2eSeconds",
    ]


def test_an_old_revision_that_keeps_requests_is_compared_over_the_same_seconds() -> None:
    """What it had before the switch would be too few, and does not matter."""
    [before] = plan(0.5, RELATIVE).rows
    [beside] = plan(0.5, {**RELATIVE, "control": 20}).rows
    assert "not waited for" in before.why
    assert beside.decidable
    assert (beside.weight, beside.requests_per_second) == (80, 0.4)


def test_at_a_step_of_a_canary_both_are_compared_and_after_the_last_one_with_before() -> None:
    found = plan(0.5, RELATIVE, strategy="Canary", canary={"steps": [{"weight": 50}]})
    assert ["not waited for" in row.why for row in found.rows] == [False, True]


def test_a_larger_part_of_the_old_revision_sees_smaller_changes() -> None:
    few, many = (plan(10, {**RELATIVE, "control": control}).rows[0].smallest_seen for control in (10, 50))
    assert few is not None
    assert many is not None
    assert many < few


def test_failures_of_the_callers_are_decided_by_comparison() -> None:
    limit = {"errorRate": {"max": 0.02}}
    [alone] = plan(50, limit, errors=0.07).rows
    [compared] = plan(50, {**limit, "control": 20}, errors=0.07).rows
    assert alone.why.endswith(", or write control: 20")
    assert compared.decidable
    assert compared.smallest_seen is not None
    assert compared.smallest_seen > 0.07


def test_more_limits_and_steps_see_only_larger_changes() -> None:
    alone, many = plan(10, {"errorRate": {"max": 0.02}}), plan(10, ALL, **CANARY)
    [one], last = alone.rows, many.rows[-4]
    assert one.smallest_seen is not None
    assert last.smallest_seen is not None
    assert one.field == last.field
    assert one.smallest_seen < last.smallest_seen


def test_a_floor_of_requests_is_kept() -> None:
    assert plan(10, {"errorRate": {"max": 0.02}, "minRequests": 500}).rows[0].requests == 500


def test_nothing_is_observed_for_zero_seconds() -> None:
    found = plan(1, {"duration": 0, "errorRate": {"max": 0.02}})
    assert (found.rows, found.decidable) == ((), True)


@given(st.floats(0.01, 500), st.floats(0, 0.04))
def test_twice_the_traffic_decides_no_later_and_sees_no_less(rate: float, errors: float) -> None:
    once, twice = plan(rate, ALL, errors), plan(2 * rate, ALL, errors)
    for one, other in zip(once.rows, twice.rows, strict=True):
        # From ten requests a second on, cells of engines' figures hold more of them.
        if one.decidable and rate < 5:
            assert other.decidable
        if one.smallest_seen is not None:
            assert (other.smallest_seen or 1.0) <= one.smallest_seen + 1e-3


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


@pytest.mark.parametrize(
    ("rollout", "said"),
    [
        ({"canary": {"steps": [{"weight": 0}]}}, "weight is 0; it must be from 1 to 99"),
        ({"canary": {"steps": [{"weight": 100}]}}, "weight is 100; it must be from 1 to 99"),
        ({"observe": {"control": 100}}, "control is 100; it must be from 10 to 50"),
        ({"observe": {"control": 0}}, "control is 0; it must be from 10 to 50"),
    ],
)
def test_a_share_that_the_api_server_would_refuse_is_refused(rollout: Json, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        asked_by({"rollout": rollout})
