"""docs/start: manifests are those of examples/ and valid, and the plan on the page is what the command prints."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from llmendpoint_cli.__main__ import app
from llmendpoint_operator.api import LLMEndpointSpec
from tests.repository.names import ROOT

PAGES = {page: ROOT / "docs" / "start" / f"{page}.md" for page in ("cpu", "gpu")}
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def endpoints(text: str) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(text) if found["kind"] == "LLMEndpoint"]


@pytest.mark.parametrize("page", PAGES)
def test_the_manifest_of_a_page_is_the_example_that_it_applies(page: str) -> None:
    [shown] = re.findall(r"```yaml\n(.*?)```", PAGES[page].read_text(), re.S)
    assert f"kubectl apply -f examples/{page}.yaml" in PAGES[page].read_text()
    assert endpoints(shown) == endpoints((ROOT / "examples" / f"{page}.yaml").read_text())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_valid(path: Path) -> None:
    for found in endpoints(path.read_text()):
        LLMEndpointSpec.model_validate(found["spec"])


def test_the_plan_on_the_page_is_what_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    [(command, printed)] = re.findall(
        r"```\n\$ kubectl llm (plan [^\n]+)\n(.*?)```", PAGES["gpu"].read_text(), re.S
    )
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 0
    assert "".join(f"{line.rstrip()}\n" for line in result.output.splitlines()) == printed
