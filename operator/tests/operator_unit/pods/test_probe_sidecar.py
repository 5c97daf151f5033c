"""docs/contribute/contracts.md: `readiness: Generation` adds the sidecar `probe` to a pod, and changes nothing else of any pod."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmendpoint_operator.api import PROBE_PORT, LLMRuntimeSpec, PodInputs
from llmendpoint_operator.core.endpoint.causes import find_cause
from llmendpoint_operator.core.pods.deployment import STUCK_GRACE_SECONDS, make_deployment
from llmendpoint_operator.core.pods.manifests import Owner
from llmendpoint_operator.core.pods.revision import KNOWN_TEMPLATES, TEMPLATE_VERSION, Revision
from llmendpoint_operator.errors import SpecError

GOLDEN = Path(__file__).parents[1] / "golden"
FOREIGN: dict[str, Any] = {
    "image": "vllm:1",
    "args": [{"value": "--model=$(model.path)"}],
    "ports": {"http": 9000},
    "probes": {"startup": {"path": "/health"}, "live": {"path": "/health"}},
}


def deployment(template: int = TEMPLATE_VERSION, **runtime: Any) -> dict[str, Any]:
    inputs = PodInputs.model_validate({"model": {"source": "embedded://demo"}})
    spec = LLMRuntimeSpec.model_validate(FOREIGN | runtime)
    return make_deployment(
        Owner("team-a", "chat", "uid-1"), Revision("7d9f8c6b54", 1, template, inputs, spec), 1
    )


@pytest.mark.parametrize(
    ("template", "name"), [(1, "deployment_generation"), (2, "deployment_generation_live")]
)
def test_a_pod_with_the_sidecar_is_exactly_as_in_the_golden_file_of_its_template(
    template: int, name: str
) -> None:
    """What an earlier operator made renders as it did: an upgrade restarts nothing."""
    made = deployment(template, readiness="Generation", probeImage="operator:1")
    golden = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(yaml.safe_dump(made, sort_keys=False, width=118))
    assert made == yaml.safe_load(golden.read_text())


@pytest.mark.parametrize("template", sorted(KNOWN_TEMPLATES))
def test_a_native_pod_is_the_same_by_every_template(template: int) -> None:
    assert deployment(template) == deployment()


def test_the_sidecar_decides_readiness_and_life_and_the_engine_its_own_start() -> None:
    made = deployment(readiness="Generation", probeImage="operator:1", stuckAfterSeconds=300)
    pod = made["spec"]["template"]["spec"]
    [engine], [sidecar] = pod["containers"], pod["initContainers"]
    assert engine["readinessProbe"]["httpGet"] == {"path": "/ready", "port": PROBE_PORT}
    assert engine["startupProbe"]["httpGet"] == {"path": "/health", "port": "http"}
    assert engine["livenessProbe"]["httpGet"] == {"path": "/live", "port": PROBE_PORT}
    assert engine["livenessProbe"]["terminationGracePeriodSeconds"] == STUCK_GRACE_SECONDS
    assert "--stuck-after=300" in sidecar["args"]
    assert "--health-path=/health" in sidecar["args"]  # which /live asks
    assert sidecar["restartPolicy"] == "Always"  # which makes it a sidecar, not a step before the engine
    assert "--engine-url=http://127.0.0.1:9000" in sidecar["args"]
    assert sidecar["securityContext"] == engine["securityContext"]
    assert "volumeMounts" not in sidecar


def test_a_native_runtime_has_no_sidecar_whatever_image_is_named() -> None:
    assert deployment(readiness="Native", probeImage="operator:1") == deployment()
    assert "initContainers" not in deployment()["spec"]["template"]["spec"]


def test_without_an_image_the_field_is_named() -> None:
    with pytest.raises(SpecError, match="probeImage"):
        deployment(readiness="Generation")


def test_a_sidecar_image_that_cannot_be_pulled_is_named_with_the_field_to_correct() -> None:
    pulling = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    pod = {
        "metadata": {"name": "chat-x"},
        "spec": deployment(readiness="Generation", probeImage="operator:9")["spec"]["template"]["spec"],
        "status": {
            "containerStatuses": [{"name": "engine", "state": {"waiting": {"reason": "PodInitializing"}}}],
            "initContainerStatuses": [{"name": "probe", "image": "", "state": pulling}],
        },
    }
    cause = find_cause(None, [pod])
    assert cause is not None
    assert cause.reason == "ImagePullFailed"
    assert "operator:9" in cause.message
    assert "spec.probeImage" in cause.message
