"""What the dashboard shows. dashboard.py makes Grafana's JSON of it."""

from __future__ import annotations

from dataclasses import dataclass

OF = 'namespace=~"$namespace",llmendpoint=~"$llmendpoint"'
NAME = "{{namespace}}/{{llmendpoint}}"


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL, and the name of each of its lines."""

    expr: str
    legend: str = NAME


@dataclass(frozen=True, slots=True)
class Panel:
    """`text`: shown at the panel's corner. `unit`: Grafana's name of it. `width`: of 24 columns. `most`: the end of the
    axis, where it has one. `kind`: Grafana's kind of panel."""

    title: str
    queries: tuple[Query, ...]
    text: str
    unit: str = "short"
    width: int = 8
    most: float | None = None
    kind: str = "timeseries"


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


def _gauge(metric: str, more: str = "") -> str:
    return f"max by (namespace, llmendpoint) ({metric}{{{OF}{more}}})"


def _quantile(q: float, metric: str) -> str:
    return f"histogram_quantile({q}, sum by (namespace, llmendpoint, le) (rate({metric}_bucket{{{OF}}}[$__rate_interval])))"


_REQUESTS, _FIRST, _WHOLE = "llmendpoint_gateway_requests_total", "llmendpoint_gateway_first_token_seconds", "llmendpoint_gateway_request_seconds"  # fmt: skip
_CONDITION = "llmendpoint_operator_condition"

