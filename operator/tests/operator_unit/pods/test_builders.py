"""docs/contribute/contracts.md: the children's names, labels and content, as golden files, and the hash that names a revision.

UPDATE_GOLDEN=1 writes the files. A change of a Deployment restarts pods.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmendpoint_operator.api import LLMRuntimeSpec, PodInputs
from llmendpoint_operator.core.pods.builders import (
    make_controller_revision,
    make_headless_service,
    make_service,
    make_service_account,
)
from llmendpoint_operator.core.pods.deployment import make_deployment
from llmendpoint_operator.core.pods.manifests import Owner
from llmendpoint_operator.core.pods.revision import (
    Revision,
    defaulted_paths,
    full_inputs,
    parse_revision,
    revision_data,
    revision_hash,
)

GOLDEN = Path(__file__).parents[1] / "golden"
ROOT = Path(__file__).parents[4]
OWNER = Owner("team-a", "chat", "uid-1")
BUNDLED = LLMRuntimeSpec.model_validate(
    yaml.safe_load((ROOT / "charts/llmendpoint/runtimes/llmendpoint.yaml").read_text())["spec"]
)
FULL: dict[str, Any] = {
    "model": {"source": "pvc://models/qwen3-8b", "servedNames": ["qwen3", "chat-large"]},
    "runtime": {"image": "mirror/server:2", "args": ["--extra"], "env": [{"name": "A", "value": "1"}, {"name": "EMPTY"}]},
    "resources": {
        "accelerator": {"kind": "nvidia.com/gpu", "count": 2},
        "cpu": 4,
        "memory": "16Gi",
        "nodeSelector": {"gpu": "h100"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    },
    "engine": {
        "device": "cuda", "dtype": "bfloat16", "maxModelLen": 8192, "maxNumSeqs": 16, "maxQueuedRequests": 1,
        "kvCacheMemory": "2Gi", "prefixCaching": False, "quantization": "int8", "kvCacheDtype": "fp8",
    },
    "adapters": [
        {"name": "sql", "source": "hf://acme/sql@v2"},
        {"name": "legal", "source": "pvc://models/adapters/legal"},
        {"name": "support", "source": "pvc://adapters/support"},
    ],
    "progressDeadlineSeconds": 121,
    "terminationGracePeriodSeconds": 120,
}  # fmt: skip
MINIMAL: dict[str, Any] = {"model": {"source": "embedded://demo"}}
CUSTOM = LLMRuntimeSpec.model_validate(
    {
        "image": "sim:1",
        "command": ["/sim"],
        "ports": {"http": 9000},
        "env": [{"name": "PYTHONPATH", "value": "/site"}],
        "volumes": [
            {"name": "site", "persistentVolumeClaim": {"claimName": "site-packages", "readOnly": True}}
        ],
        "volumeMounts": [{"name": "site", "mountPath": "/site", "readOnly": True}],
    }
)


def revision(inputs: dict[str, Any], runtime: LLMRuntimeSpec = BUNDLED) -> Revision:
    parsed = PodInputs.model_validate(inputs)
    return Revision("7d9f8c6b54", 1, 1, parsed, runtime)


CASES = {
    "deployment_minimal": make_deployment(OWNER, revision(MINIMAL), 1),
    "deployment_full": make_deployment(OWNER, revision(FULL), 3),
    "deployment_custom_runtime": make_deployment(OWNER, revision(MINIMAL, CUSTOM), 0),
    "service": make_service(OWNER, "7d9f8c6b54"),
    "service_headless": make_headless_service(OWNER, revision(MINIMAL)),
    "service_account": make_service_account(OWNER),
    "controller_revision": make_controller_revision(OWNER, "7d9f8c6b54", 2, revision_data(revision(FULL))),
}


@pytest.mark.parametrize("name", CASES)
def test_a_child_is_exactly_as_in_its_golden_file(name: str) -> None:
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(yaml.safe_dump(CASES[name], sort_keys=False, width=118))
    assert CASES[name] == yaml.safe_load(path.read_text())


def test_the_hash_ignores_what_changes_no_pod_and_how_it_is_written() -> None:
    plain = revision_hash(PodInputs.model_validate(MINIMAL))
    spelled = {
        **MINIMAL,
        "replicas": 7,
        "rollout": {"scaleDownDelay": 1},
        "engine": {"device": "auto", "prefixCaching": True},
    }
    assert revision_hash(PodInputs.model_validate(spelled)) == plain
    number = {**MINIMAL, "resources": {"cpu": 4}}
    text = {**MINIMAL, "resources": {"cpu": "4"}}
    assert (
        revision_hash(PodInputs.model_validate(number))
        == revision_hash(PodInputs.model_validate(text))
        != plain
    )


@pytest.mark.parametrize("field", sorted(set(PodInputs.model_fields) - {"progress_deadline_seconds"}))
def test_every_input_of_the_pods_changes_the_hash(field: str) -> None:
    alias = PodInputs.model_fields[field].alias or field
    base = PodInputs.model_validate(MINIMAL)
    changed = PodInputs.model_validate({**MINIMAL, alias: FULL[alias]})
    assert revision_hash(changed) != revision_hash(base)


def test_a_record_gives_the_revision_back() -> None:
    inputs = PodInputs.model_validate(FULL)
    record = make_controller_revision(OWNER, revision_hash(inputs), 4, revision_data(revision(FULL, CUSTOM)))
    parsed = parse_revision(record)
    defaulted = frozenset(defaulted_paths(inputs, PodInputs.model_fields))
    assert parsed == Revision(revision_hash(inputs), 4, 1, inputs, CUSTOM, defaulted=defaulted)
    assert full_inputs(parsed.inputs) == record["data"]["inputs"]


def test_a_record_of_another_template_version_is_not_rendered() -> None:
    record = make_controller_revision(
        OWNER, "x", 1, {"templateVersion": 99, "inputs": MINIMAL, "runtime": {"image": "i"}}
    )
    assert parse_revision(record) is None
