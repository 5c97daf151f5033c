"""docs/reference/metrics.md: the page has every metric that the code registers, and every value of a label that the code names."""

from __future__ import annotations

import re
from pathlib import Path

from llmendpoint_gateway.core.placement.endpoint_breaker import Cause
from llmendpoint_gateway.core.placement.replica_breaker import CAUSES
from llmendpoint_operator.core.scaling.outcome import Reason
from tests.reference.__main__ import PAGES

ROOT = Path(__file__).parents[2]
REGISTERING = {
    "gateway/src/llmendpoint_gateway/serve/collectors.py",
    "gateway/src/llmendpoint_gateway/serve/metrics.py",
    "operator/src/llmendpoint_operator/endpoint_metrics.py",
    "operator/src/llmendpoint_operator/metrics.py",
    "server/src/llmendpoint_server/api/histograms.py",
    "server/src/llmendpoint_server/api/metrics.py",
}
"""The only modules that make metrics, beside the gateway's serve/request_page.py, which writes Envoy's; tests/reference/metrics.py reads the registries of all of them."""


def label_values(row: str) -> str:
    """What the page says of a label."""
    found: list[str] = re.findall(
        rf"^\| {re.escape(row)} \| (.*) \|$", (PAGES / "metrics.md").read_text(), re.M
    )
    assert len(found) == 1, row
    return found[0]


def names(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def test_no_other_module_makes_a_metric() -> None:
    making = re.compile(r"^from prometheus_client.*\b(Counter|Gauge|Histogram|Summary|Info|\w+MetricFamily)\b", re.M)  # fmt: skip
    sources = [p for part in ("operator", "gateway", "server", "probe", "cli", "fit", "verdicts") for p in (ROOT / part / "src").rglob("*.py")]  # fmt: skip
    assert {p.relative_to(ROOT).as_posix() for p in sources if making.search(p.read_text())} == REGISTERING


def test_what_is_about_an_endpoint_names_it_by_the_same_labels_everywhere() -> None:
    rows = re.findall(r"^\| `([\w:]+)` \| \w+ \| (.*?) \|", (PAGES / "metrics.md").read_text(), re.M)
    assert rows
    for name, labels in rows:
        found = names(labels)
        assert not found & {"endpoint", "cluster", "name", "exported_namespace"}, name
        assert ("llmendpoint" in found) == ("namespace" in found), name
        assert "revision" not in found or "llmendpoint" in found, name


def test_every_cause_of_an_ejection_is_explained() -> None:
    assert names(label_values("`cause` of `ejections_total`")) == {cause.value for cause in CAUSES}


def test_every_cause_of_an_open_breaker_is_explained() -> None:
    assert names(label_values("`cause` of `circuit_openings_total`")) == {cause.value for cause in Cause}


def test_every_reason_of_a_change_of_replicas_is_explained() -> None:
    explained = names(label_values("`reason` of `scalings_total`")) - {"spec.replicas"}
    assert explained == {reason.value for reason in Reason}


def test_every_kind_of_request_of_the_operator_is_explained() -> None:
    asking = re.compile(r"[wW]ire\.(?:text|json|lines)\(\s*\"(\w+)\"")
    folder = ROOT / "operator/src/llmendpoint_operator/observe"
    found = {kind for path in folder.rglob("*.py") for kind in asking.findall(path.read_text())}
    assert names(label_values("`kind` of `evidence_calls_total`")) == found


def test_every_way_of_attention_is_explained() -> None:
    """Watched is left out: it has one of the others, and notes its calls."""
    backend = re.compile(r"^class (?!Watched)(\w+)\(Backend\)", re.M)
    folder = ROOT / "server/src/llmendpoint_server/engine/attention"
    found = {name.lower() for path in folder.glob("*.py") for name in backend.findall(path.read_text())}
    assert names(label_values("`attention` of `engine_info`")) == found | {"none"}


def test_every_variant_of_the_cpu_kernels_is_explained() -> None:
    source = (ROOT / "server/native/src/llmendpoint_native/__init__.py").read_text()
    variants = set(re.findall(r'^    "(\w+)": frozenset', source, re.M))
    assert names(label_values("`kernels` of `engine_info`")) == variants | {"none"}


def test_every_metric_in_a_query_of_the_page_is_on_the_page() -> None:
    page = (PAGES / "metrics.md").read_text()
    table, _, queries = page.partition("## Questions")
    asked = set(re.findall(r"(?:llmendpoint_\w+|vllm:\w+)", queries))
    assert asked
    assert [name for name in asked if f"`{name.removesuffix('_bucket')}`" not in table] == []
