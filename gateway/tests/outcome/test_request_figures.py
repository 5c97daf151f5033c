"""docs/reference/metrics.md: requests and their times by endpoint, as the real Envoy counts them."""

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.tests.bounds import wait_for
from gateway.tests.harness import Gateway, running_gateway
from gateway.tests.sockets import engine
from llmendpoint_gateway.serve.request_page import pieces, status_class

CHAT = "/v1/chat/completions"


def ask(
    gateway: Gateway, name: str, headers: dict[str, str] | None = None, timeout: float = 30, padding: int = 0
) -> int:
    body = {"model": f"team/{name}", "stream": "x-tokens" in (headers or {}), "user": "u" * padding}
    return httpx.post(gateway.url + CHAT, json=body, headers=headers, timeout=timeout).status_code


def requests(gateway: Gateway, name: str, status: str, revision: str = "r1") -> float:
    labels = f'namespace="team",llmendpoint="{name}",revision="{revision}",status="{status}"'
    return gateway.metric(f"requests_total{{{labels}}}", absent=0)


def times(gateway: Gateway, metric: str, name: str, bound: str = "+Inf") -> float:
    labels = f'namespace="team",llmendpoint="{name}",le="{bound}"'
    return gateway.metric(f"{metric}_seconds_bucket{{{labels}}}", absent=0)


def test_a_stream_is_in_both_histograms_from_its_last_byte_to_its_first_token_and_to_its_end(
    gateway: Gateway,
) -> None:
    name = gateway.endpoint(gateway.backend("a"))
    assert ask(gateway, name, {"x-delay": "0.3", "x-tokens": "5", "x-interval": "0.2"}) == 200
    wait_for(lambda: times(gateway, "first_token", name) == 1, "Envoy has merged its histograms")
    assert (times(gateway, "first_token", name, "0.25"), times(gateway, "first_token", name, "1.0")) == (0, 1)
    assert (times(gateway, "request", name, "0.5"), times(gateway, "request", name)) == (0, 1)
    assert requests(gateway, name, "2xx") == 1


def test_an_answer_that_is_no_stream_has_no_first_token(gateway: Gateway) -> None:
    name = gateway.endpoint(gateway.backend("a"))
    assert ask(gateway, name) == 200
    wait_for(lambda: times(gateway, "request", name) == 1, "its whole time is there")
    assert times(gateway, "first_token", name) == 0


def test_what_failed_is_counted_by_its_status_and_is_in_no_histogram(gateway: Gateway) -> None:
    bad, good = gateway.endpoint(gateway.backend("bad", "500")), gateway.endpoint(gateway.backend("good"))
    busy = gateway.endpoint(gateway.backend("busy", "429"))
    assert [ask(gateway, name) for name in (bad, busy, good)] == [500, 429, 200]
    wait_for(lambda: times(gateway, "request", good) == 1, "Envoy has merged its histograms")
    assert (requests(gateway, bad, "5xx"), requests(gateway, busy, "4xx")) == (1, 1)
    assert times(gateway, "request", bad) == times(gateway, "request", busy) == 0


def test_a_request_that_is_tried_again_counts_once_and_a_large_one_too(gateway: Gateway) -> None:
    dead, alive = gateway.backend("dead"), gateway.backend("alive")
    name = gateway.endpoint(dead, alive)
    dead.kill()
    assert {ask(gateway, name) for _ in range(4)} == {200}
    assert ask(gateway, name, padding=3 << 20) == 200
    wait_for(lambda: requests(gateway, name, "2xx") == 5, "five requests, six attempts or more")
    assert requests(gateway, name, "5xx") == 0


def test_a_caller_that_leaves_before_the_answer_has_status_none(gateway: Gateway) -> None:
    name = gateway.endpoint(gateway.backend("a"))
    with pytest.raises(httpx.ReadTimeout):
        ask(gateway, name, {"x-delay": "60"}, timeout=0.5)
    wait_for(lambda: requests(gateway, name, "none") == 1, "it is counted")
    assert times(gateway, "request", name) == 0


