"""How many requests one Envoy may process: two filters count each request from its headers until its answer ends.

They are Envoy's adaptive concurrency filter with the same minimum and maximum, so that nothing adapts. Envoy has no
other limit that counts a request before its body arrived. They stop counting a request whose answer has arrived but is
not read yet. That request keeps its place at the picker, which has the same limit (core/envoy/resources.py).
"""

from typing import Any

from llmendpoint_gateway.core.envoy.bounds import Share
from llmendpoint_gateway.core.envoy.resources import Resource, extension, skipped_where

FULL_STATUS = 510
"""core/envoy/local_replies.py recognizes this answer by it and replaces it with 503. No other answer of Envoy has it."""
_UNUSED = "3600s"  # a required time for adapting; no effect, as minimum and maximum are equal


def make_places(share: Share) -> list[Resource]:
    """Requests over HTTP/2 are counted first, so that a refused one takes no place from the others."""
    return [skipped_where(_other_protocol(), _at_most(share.http2_requests)), _at_most(share.connections)]


def _at_most(requests: int) -> Resource:
    return extension(
        "envoy.filters.http.adaptive_concurrency",
        "envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency",
        concurrency_limit_exceeded_status={"code": FULL_STATUS},
        gradient_controller_config={
            "concurrency_limit_params": {
                "max_concurrency_limit": requests,
                "concurrency_update_interval": "60s",
            },
            "min_rtt_calc_params": {"fixed_value": _UNUSED, "min_concurrency": requests},
        },
    )


def _other_protocol() -> Resource:
    """`request.protocol != "HTTP/2"` in parsed form, as Envoy takes it."""
    protocol: dict[str, Any] = {"operand": {"id": 3, "ident_expr": {"name": "request"}}, "field": "protocol"}
    arguments = [{"id": 2, "select_expr": protocol}, {"id": 4, "const_expr": {"string_value": "HTTP/2"}}]
    parsed = {"expr": {"id": 1, "call_expr": {"function": "_!=_", "args": arguments}}}
    return {
        "input": extension("attributes", "xds.type.matcher.v3.HttpAttributesCelMatchInput"),
        "custom_match": extension(
            "protocol", "xds.type.matcher.v3.CelMatcher", expr_match={"cel_expr_parsed": parsed}
        ),
    }
