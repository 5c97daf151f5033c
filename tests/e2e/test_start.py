"""docs/start/cpu.md: its commands, from the second step on, do what the page says.

The chart is installed already, from images that the test builds: in place of `helm install`, the chart is rendered with the
page's values. Namespace and port are the test's.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.demo.product import ROOT
from tests.e2e.product import NAMESPACE, START_LIMIT_S, Product
from tests.ports import free_port

PAGE = ROOT / "docs" / "start" / "cpu.md"
LIMIT_S = START_LIMIT_S + 60


def section(title: str) -> list[str]:
    """The commands below a heading."""
    [text] = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    found: list[str] = re.findall(r"```sh\n(.*?)```", text, re.S)
    return found


@pytest.fixture
def shell(product: Product, tmp_path: Path) -> dict[str, str]:
    """A user's terminal in `tmp_path`: a context with the namespace, and the examples in it."""
    kubeconfig = tmp_path / "kubeconfig"
    shutil.copy(product.cluster.environment["KUBECONFIG"], kubeconfig)
    environment = {**product.cluster.environment, "KUBECONFIG": str(kubeconfig)}
    words = ["kubectl", "config", "set-context", "--current", f"--namespace={NAMESPACE}"]
    subprocess.run(words, env=environment, check=True, capture_output=True)
    (tmp_path / "charts").symlink_to(ROOT / "charts")
    (tmp_path / "examples").mkdir()
    example = (ROOT / "examples" / "cpu.yaml").read_text()
    (tmp_path / "examples" / "cpu.yaml").write_text(
        example.replace("namespace: default", f"namespace: {NAMESPACE}")
    )
    return environment


def script(port: int) -> str:
    """The page's commands in one shell; the tunnel is the page's first terminal."""
    installed = [text.replace("helm install", "helm template") for text in section("2. Install the chart")]
    applied, [tunnel, *asked] = section("3. Apply the endpoint"), section("4. Ask it")
    answers = f"curl -sf --retry 30 --retry-connrefused http://127.0.0.1:{port}/v1/models"
    lines = [
        "set -euo pipefail",
        *installed,
        *applied,
        f"{tunnel.strip()} > tunnel.log &",
        "trap 'kill $!' EXIT",
        answers,
    ]
    lines += [*asked, *section("How to check"), "kubectl delete -f examples/cpu.yaml"]
    text = "\n".join(lines)
    return text.replace("8080", str(port)).replace("default/tiny", f"{NAMESPACE}/tiny")


def test_the_first_endpoint_answers_as_the_page_says(
    product: Product, shell: dict[str, str], tmp_path: Path
) -> None:
    try:
        done = subprocess.run(
            ["bash", "-c", script(free_port())], cwd=tmp_path, env=shell, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S,
        )  # fmt: skip
    finally:
        product.cluster.kubectl(
            "delete", "llmendpoint", "tiny", "-n", NAMESPACE, "--ignore-not-found", timeout=90
        )
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("condition met") == 3, "operator, gateway and endpoint were waited for"
    assert '"choices"' in done.stdout
    assert f'"{NAMESPACE}/tiny"' in done.stdout
    assert re.search(r"^tiny\s+True", done.stdout, re.M), "kubectl get llmendpoints says READY True"
