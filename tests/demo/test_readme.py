"""README.md: the first manifest runs as it is, and the files that the page links to are there."""

import re
from pathlib import Path

import yaml

from llmendpoint_operator.api import LLMEndpointSpec
from tests.demo.product import CHART, ROOT


def first_manifest() -> dict[str, object]:
    [text] = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[:1]
    found: dict[str, object] = yaml.safe_load(text)
    return found


def test_the_first_manifest_runs_on_a_cluster_without_accelerators() -> None:
    spec = LLMEndpointSpec.model_validate(first_manifest()["spec"])
    assert spec.resources.accelerator is None
    assert spec.engine.device == "cpu"
    assert spec.model.source == "embedded://demo", "a model that needs no hub, no claim and no Secret"


def test_files_that_the_readme_links_to_are_there() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / "README.md").read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_chart_runs_two_gateways_unless_told_otherwise() -> None:
    """The demo and the upgrade test take this default, and docs/concepts/gateway.md recommends it."""
    assert yaml.safe_load(Path(CHART / "values.yaml").read_text())["gateway"]["replicas"] == 2
