"""What Envoy counts of whole requests: how many, with which status, and how long the good ones took.

Envoy counts because it sees the answers; the picker sees none. It costs the picker nothing per request: it reads the
figures when it is scraped (serve/request_page.py). A request is counted where its replica was chosen, so one
that passes both listeners counts once, and one that got no replica does not count.
"""

from llmendpoint_gateway.core.envoy.resources import (
    CLUSTER_HEADER,
    METADATA,
    METADATA_ENDPOINT,
    Resource,
    extension,
)

STATS_PREFIX = "requests"
STATS_PATTERN = rf"^{STATS_PREFIX}\."
"""The regular expression (RE2) that matches them all."""
ENDED, FIRST, WHOLE = "ended", "first", "whole"
CLUSTER_TAG, STATUS_TAG, ENDPOINT_TAG = "cluster", "status", "endpoint"
# Milliseconds. From a cached answer of a small model to a reasoning model's long one.
FIRST_BUCKETS = (50, 100, 250, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000)
WHOLE_BUCKETS = (100, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000)

# Complete answers. One that broke, or whose client left, would make slow endpoints look fast.
_GOOD = "response.code >= 200 && response.code < 300 && response.flags == 0"
_STREAM = "response.headers['content-type'].startsWith('text/event-stream')"
# From the request's last byte, since a slow upload is not the endpoint's fault. The first byte is that of the body:
# some engines send headers before they compute anything.
_FIRST = "%COMMON_DURATION(DS_RX_END:US_RX_BODY_BEG:ms)%"
_WHOLE = "%COMMON_DURATION(DS_RX_END:DS_TX_END:ms)%"


def make_request_stats() -> list[Resource]:
    """Access loggers of both listeners."""
    placed = {"header_filter": {"header": {"name": CLUSTER_HEADER, "present_match": True}}}
    counted = {CLUSTER_TAG: f"%REQ({CLUSTER_HEADER})%", STATUS_TAG: "%RESPONSE_CODE%"}
    return [
        _logger(placed, counters=[{"stat": _stat(ENDED, counted), "value_fixed": 1}]),
        _logger(_all(placed, _cel(_GOOD)), histograms=[_histogram(WHOLE, _WHOLE)]),
        _logger(_all(placed, _cel(f"{_GOOD} && {_STREAM}")), histograms=[_histogram(FIRST, _FIRST)]),
    ]


def make_buckets() -> list[Resource]:
    """For the bootstrap."""
    return [
        {"match": {"prefix": f"{STATS_PREFIX}.{name}."}, "buckets": list(buckets)}
        for name, buckets in ((FIRST, FIRST_BUCKETS), (WHOLE, WHOLE_BUCKETS))
    ]


def _histogram(name: str, value: str) -> Resource:
    """By endpoint, not by revision: Envoy keeps a histogram for ever, with some kB each."""
    tags = {ENDPOINT_TAG: f"%CLUSTER_METADATA({METADATA}:{METADATA_ENDPOINT})%"}
    return {"stat": _stat(name, tags), "unit": "Milliseconds", "value_format": value}


def _stat(name: str, tags: dict[str, str]) -> Resource:
    return {"name": name, "tags": [{"name": tag, "value_format": value} for tag, value in tags.items()]}


def _logger(condition: Resource, **stats: list[Resource]) -> Resource:
    return extension(
        "envoy.access_loggers.stats",
        "envoy.extensions.access_loggers.stats.v3.Config",
        stat_prefix=STATS_PREFIX,
        **stats,
    ) | {"filter": condition}


def _cel(expression: str) -> Resource:
    return {
        "extension_filter": extension(
            "envoy.access_loggers.extension_filters.cel",
            "envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
            expression=expression,
        )
    }


def _all(*filters: Resource) -> Resource:
    return {"and_filter": {"filters": list(filters)}}
