"""docs/reference/cli.md: `top` adds up what all gateways report; `scale` is refused while autoscaling decides on the number."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from llmendpoint_cli.__main__ import app
from llmendpoint_cli.core.load import loads_of
from llmendpoint_cli.core.scaling import hopeless, reached, refusal
from llmendpoint_cli.errors import CliError, NoAccess, NotFound, Refused, TimedOut, Unreachable
from llmendpoint_cli.render_load import load_table

from .api_server import ApiServer, status_text
from .samples import Json, condition, endpoint, serving
from .test_tree import check_golden

LOAD = {
    "running": 6,
    "waiting": 2,
    "kv_usage": 0.42,
    "max_num_seqs": 8,
    "outstanding_tokens": 900,
    "age": 0.1,
}
CLOSED, OPEN = {"state": "closed"}, {"state": "open"}


def told(waiting: int = 0, breaker: Json | None = None, **replicas: Json) -> Json:
    flying = sum(r["in_flight"] for r in replicas.values())
    return {"waiting": waiting, "in_flight": flying, "breaker": breaker or CLOSED, "replicas": replicas}


ONE = {
    "team-a/chat": told(
        3, a={"in_flight": 2, "load": {**LOAD, "age": 2.0, "running": 5}}, b={"in_flight": 1, "load": None}
    )
}
OTHER = {"team-a/chat": told(1, OPEN, a={"in_flight": 4, "load": LOAD}), "team-b/code": told(7)}


def test_what_two_gateways_tell_is_put_together() -> None:
    unheard = endpoint(name="quiet", replicas=1)
    check_golden("top.txt", load_table(loads_of([serving(), unheard], [ONE, OTHER])))


def test_an_engines_figures_are_the_freshest_and_unknown_is_not_zero() -> None:
    [chat] = loads_of([serving()], [ONE, OTHER])
    assert (chat.waiting, chat.in_flight, chat.breaker) == (4, 7, "open")
    a, b = chat.replicas
    assert (a.in_flight, a.running, a.kv_usage) == (6, 6, 0.42)
    assert (b.in_flight, b.running, b.kv_usage) == (1, None, None)


def test_the_wanted_count_is_the_scalers_where_one_decides() -> None:
    scaled = serving()
    scaled["status"]["autoscaling"] = {"desiredReplicas": 5}
    assert [load.wanted for load in loads_of([scaled], [])] == [5]
    assert [load.wanted for load in loads_of([serving()], [])] == [2]


def run(config: str, *arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--kubeconfig", config])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def gateway(name: str, phase: str = "Running") -> Json:
    return {"metadata": {"name": name, "namespace": "llm"}, "status": {"phase": phase}}


def line(endpoints: Json) -> str:
    """The first line, and the beginning of what follows: the stream goes on."""
    return json.dumps({"instance": "x", "endpoints": endpoints}) + "\n{}\n"


def test_every_gateway_is_asked_through_the_api_server(server: ApiServer, config: str) -> None:
    server.answers = {
        "gw-a:8081/proxy/demand": (200, line(ONE)),
        "gw-b:8081/proxy/demand": (200, line(OTHER)),
        "/pods": (200, {"items": [gateway("gw-a"), gateway("gw-b"), gateway("gw-c", "Pending")]}),
        "/llmendpoints": (200, {"items": [serving()]}),
    }
    [chat] = json.loads(run(config, "top", "-o", "json"))
    assert chat["endpoint"] == "team-a/chat"
    assert chat["waiting"] == 4
    assert "IN FLIGHT" in run(config, "top")
    proxied = [path for _, path, _, _ in server.asked if "proxy" in path]
    assert proxied[0] == "/api/v1/namespaces/llm/pods/gw-a:8081/proxy/demand"


def test_a_gateway_that_does_not_answer_is_left_out_and_said(server: ApiServer, config: str) -> None:
    server.answers = {
        "gw-a:8081": (200, line(ONE)),
        "gw-b:8081": (503, status_text("no route to it")),
        "/pods": (200, {"items": [gateway("gw-a"), gateway("gw-b")]}),
    }
    printed = run(config, "top", "chat")
    assert "1 of 2 gateways" in printed
    assert "no route to it" in printed


@pytest.mark.parametrize(
    ("pods", "answer", "error", "said"),
    [
        ([], (200, ""), NotFound, "no running gateway pod in namespace llm"),
        ([gateway("gw-a")], (503, status_text("gone")), Unreachable, "none of 1 gateways answers.*gone"),
        ([gateway("gw-a")], (403, status_text("pods/proxy is forbidden")), NoAccess, "pods/proxy"),
        ([gateway("gw-a")], (200, "hello\n"), Unreachable, "another version"),
    ],
)
def test_without_gateways_there_is_nothing_to_show(
    server: ApiServer,
    config: str,
    pods: list[Json],
    answer: tuple[int, Any],
    error: type[CliError],
    said: str,
) -> None:
    server.answers = {"gw-a:8081": answer, "/pods": (200, {"items": pods})}
    with pytest.raises(error, match=said):
        run(config, "top", "chat", "--gateway-namespace", "llm")


def test_a_count_is_written_to_the_scale_subresource(server: ApiServer, config: str) -> None:
    found = json.loads(run(config, "scale", "chat", "--replicas", "5", "-o", "json"))
    assert found == {"endpoint": "team-a/chat", "before": 2, "replicas": 5, "reached": False}
    method, path, _, body = server.asked[-1]
    assert (method, path.partition("?")[0]) == (
        "PATCH",
        "/apis/llmendpoint.io/v1alpha1/namespaces/team-a/llmendpoints/chat/scale",
    )
    assert body == {"spec": {"replicas": 5}}


def test_waiting_ends_when_so_many_are_ready_or_not_in_time(server: ApiServer, config: str) -> None:
    found = serving()
    found["status"] |= {"replicas": 2, "readyReplicas": 2}
    server.answer = (200, found)
    assert "all ready" in run(config, "scale", "chat", "--replicas", "2", "--wait", "--timeout", "5")
    with pytest.raises(TimedOut, match="3 ready replicas of team-a/chat"):
        run(config, "scale", "chat", "--replicas", "3", "--wait", "--timeout", "1")


def test_what_is_stalled_is_not_waited_for(server: ApiServer, config: str) -> None:
    server.answer = (200, endpoint(condition("Stalled", True, "ModelNotFound", "no such folder")))
    with pytest.raises(CliError, match="ModelNotFound: no such folder"):
        run(config, "scale", "chat", "--replicas", "3", "--wait", "--timeout", "5")


def test_a_count_that_autoscaling_would_change_again_is_refused(server: ApiServer, config: str) -> None:
    server.answer = (200, {**serving(), "spec": {"replicas": 1, "autoscaling": {"maxReplicas": 4}}})
    with pytest.raises(Refused, match=r"provider builtin.*minReplicas"):
        run(config, "scale", "chat", "--replicas", "3")
    assert [method for method, _, _, _ in server.asked] == ["GET"]


@pytest.mark.parametrize(
    ("autoscaling", "refused"),
    [
        (None, False),
        ({}, False),
        ({"provider": "none"}, False),
        ({"provider": "keda"}, True),
        ({"maxReplicas": 2}, True),
    ],
)
def test_who_decides_on_the_count(autoscaling: Json | None, refused: bool) -> None:
    assert (refusal({"metadata": {}, "spec": {"autoscaling": autoscaling}}) is not None) is refused


@pytest.mark.parametrize(
    ("there", "ready", "generation", "done"),
    [(2, 2, 3, True), (3, 2, 3, False), (2, 1, 3, False), (2, 2, 4, False)],
)
def test_a_count_is_reached_when_it_is_there_ready_and_seen(
    there: int, ready: int, generation: int, done: bool
) -> None:
    found = endpoint(generation=generation)
    found["status"] |= {"replicas": there, "readyReplicas": ready}
    assert reached(found, 2) is done


def test_an_old_verdict_is_none_about_the_new_spec() -> None:
    stalled = condition("Stalled", True, "X", "y")
    assert hopeless(endpoint(stalled)) == "X: y"
    assert hopeless(endpoint(stalled, generation=4)) is None
