"""Runs a guide's commands as its reader would type them: one bash, a folder and a namespace of the page's own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e import guide_needs
from tests.e2e.product import Product
from tests.guides import page, script, table

ROOT = Path(__file__).parents[2]
LIMIT_S = 300.0


@dataclass(frozen=True)
class Outcome:
    """`outputs` are of the commands that were reached, in order; `left` is what the page did not remove."""

    page: page.Page
    returncode: int
    outputs: tuple[str, ...]
    left: str
    seconds: float

    def story(self) -> str:
        return script.story(self.page.commands, self.outputs)


def follow(product: Product, name: str, folder: Path) -> Outcome:
    """Follow the page from its first command to its last, and remove the namespace."""
    started = time.monotonic()
    with _namespace(product, name) as namespace:
        for shared in ("charts", "examples"):
            (folder / shared).symlink_to(ROOT / shared)
        with guide_needs.of(name)(product, namespace, folder) as needed:
            found = table.applied(page.read(name), {**needed, "namespace": namespace})
            (folder / "guide.sh").write_text(script.make_script(found.steps))
            returncode = _run(folder, {**_environment(product, namespace, folder), **needed})
        left = _left(product, namespace)
    written = [folder / script.output_name(n) for n in range(len(found.commands))]
    outputs = tuple(path.read_text() for path in written if path.exists())
    return Outcome(found, returncode, outputs, left, time.monotonic() - started)


def _left(product: Product, namespace: str) -> str:
    """What a reader made and the page does not remove; what the operator makes follows by itself."""
    found = product.cluster.get("llmendpoints,persistentvolumeclaims,secrets", "-n", namespace)["items"]
    staying = [item for item in found if "deletionTimestamp" not in item["metadata"]]
    return " ".join(f"{item['kind']}/{item['metadata']['name']}" for item in staying)


@contextmanager
def _namespace(product: Product, name: str) -> Iterator[str]:
    namespace = f"guide-{name}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    product.cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    )
    try:
        yield namespace
    finally:
        product.cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def _environment(product: Product, namespace: str, folder: Path) -> dict[str, str]:
    """A user's: a kubeconfig whose context has the namespace, the plugin on PATH, and the gateway's address."""
    own = product.cluster.environment
    kubeconfig = folder / "kubeconfig"
    shutil.copy(own["KUBECONFIG"], kubeconfig)
    environment = {
        **own,
        "KUBECONFIG": str(kubeconfig),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}",
        "GATEWAY": product.url.removeprefix("http://"),
        "HOME": str(folder),
    }
    words = ["config", "set-context", "--current", f"--namespace={namespace}"]
    subprocess.run(["kubectl", *words], env=environment, check=True, stdout=subprocess.DEVNULL)
    return environment


def _run(folder: Path, environment: Mapping[str, str]) -> int:
    """The shell's exit status; 124 where it took too long. What it left running has ended."""
    with (folder / "shell.out").open("w") as said:
        shell = subprocess.Popen(
            ["bash", "guide.sh"], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=said,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            return shell.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            return 124
        finally:
            try:
                os.killpg(shell.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            shell.wait()
