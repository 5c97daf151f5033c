"""docs/contribute/contracts.md: what `kubectl llm rollout undo` writes makes the spec ask for the recorded revision alone."""

from __future__ import annotations

from typing import Any

import pytest

from llmendpoint_cli.core.respec import INPUTS, KEPT, spec_patch
from llmendpoint_operator.api import LLMEndpointSpec, PodInputs
from llmendpoint_operator.core.pods.agreement import agrees, current_hash
from llmendpoint_operator.core.pods.revision import NOT_IN_PODS, Revision, full_inputs
from tests.merge_patch import merged

from ..fake_cluster import RUNTIME

ACCELERATOR = {"kind": "nvidia.com/gpu", "count": 2, "product": "l4"}
SPECS: list[dict[str, Any]] = [
    {"model": {"source": "embedded://demo"}},
    {"model": {"source": "hf://acme/a", "servedNames": ["b", "a"], "cache": {"claimName": "models", "scope": "Node"}}},
    {"model": {"source": "s3://a/b", "credentials": {"secretName": "s"}}, "engine": {"maxNumSeqs": 4, "device": "cuda"},
     "resources": {"accelerator": ACCELERATOR, "tolerations": [{"key": "a", "operator": "Exists"}]}},
    {"model": {"source": "pvc://a/b"}, "runtime": {"image": "i:1", "args": ["--a"], "env": [{"name": "A", "value": "1"}]},
     "resources": {"nodeSelector": {"a.example/b": "c"}}, "terminationGracePeriodSeconds": 90, "replicas": 3},
]  # fmt: skip


def test_the_fields_that_a_revision_records_are_those_that_are_written_back() -> None:
    recorded = {str(field.alias) for field in PodInputs.model_fields.values()}
    assert set(INPUTS) | KEPT == recorded - NOT_IN_PODS | {p for p in NOT_IN_PODS if "." in p}


@pytest.mark.parametrize("now", SPECS)
@pytest.mark.parametrize("then", SPECS)
def test_a_spec_is_brought_back_to_any_recorded_revision(now: dict[str, Any], then: dict[str, Any]) -> None:
    before, after = LLMEndpointSpec.model_validate(then), LLMEndpointSpec.model_validate(now)
    kept = Revision("kept", 1, 3, before, RUNTIME)
    live = after.model_dump(mode="json", by_alias=True, exclude_none=True)
    patch = spec_patch(live, full_inputs(before))
    spec = LLMEndpointSpec.model_validate(merged(live, patch))
    assert agrees(spec, kept)
    assert current_hash(spec, {"kept": kept}) == "kept"
    assert spec.replicas == after.replicas
    assert (patch == {}) == (now == then)
