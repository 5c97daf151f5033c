"""For every alert: what makes it fire, and what must not.

`series` is promtool's notation: `0x10` is 0 and ten times more, one value a minute; `0+60x10` grows by 60 a minute; `_` is no
value.
"""

from __future__ import annotations

from dataclasses import dataclass, field

CHAT = 'namespace="team",llmendpoint="chat"'
OTHER = 'namespace="team",llmendpoint="other"'
POD = 'namespace="llmendpoint-system",pod="gateway-1"'
POD_2 = 'namespace="llmendpoint-system",pod="gateway-2"'
CONDITION = "llmendpoint_operator_condition"
REQUESTS = "llmendpoint_gateway_requests_total"
FIRST = "llmendpoint_gateway_first_token_seconds_bucket"
TARGET = "llmendpoint_operator_first_token_target_seconds"
STATE = "llmendpoint_operator_rollout_state"
ACTIVE = {f'llmendpoint_operator_revision_info{{{CHAT},revision="aa",role="active"}}': "1x120"}


@dataclass(frozen=True, slots=True)
class Case:
    """`fires`: the labels of the alerts that fire `at`, beside their severity; none: nothing fires."""

    alert: str
    name: str
    series: dict[str, str]
    at: str
    fires: tuple[str, ...] = field(default=())


def condition(kind: str, values: str, of: str = CHAT) -> dict[str, str]:
    return {f'{CONDITION}{{{of},type="{kind}"}}': values}


def requests(status: str, values: str, pod: str = "1") -> dict[str, str]:
    return {f'{REQUESTS}{{{CHAT},revision="aa",status="{status}",pod="{pod}"}}': values}


def refusals(code: str, values: str, pod: str = "1") -> dict[str, str]:
    return {f'llmendpoint_gateway_refusals_total{{{CHAT},code="{code}",pod="{pod}"}}': values}


def first_tokens(fast: int, slow: int) -> dict[str, str]:
    """Streams a minute that begin within 2 s, and within 10 s to 20 s."""
    total = fast + slow
    bounds = {"2.0": fast, "10.0": fast, "20.0": total, "+Inf": total}
    return {f'{FIRST}{{{CHAT},le="{le}",pod="1"}}': f"0+{number}x60" for le, number in bounds.items()}