def test_a_stream_whose_caller_leaves_is_in_no_histogram(gateway: Gateway) -> None:
    name, after = gateway.endpoint(gateway.backend("a")), gateway.endpoint(gateway.backend("b"))
    with httpx.stream(
        "POST",
        gateway.url + CHAT,
        json={"model": f"team/{name}", "stream": True},
        headers={"x-tokens": "1000", "x-interval": "0.1"},
    ) as answer:
        next(answer.iter_raw())
    wait_for(lambda: requests(gateway, name, "2xx") == 1, "it is counted, as one that was answered")
    ask(gateway, after)
    wait_for(lambda: times(gateway, "request", after) == 1, "Envoy has merged its histograms")
    assert times(gateway, "first_token", name) == times(gateway, "request", name) == 0


def test_a_deleted_endpoint_and_an_old_revision_leave_the_page(gateway: Gateway) -> None:
    old, new = gateway.backend("old"), gateway.backend("new")
    name, gone = gateway.endpoint(old), gateway.endpoint(gateway.backend("gone"))
    ask(gateway, name)
    ask(gateway, gone)
    wait_for(lambda: requests(gateway, gone, "2xx") == 1, "it is counted")
    wait_for(lambda: times(gateway, "request", gone) == 1, "Envoy has merged its histograms")
    gateway.api.delete("llmendpoints", gone)
    wait_for(lambda: times(gateway, "request", gone) == 0, "nothing is said of it any more")
    assert requests(gateway, gone, "2xx") == 0
    gateway.replica(name, "r2", new)
    gateway.activate(name, "r2")
    gateway.routed(name, "r2", new)
    assert requests(gateway, name, "2xx") == 1, "the old revision still has a replica"
    gateway.remove_replica(name, "r1", old)
    wait_for(lambda: requests(gateway, name, "2xx") == 0, "nothing is said of the old revision")
    ask(gateway, name)
    wait_for(lambda: requests(gateway, name, "2xx", "r2") == 1, "the new one is counted")
    assert times(gateway, "request", name) >= 1, "the times are the endpoint's"


def test_requests_that_get_no_replica_are_counted_by_code_until_the_endpoint_is_deleted(
    gateway: Gateway,
) -> None:
    name = gateway.endpoint()

    def refused(code: str) -> float:
        labels = f'code="{code}",llmendpoint="{name}",namespace="team"'
        return gateway.metric(f"refusals_total{{{labels}}}", absent=0)

    assert {ask(gateway, name) for _ in range(3)} == {503}
    assert refused("no_ready_replica") == 3
    assert requests(gateway, name, "5xx") == 0, "they are in one of the two counters"
    gateway.api.delete("llmendpoints", name)
    wait_for(lambda: refused("no_ready_replica") == 0, "nothing is said of it any more")


def test_a_request_that_waited_for_nothing_is_counted_for_its_endpoint(gateway: Gateway) -> None:
    name = gateway.endpoint(replicas=1)  # one is expected, so that requests wait
    assert ask(gateway, name) == 503
    labels = f'code="no_ready_replica",llmendpoint="{name}",namespace="team"'
    assert gateway.metric(f"refusals_total{{{labels}}}") == 1


def test_the_page_of_metrics_is_there_while_envoy_is_not() -> None:
    """In a gateway of its own, which others do not share."""
    with running_gateway() as gateway:
        name = gateway.endpoint(gateway.backend("a"))
        ask(gateway, name)
        wait_for(lambda: requests(gateway, name, "2xx") == 1, "it is counted")
        gateway.envoy.kill()
        gateway.envoy.wait()
        assert requests(gateway, name, "2xx") == 0
        assert gateway.metric("synced") == 1


