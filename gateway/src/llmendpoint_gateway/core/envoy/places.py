"""How many requests one Envoy has under way: two filters that count each from its headers on, until its answer's end.

They are Envoy's adaptive concurrency filter with one number for its least and its most, so that nothing adapts. Envoy has no
other limit that counts a request before its body is there. A request whose answer has come, and is not read, they count no
more; it keeps its place at the picker, of which there are as many (core/envoy/resources.py).
"""

from typing import Any

from llmendpoint_gateway.core.envoy.bounds import Share
from llmendpoint_gateway.core.envoy.resources import Resource, extension, skipped_where

FULL_STATUS = 510
"""By which core/envoy/local_replies.py knows this answer, and tells 503: no other answer of Envoy's own has it."""
_UNUSED = "3600s"  # times by which the limit would adapt between its least and its most


def make_places(share: Share) -> list[Resource]:
    """Those over HTTP/2 are counted first: what that refuses takes no place of the others."""
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
    """`request.protocol != "HTTP/2"`, as Envoy takes it: parsed."""
    protocol: dict[str, Any] = {"operand": {"id": 3, "ident_expr": {"name": "request"}}, "field": "protocol"}
    arguments = [{"id": 2, "select_expr": protocol}, {"id": 4, "const_expr": {"string_value": "HTTP/2"}}]
    parsed = {"expr": {"id": 1, "call_expr": {"function": "_!=_", "args": arguments}}}
    return {
        "input": extension("attributes", "xds.type.matcher.v3.HttpAttributesCelMatchInput"),
        "custom_match": extension(
            "protocol", "xds.type.matcher.v3.CelMatcher", expr_match={"cel_expr_parsed": parsed}
        ),
    }