CASES = (
    Case("LLMEndpointDown", "not ready for 6 minutes", condition("Ready", "1x5 0x20") | ACTIVE, "12m", (CHAT,)),
    Case("LLMEndpointDown", "not ready for 3 minutes", condition("Ready", "1x5 0x20") | ACTIVE, "9m"),
    Case("LLMEndpointDown", "ready again in between", condition("Ready", "0x3 1 0x3 1 0x3") | ACTIVE, "11m"),
    Case("LLMEndpointDown", "it has never been ready", condition("Ready", "0x60"), "20m"),
    Case("LLMEndpointDown", "it is deleted", condition("Ready", "0x3 _x20") | ACTIVE, "20m"),
    Case("LLMEndpointNotStarted", "new and not ready for 31 minutes", condition("Ready", "0x60"), "31m", (CHAT,)),
    Case("LLMEndpointNotStarted", "new and still loading", condition("Ready", "0x60"), "20m"),
    Case("LLMEndpointNotStarted", "it was ready before", condition("Ready", "0x60") | ACTIVE, "40m"),
    Case("LLMEndpointStalled", "stalled for 10 minutes", condition("Stalled", "1x30"), "10m", (CHAT,)),
    Case("LLMEndpointStalled", "stalled for 5 minutes", condition("Stalled", "1x30"), "5m"),
    Case("LLMEndpointStalled", "not stalled", condition("Stalled", "0x30"), "20m"),
    Case(
        "LLMEndpointErrors", "10 % fail, counted by two gateways",
        requests("2xx", "0+90x30") | requests("5xx", "0+20x30", "2") | requests("2xx", "0+90x30", "2"),
        "15m", (CHAT,),
    ),
    Case("LLMEndpointErrors", "every request fails", requests("5xx", "0+60x30"), "15m", (CHAT,)),
    Case("LLMEndpointErrors", "4 % fail", requests("2xx", "0+96x30") | requests("5xx", "0+4x30"), "15m"),
    Case("LLMEndpointErrors", "the only request of a quiet endpoint fails", requests("5xx", "0 0 0 1x30"), "10m"),
    Case("LLMEndpointErrors", "callers are refused or leave", requests("4xx", "0+60x30") | requests("none", "0+60x30"), "15m"),
    Case("LLMEndpointErrors", "there are no requests any more", requests("5xx", "0+60x5 300x30") | requests("2xx", "0x40"), "30m"),
    Case("LLMEndpointRefused", "one in ten, at two gateways", requests("2xx", "0+90x30") | refusals("no_ready_replica", "0+6x30") | refusals("queue_full", "0+4x30", "2"), "15m", (CHAT,)),
    Case("LLMEndpointRefused", "all of them", refusals("circuit_open", "0+60x30"), "15m", (CHAT,)),
    Case("LLMEndpointRefused", "one in fifty", requests("2xx", "0+98x30") | refusals("queue_full", "0+2x30"), "15m"),
    Case("LLMEndpointRefused", "all of them, for a minute", refusals("no_ready_replica", "0 60x30"), "15m"),
    Case("LLMEndpointFirstTokenSlow", "one in ten takes 10 s or more", first_tokens(9, 1), "20m", (CHAT,)),
    Case("LLMEndpointFirstTokenSlow", "one in a hundred does", first_tokens(99, 1), "20m"),
    Case("LLMEndpointFirstTokenSlow", "as slow, for 8 minutes so far", first_tokens(9, 1), "8m"),
    Case("LLMEndpointFirstTokenSlow", "within the spec's own target", first_tokens(9, 1) | {f"{TARGET}{{{CHAT}}}": "30x60"}, "20m"),
    Case("LLMEndpointFirstTokenSlow", "below 5 s, above the spec's own target", first_tokens(10, 0) | {f"{TARGET}{{{CHAT}}}": "1x60"}, "20m", (CHAT,)),
    Case("LLMEndpointFirstTokenSlow", "no streams", first_tokens(0, 0), "20m"),
    Case(
        "LLMEndpointQueue", "requests wait at one gateway or the other",
        {f"llmendpoint_gateway_waiting{{{CHAT},pod=\"1\"}}": "3x5 _x30", f"llmendpoint_gateway_waiting{{{CHAT},pod=\"2\"}}": "_x4 2x30"},
        "12m", (CHAT,),
    ),
    Case("LLMEndpointQueue", "bursts, and nothing in between", {f"llmendpoint_gateway_waiting{{{CHAT}}}": "9x3 0 9x3 0 9x3 0 9x3"}, "14m"),
    Case("LLMEndpointQueue", "nothing waits", {f"llmendpoint_gateway_in_flight{{{CHAT}}}": "9x30"}, "20m"),
    Case("LLMEndpointBreakerOpen", "open for 3 minutes", {f"llmendpoint_gateway_circuit_open{{{CHAT},pod=\"1\"}}": "1x10"}, "3m", (CHAT,)),
    Case("LLMEndpointBreakerOpen", "open again and again", {f"llmendpoint_gateway_circuit_open{{{CHAT},pod=\"1\"}}": "1 _ 1 _ 1 _ 1"}, "5m", (CHAT,)),
    Case("LLMEndpointBreakerOpen", "closed after a minute", {f"llmendpoint_gateway_circuit_open{{{CHAT},pod=\"1\"}}": "1 _x10"}, "5m"),
    Case(
        "LLMEndpointRolloutStuck", "one state for an hour", {f'{STATE}{{{CHAT},state="Provisioning"}}': "1x90"},
        "61m", (f'{CHAT},state="Provisioning"',),
    ),
    Case(
        "LLMEndpointRolloutStuck", "it goes on",
        {f'{STATE}{{{CHAT},state="Provisioning"}}': "1x40 _x60", f'{STATE}{{{CHAT},state="Warming"}}': "_x40 1x60"}, "90m",
    ),
    Case("LLMEndpointRolloutStuck", "it is observed", {f'{STATE}{{{CHAT},state="Observing"}}': "1x120"}, "120m"),
    Case("LLMEndpointRolloutStuck", "it waits for a person", {f'{STATE}{{{CHAT},state="AwaitingPromotion"}}': "1x120"}, "120m"),
    Case("LLMEndpointRolledBack", "rolled back", {f'{STATE}{{{CHAT},state="RolledBack"}}': "1x10"}, "1m", (CHAT,)),
    Case("LLMEndpointRolledBack", "on its way back", {f'{STATE}{{{CHAT},state="RollingBack"}}': "1x10"}, "5m"),
    Case("LLMEndpointRolledBack", "idle", {f'{STATE}{{{CHAT},state="Idle"}}': "1x10"}, "5m"),
    Case("LLMEndpointScalerBlind", "blind for 5 minutes", condition("ScalingBlind", "1x10"), "6m", (CHAT,)),
    Case("LLMEndpointScalerBlind", "for 2 minutes", condition("ScalingBlind", "1x2 0x10"), "6m"),
    Case("LLMEndpointScalerBlind", "of another endpoint", condition("ScalingBlind", "1x10", OTHER) | condition("ScalingBlind", "0x10"), "6m", (OTHER,)),
    Case("LLMGatewayGone", "there is no metric of a gateway at all", {"up": "1x10"}, "6m", ("",)),
    Case("LLMGatewayGone", "the last one goes", {f"llmendpoint_gateway_synced{{{POD}}}": "1x5 _x20"}, "16m", ("",)),
    Case("LLMGatewayGone", "one of two goes", {f"llmendpoint_gateway_synced{{{POD}}}": "1x5 _x20", f"llmendpoint_gateway_synced{{{POD_2}}}": "1x30"}, "16m"),
    Case("LLMGatewayGone", "for two minutes", {f"llmendpoint_gateway_synced{{{POD}}}": "1x5 stale _ 1x20"}, "16m"),
    Case(
        "LLMGatewayNotReady", "Envoy is away",
        {f"llmendpoint_gateway_synced{{{POD}}}": "1x20", f"llmendpoint_gateway_envoy_connected{{{POD}}}": "0x20"}, "6m", (POD,),
    ),
    Case(
        "LLMGatewayNotReady", "all is well",
        {f"llmendpoint_gateway_synced{{{POD}}}": "1x20", f"llmendpoint_gateway_envoy_connected{{{POD}}}": "1x20"}, "6m",
    ),
    Case(
        "LLMGatewayNotReady", "Envoy refuses its listener",
        {f"llmendpoint_gateway_synced{{{POD}}}": "1x20", f"llmendpoint_gateway_envoy_connected{{{POD}}}": "1x20", f"llmendpoint_gateway_started{{{POD}}}": "0x20"},
        "6m", (POD,),
    ),
    Case(
        "LLMGatewayNotReady", "the LLMKeys cannot be read",
        {f"llmendpoint_gateway_keys_synced{{{POD}}}": "0x20", f"llmendpoint_gateway_keys_synced{{{POD_2}}}": "1x20"}, "6m", (POD,),
    ),
    Case(
        "LLMGatewayConfigurationOld", "one change is refused",
        {f"llmendpoint_gateway_snapshot_generation{{{POD}}}": "7x5 8x30", f"llmendpoint_gateway_acknowledged_generation{{{POD}}}": "7x40"}, "20m", (POD,),
    ),
    Case(
        "LLMGatewayConfigurationOld", "many changes, each accepted after a while",
        {f"llmendpoint_gateway_snapshot_generation{{{POD}}}": "1+1x40", f"llmendpoint_gateway_acknowledged_generation{{{POD}}}": "1 1 3 3 5 5 7 7 9 9 11 11 13 13 15 15 17 17 19 19 21"}, "18m",
    ),
    Case("LLMGatewayCutOff", "silence for minutes", {f"llmendpoint_gateway_watch_staleness_seconds{{{POD}}}": "0+60x20"}, "8m", (POD,)),
    Case("LLMGatewayCutOff", "short silences", {f"llmendpoint_gateway_watch_staleness_seconds{{{POD}}}": "0 50 0 70 0 50x20"}, "12m"),
    Case("LLMGatewayOverloaded", "refuses requests", {f"llmendpoint_gateway_overload_refusals_total{{{POD}}}": "0+6x20"}, "10m", (POD,)),
    Case("LLMGatewayOverloaded", "refuses none", {f"llmendpoint_gateway_overload_refusals_total{{{POD}}}": "6x20"}, "10m"),
    Case("LLMOperatorGone", "there is no metric of an operator at all", {"up": "1x10"}, "6m", ("",)),
    Case("LLMOperatorGone", "none has the Lease", {'llmendpoint_operator_leader{pod="1"}': "0x20", 'llmendpoint_operator_leader{pod="2"}': "0x20"}, "6m", ("",)),
    Case("LLMOperatorGone", "the Lease changes hands", {'llmendpoint_operator_leader{pod="1"}': "1x5 0x20", 'llmendpoint_operator_leader{pod="2"}': "0x7 1x20"}, "12m"),
    Case(
        "LLMOperatorWritesFail", "refused for 20 minutes",
        {'llmendpoint_operator_write_errors_total{kind="Deployment",code="403"}': "0+1x60"}, "20m", ('kind="Deployment",code="403"',),
    ),
    Case("LLMOperatorWritesFail", "another write came first", {'llmendpoint_operator_write_errors_total{kind="Deployment",code="409"}': "0+9x60"}, "40m"),
    Case("LLMOperatorWritesFail", "once", {'llmendpoint_operator_write_errors_total{kind="Deployment",code="403"}': "0 1x60"}, "20m"),
    Case("LLMBatchStorageFails", "its disk is full", {f"llmendpoint_batch_storage_failures_total{{{POD}}}": "0+1x60"}, "8m", (POD,)),
    Case("LLMBatchStorageFails", "one write was tried again", {f"llmendpoint_batch_storage_failures_total{{{POD}}}": "0 1x60"}, "12m"),
)  # fmt: skip