ROWS = (
    Row("Endpoints", (
        Panel("Ready", (Query(_gauge(_CONDITION, ',type="Ready"')),), "1: the endpoint answers requests, or is at zero on purpose", width=6, most=1),
        Panel("Replicas", (
            Query(_gauge("llmendpoint_operator_replicas_ready"), f"{NAME} ready"),
            Query(_gauge("llmendpoint_operator_replicas_wanted"), f"{NAME} wanted"),
        ), "Of the active revision", width=6),
        Panel("Rollout", (
            Query(f'max by (namespace, llmendpoint, state) (llmendpoint_operator_rollout_state{{{OF},state!="Idle"}})', f"{NAME} {{{{state}}}}"),
        ), "The states of rollouts that are not Idle", width=6, most=1),
        Panel("Share of new requests", (
            Query(f"max by (namespace, llmendpoint, revision) (llmendpoint_operator_traffic_weight{{{OF}}})", f"{NAME} {{{{revision}}}}"),
        ), "Percent, by revision", unit="percent", width=6, most=100),
    )),
    Row("Requests", (
        Panel("Requests a second", (
            Query(f"sum by (namespace, llmendpoint) (rate({_REQUESTS}{{{OF}}}[$__rate_interval]))"),
        ), "Requests that went to a replica and have ended", unit="reqps", width=6),
        Panel("Requests a second, by status", (
            Query(f"sum by (status) (rate({_REQUESTS}{{{OF}}}[$__rate_interval]))", "{{status}}"),
        ), "none: the caller left before the answer began", unit="reqps", width=6),
        Panel("Failed requests, by revision", (
            Query(
                f'sum by (namespace, llmendpoint, revision) (rate({_REQUESTS}{{{OF},status="5xx"}}[$__rate_interval]))'
                f' / sum by (namespace, llmendpoint, revision) (rate({_REQUESTS}{{{OF},status!="none"}}[$__rate_interval]))',
                f"{NAME} {{{{revision}}}}",
            ),
        ), "Share of requests that were answered with a 5xx", unit="percentunit", width=6, most=1),
        Panel("Refused requests, by code", (
            Query(f"sum by (namespace, llmendpoint, code) (rate(llmendpoint_gateway_refusals_total{{{OF}}}[$__rate_interval]))", f"{NAME} {{{{code}}}}"),
        ), "Requests that got no replica, a second", unit="reqps", width=6),
        Panel("Time to the first token", (
            Query(_quantile(0.5, _FIRST), f"{NAME} p50"), Query(_quantile(0.95, _FIRST), f"{NAME} p95"),
        ), "Of complete streams, with their time in the queue", unit="s"),
        Panel("Time of whole answers", (
            Query(_quantile(0.5, _WHOLE), f"{NAME} p50"), Query(_quantile(0.95, _WHOLE), f"{NAME} p95"),
        ), "Of complete answers", unit="s"),
        Panel("Tokens a second", (
            Query(f"sum by (namespace, llmendpoint) (rate(vllm:generation_tokens_total{{{OF}}}[$__rate_interval]))"),
        ), "Generated, as engines count them; needs the labels of the chart's PodMonitor"),
    )),
    Row("Load", (
        Panel("Requests that wait", (
            Query(f"sum by (namespace, llmendpoint) (llmendpoint_gateway_waiting{{{OF}}})", f"{NAME} at gateways"),
            Query(f"sum by (namespace, llmendpoint) (vllm:num_requests_waiting{{{OF}}})", f"{NAME} in engines"),
        ), "At the gateways for a replica, and in the engines"),
        Panel("Requests in flight", (
            Query(f"sum by (namespace, llmendpoint) (llmendpoint_gateway_in_flight{{{OF}}})"),
        ), "With a replica"),
        Panel("KV cache in use", (
            Query(f"max by (namespace, llmendpoint) (vllm:kv_cache_usage_perc{{{OF}}})"),
        ), "Of the fullest replica", unit="percentunit", most=1),
        Panel("Breakers", (
            Query(_gauge("llmendpoint_gateway_circuit_open"), f"{NAME} open"),
            Query(f"count by (namespace, llmendpoint) (llmendpoint_gateway_ejected{{{OF}}})", f"{NAME} ejected replicas"),
        ), "1: a gateway refuses the endpoint's requests. Ejected replicas are counted once for each gateway"),
        Panel("Conditions", (
            Query(
                f'max by (namespace, llmendpoint, type) ({_CONDITION}{{{OF},type=~"Degraded|Stalled|ScalingBlind|CircuitOpen|RuntimeMissing|NotOwned"}}) > 0',
                f"{NAME} {{{{type}}}}",
            ),
        ), "Those that name a problem", most=1),
        Panel("Preemptions a second", (
            Query(f"sum by (namespace, llmendpoint) (rate(vllm:num_preemptions_total{{{OF}}}[$__rate_interval]))"),
        ), "Requests that went back to an engine's queue because its KV cache was full"),
    )),
    Row("Gateway and operator", (
        Panel("Answers of the gateway itself", (
            Query('sum by (outcome) (rate(llmendpoint_gateway_decisions_total{outcome!~"picked|answered"}[$__rate_interval]))', "{{outcome}}"),
        ), "Requests that got no replica, by the code of the error", unit="reqps"),
        Panel("Time of a decision", (
            Query("histogram_quantile(0.99, sum by (le) (rate(llmendpoint_gateway_decision_seconds_bucket[$__rate_interval])))", "p99"),
        ), "To parse a request and to choose a replica", unit="s"),
        Panel("Connections of callers", (Query("sum by (pod) (llmendpoint_gateway_connections)", "{{pod}}"),), "By gateway pod"),
        Panel("Since the API server was heard", (
            Query("max by (pod) (llmendpoint_gateway_watch_staleness_seconds)", "{{pod}}"),
            Query("max by (pod) (llmendpoint_operator_watch_staleness_seconds)", "{{pod}}"),
        ), "0 while a gateway reaches it", unit="s"),
        Panel("Reconciliations a second", (
            Query("sum by (result) (rate(llmendpoint_operator_reconciles_total[$__rate_interval]))", "{{result}}"),
        ), "By result"),
        Panel("Writes that were refused", (
            Query("sum by (kind, code) (rate(llmendpoint_operator_write_errors_total[$__rate_interval]))", "{{kind}} {{code}}"),
        ), "By the API server, a second"),
    )),
)  # fmt: skip