PAGE = """\
# TYPE envoy_requests_ended counter
envoy_requests_ended{cluster="team/chat/r1",status="200"} 12
envoy_requests_ended{cluster="team/chat/r1",status="204"} 1
envoy_requests_ended{cluster="team/chat/r0",status="200"} 7
envoy_requests_ended{cluster="team/gone/r1",status="503"} 3
# TYPE envoy_requests_first histogram
envoy_requests_first_bucket{endpoint="team/chat",le="50"} 1
envoy_requests_first_bucket{endpoint="team/chat",le="+Inf"} 2
envoy_requests_first_sum{endpoint="team/chat"} 1500.5
envoy_requests_first_count{endpoint="team/chat"} 2
envoy_requests_whole_bucket{endpoint="team/gone",le="100"} 1
envoy_requests_whole_sum{endpoint="team/gone"} 9
"""


def test_figures_are_written_by_class_of_status_in_seconds_and_only_of_what_exists() -> None:
    text = "".join(pieces(PAGE, {"team/chat": {"r1"}}))
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    chat = 'namespace="team",llmendpoint="chat"'
    assert lines == [
        f'llmendpoint_gateway_first_token_seconds_bucket{{{chat},le="0.05"}} 1',
        f'llmendpoint_gateway_first_token_seconds_bucket{{{chat},le="+Inf"}} 2',
        f"llmendpoint_gateway_first_token_seconds_sum{{{chat}}} 1.5005",
        f"llmendpoint_gateway_first_token_seconds_count{{{chat}}} 2",
        f'llmendpoint_gateway_requests_total{{{chat},revision="r1",status="2xx"}} 13',
    ]


def test_prometheus_reads_the_page() -> None:
    families = {
        f.name: f for f in text_string_to_metric_families("".join(pieces(PAGE, {"team/chat": {"r1"}})))
    }
    first = families["llmendpoint_gateway_first_token_seconds"]
    assert (first.type, len(first.samples)) == ("histogram", 4)
    assert families["llmendpoint_gateway_requests"].type == "counter"


@pytest.mark.parametrize(
    ("status", "expected"), [("0", "none"), ("101", "1xx"), ("499", "4xx"), ("503", "5xx")]
)
def test_the_class_of_a_status(status: str, expected: str) -> None:
    assert status_class(status) == expected


def test_the_page_of_a_thousand_endpoints_leaves_the_event_loop_every_few_milliseconds() -> None:
    block = PAGE.replace("team/gone", "team/chat").replace('le="50"} 1\n', 'le="50"} 1\n' * 26)
    page = "".join(block.replace("team/chat", f"team/chat-{i}") for i in range(1000))
    assert page.count("\n") > 30_000
    taken, began = [], time.process_time()
    for _ in pieces(page, {f"team/chat-{i}": {"r0", "r1"} for i in range(1000)}):
        taken.append(time.process_time() - began)
        began = time.process_time()
    assert sorted(taken)[len(taken) // 2] < 0.003
    assert sum(taken) < 1


def test_the_simulators_streams_and_what_they_wait_at_the_gateway_fill_the_histograms(
    gateway: Gateway,
) -> None:
    """The bundled server itself, with room for one request: of two at a time the second waits for the first."""
    slow = ("--max-num-seqs", "1", "--ttft", "0.4")
    name = gateway.endpoint(engine(gateway, *slow), traffic={"queue": {"waitingPerReplica": 1}})
    body = {
        "model": "demo",
        "stream": True,
        "max_tokens": 4,
        "messages": [{"role": "user", "content": "hi"}],
    }
    with ThreadPoolExecutor(4) as callers:
        answers = list(
            callers.map(
                lambda _: httpx.post(f"{gateway.url}/team/{name}{CHAT}", json=body, timeout=60), range(4)
            )
        )
    assert [answer.status_code for answer in answers] == [200] * 4
    wait_for(lambda: times(gateway, "first_token", name) == 4, "Envoy has merged its histograms")
    assert times(gateway, "first_token", name, "0.25") == 0, "each takes 400 ms"
    assert times(gateway, "first_token", name, "0.5") < 4, "the last ones have waited, too"
    assert times(gateway, "request", name) == 4
