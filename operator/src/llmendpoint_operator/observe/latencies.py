"""Latencies of an engine, from the histograms of its `/metrics`."""

from __future__ import annotations

import math
import re
from collections import defaultdict

from ..core.endpoint.reported import parse_figure
from ..core.rollout.histograms import Histogram
from ..core.rollout.measurements import Latencies
from ..errors import Unanswered
from .targets import Target

SCRAPE_TIMEOUT_S = 1.5
MOST_PODS = 50
"""Per revision: 50 replicas represent all, and a rollout of 1,000 stays cheap."""
MOST_LINES = 2000
"""Histogram lines of one pod that are read, because they are parsed on the event loop of all endpoints."""
MOST_CHARACTERS = 512 * 1024
"""Total length of these lines. One of vLLM has about 120; a tenant's engine may write any number of
labels."""
_BUCKET = re.compile(r"[^{]*\{(?P<labels>.*)\}[ \t]+(?P<value>\S+)(?:[ \t]+-?[\d.]{1,20})?[ \t]*")
"""A bucket line, with or without a timestamp after the value."""
_LE = re.compile(r'(?:^|,)\s*le="(?P<bound>[^"\\]*)"')
"""The label `le` itself, not the value of another label: quotation marks in values are escaped."""

TTFT = "vllm:time_to_first_token_seconds"
ITL = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
"""The present name, and the one of older engines."""
E2E = "vllm:e2e_request_latency_seconds"


def parse_latencies(page: str) -> Latencies:
    """The three histograms of a `/metrics` page, summed over labels. Raises Unanswered if it is malformed."""
    wanted = (TTFT, *ITL, E2E)
    lines = [line for line in page.splitlines() if line.startswith(wanted)]
    size = sum(map(len, lines))
    if len(lines) > MOST_LINES or size > MOST_CHARACTERS:
        most = f"{MOST_LINES} lines and {MOST_CHARACTERS} characters at most are read"
        raise Unanswered(f"/metrics has {len(lines)} lines of histograms with {size} characters; {most}")
    found: dict[str, dict[float, float]] = {name: defaultdict(float) for name in wanted}
    try:
        for line in lines:
            name, is_bucket, _ = line.partition("_bucket{")
            if not is_bucket or name not in found:
                continue
            bucket = _BUCKET.fullmatch(line.partition(" # ")[0])  # without an exemplar
            bound = _LE.search(bucket["labels"]) if bucket else None
            if bucket is None or bound is None:
                raise ValueError(f"no bucket: {line[:80]!r}")
            found[name][_bound(bound["bound"])] += parse_figure(float(bucket["value"]))
    except (ValueError, OverflowError) as error:
        raise Unanswered(f"/metrics cannot be parsed: {error!r}") from error
    made = {name: Histogram.of(buckets) for name, buckets in found.items() if math.inf in buckets}
    itl = next((made[name] for name in ITL if name in made), Histogram())
    return Latencies(made.get(TTFT, Histogram()), itl, made.get(E2E, Histogram()))


def _bound(label: str) -> float:
    """The upper bound of a bucket in seconds. Raises ValueError for an invalid one."""
    bound = float(label)
    return bound if bound == math.inf else parse_figure(bound)


def some(pods: tuple[Target, ...]) -> list[Target]:
    """At most MOST_PODS of each revision, the same ones every time."""
    chosen: list[Target] = []
    taken: dict[str, int] = defaultdict(int)
    for pod in pods:
        taken[pod.revision] += 1
        if taken[pod.revision] <= MOST_PODS:
            chosen.append(pod)
    return chosen
