"""docs/concepts/autoscaling.md: an impossible value counts as missing: what one tenant's engine says blinds no other endpoint."""

from __future__ import annotations

import asyncio
import gzip
import math
from typing import cast

import pytest
from aiohttp import web

from llmendpoint_operator.core.rollout.histograms import Histogram
from llmendpoint_operator.core.scaling.demand import Reading
from llmendpoint_operator.errors import Unanswered
from llmendpoint_operator.metrics import Metrics
from llmendpoint_operator.observe.latencies import MOST_CHARACTERS, MOST_LINES, parse_latencies
from llmendpoint_operator.observe.reports import parse_load, parse_report
from llmendpoint_operator.observe.scaling.first_tokens import FirstTokenTimes
from llmendpoint_operator.observe.scaling.rota import Followed, Rota
from llmendpoint_operator.observe.targets import Target, base_url
from llmendpoint_operator.observe.wire import LARGEST, Wire
from tests.integration.fake_wire import Servers
from tests.ports import free_port

from ..evidence_stage import KEY, until

TTFT = "vllm:time_to_first_token_seconds"
ENDLESS = "9" * 400
"""An integer that no float holds."""
LOAD = {"running": 2, "waiting": 1, "kv_usage": 0.5, "max_num_seqs": 8, "age": 0.1}


def page(bound: str, value: str) -> str:
    """A histogram with a bucket that makes no sense."""
    return f'# TYPE {TTFT} histogram\n{TTFT}_bucket{{le="+Inf"}} 3\n{TTFT}_bucket{{le="{bound}"}} {value}\n'


@pytest.mark.parametrize(
    ("bound", "value"),
    [
        ("+Inf", ENDLESS),
        ("+Inf", "NaN"),
        ("+Inf", "+Inf"),
        ("+Inf", "-1"),
        ("+Inf", f"1 {ENDLESS}"),
        ("NaN", "1"),
        ("-Inf", "1"),
        ("1e300", "1"),
    ],
)
def test_a_histogram_that_nothing_can_be_computed_with_is_no_answer(bound: str, value: str) -> None:
    with pytest.raises(Unanswered, match="/metrics cannot be parsed"):
        parse_latencies(page(bound, value))


@pytest.mark.parametrize("field", ["running", "waiting", "kv_usage", "max_num_seqs"])
@pytest.mark.parametrize(
    "figure", [math.inf, math.nan, -1, int(ENDLESS)], ids=["inf", "nan", "negative", "endless"]
)
def test_a_load_that_nothing_can_be_computed_with_is_unknown(field: str, figure: float) -> None:
    load = {**LOAD, field: figure}
    with pytest.raises(ValueError, match="too large"):
        parse_load(load, 5.0)
    told = {"waiting": 4, "replicas": {"p0": {"in_flight": 1, "load": load}}}
    report = parse_report(told, 5.0)
    assert (report.waiting, report.replicas) == (4, {"p0": Reading(1)}), "a gateway only passes it on"


class Says:
    """In place of the wire: every engine answers with this page."""

    def __init__(self, text: str) -> None:
        self.said, self.asked = text, 0

    async def text(self, *_: object) -> str:
        self.asked += 1
        return self.said


async def test_an_engine_that_counts_beyond_all_numbers_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("llmendpoint_operator.observe.scaling.first_tokens.TICK_S", 0.001)
    engine = Says(page("+Inf", ENDLESS))
    times = FirstTokenTimes(cast(Wire, engine))
    times.follow(KEY, [Target("p0", "uid", "r1", "http://p0")], 0.001)
    running = asyncio.create_task(times.run())
    await until(lambda: engine.asked > 2 or running.done())
    assert not running.done()
    assert times.of(KEY) is None
    running.cancel()


async def test_an_endpoint_whose_engines_cannot_be_asked_keeps_no_other_waiting() -> None:
    asked: list[float] = []

    async def ask(one: Followed[str]) -> None:
        if one.interval == 0:
            raise OverflowError
        asked.append(one.interval)

    rota = Rota(ask, str)
    for name, interval in (("broken", 0), ("chat", 0.001)):
        rota.follow(("team-a", name), interval)
    rota.ask_due()
    await until(lambda: asked == [0.001])


@pytest.mark.parametrize("status", [200, 500])
async def test_json_that_is_nested_too_deep_is_no_answer(status: int) -> None:
    async def nested(_: web.Request) -> web.Response:
        return web.Response(text="[" * 200_000, status=status)

    app, port = web.Application(), free_port()
    app.add_routes([web.get("/load", nested)])
    async with Wire(Metrics()) as wire, Servers() as serving:
        url = base_url(await serving.add(app, port), port)
        with pytest.raises(Unanswered):
            await wire.json("load", f"{url}/load", 5)


@pytest.mark.parametrize("kind", sorted(LARGEST))
async def test_of_what_a_pod_answers_no_more_is_read_than_such_an_answer_has(kind: str) -> None:
    async def endless(_: web.Request) -> web.Response:
        return web.Response(body=b" " * (LARGEST[kind] + 1) + b"{}")

    app, port = web.Application(), free_port()
    app.add_routes([web.get("/", endless)])
    async with Servers() as serving, Wire(Metrics()) as wire:
        url = base_url(await serving.add(app, port), port)
        with pytest.raises(Unanswered, match=f"larger than {LARGEST[kind]} bytes"):
            await wire.json(kind, url, 5)


def test_a_page_of_many_histograms_does_not_hold_up_everybody_elses_endpoints() -> None:
    lines = "".join(f'{TTFT}_bucket{{le="{i}"}} {i}\n' for i in range(MOST_LINES + 1))
    with pytest.raises(
        Unanswered, match=f"{MOST_LINES} lines and {MOST_CHARACTERS} characters at most are read"
    ):
        parse_latencies(f"# TYPE {TTFT} histogram\n{lines}")


def test_a_page_whose_lines_have_labels_without_end_is_no_answer() -> None:
    labels = ",".join(f'l{i}="v"' for i in range(200))
    lines = "".join(f'{TTFT}_bucket{{{labels},le="{i}"}} {i}\n' for i in range(MOST_LINES))
    assert len(lines) > MOST_CHARACTERS
    with pytest.raises(Unanswered, match="characters at most are read"):
        parse_latencies(lines)


def test_a_label_that_looks_like_the_bucket_s_bound_is_none() -> None:
    told = "".join(
        f'{TTFT}_bucket{{m="a}} ,le=\\"9\\"",le="{le}"}} {n} 1700000000\n'
        for le, n in (("1", 3), ("+Inf", 4))
    )
    assert parse_latencies(told).ttft == Histogram.of({1.0: 3.0, float("inf"): 4.0})


async def test_a_body_that_comes_compressed_all_the_same_is_not_unpacked() -> None:
    """It may be a thousand times what it seems to be, and is no JSON as it is."""

    async def packed(_: web.Request) -> web.Response:
        return web.Response(body=gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"})

    app, port = web.Application(), free_port()
    app.add_routes([web.get("/", packed)])
    async with Servers() as serving, Wire(Metrics()) as wire:
        url = base_url(await serving.add(app, port), port)
        with pytest.raises(Unanswered, match="not JSON"):
            await wire.json("prompt", url, 5)
