"""docs/concepts/sizing.md: the operator writes the verdict as the condition CapacityFits; a Job reads a model on a claim."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmendpoint_fit.core.config import parse_config
from llmendpoint_fit.core.devices import Device
from llmendpoint_fit.core.model import Attention, Model, estimated, model_as_json
from llmendpoint_fit.core.verdict import Outcome, quantized
from llmendpoint_operator.api.capacity import KnownModel
from llmendpoint_operator.core.capacity.findings import Finding, hub_question
from llmendpoint_operator.core.capacity.findings import on_claim as where_on_claim
from llmendpoint_operator.core.endpoint.plan import Apply, Delete
from llmendpoint_operator.core.endpoint.steps import events_of
from llmendpoint_operator.core.models.identity import Identity
from llmendpoint_operator.core.pods.revision import Revision, revision_hash

from ..fake_cluster import RUNTIME, FakeCluster, make_spec

ROOT = Path(__file__).parents[4]
GPU = "nvidia.com/gpu"
L4, T4 = Device(23_034 * 2**20, "NVIDIA-L4"), Device(15_360 * 2**20, "Tesla-T4")
EIGHT = estimated(parse_config({
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 32, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}))  # fmt: skip


def spec(
    source: str = "pvc://models/chat",
    engine: dict[str, Any] | None = None,
    runtime: dict[str, Any] | None = None,
    **accelerator: Any,
) -> Any:
    return make_spec(
        model={"source": source}, engine={"maxModelLen": 8192, "maxNumSeqs": 4, **(engine or {})},
        resources={"accelerator": {"kind": GPU, **accelerator}}, runtime=runtime or {},
    )  # fmt: skip


def on_claim(
    model: Model = EIGHT, devices: tuple[Device | None, ...] | None = (L4,), **fields: Any
) -> FakeCluster:
    """An endpoint of which the Job has read the model."""
    cluster = FakeCluster(spec(**fields), devices=devices)
    cluster.settle()
    cluster.inspection_pods = (ended(json.dumps(model_as_json(model))),)
    cluster.settle()
    return cluster


def ended(message: str) -> dict[str, Any]:
    state = {"terminated": {"exitCode": 0, "message": message}}
    return {"metadata": {"name": "i"}, "status": {"containerStatuses": [{"name": "inspect", "state": state}]}}


def verdict(cluster: FakeCluster) -> str:
    found = cluster.condition("CapacityFits")
    return f"{found['status']}/{found['reason']}" if found else "none"


def test_an_endpoint_without_accelerators_has_no_such_condition() -> None:
    cluster = FakeCluster(make_spec())
    cluster.settle()
    assert verdict(cluster) == "none"
    assert "capacity" not in cluster.status


def test_a_job_reads_a_model_on_a_claim_and_is_gone_once_it_has() -> None:
    cluster = FakeCluster(spec(), devices=(L4,))
    cluster.settle()
    assert verdict(cluster) == "Unknown/ModelBeingRead"
    job = cluster.of_kind("Job")["chat-inspect"]
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "operator:1"
    assert container["args"][0] == "/models/models/chat"
    cluster.inspection_pods = (ended(json.dumps(model_as_json(EIGHT))),)
    cluster.settle()
    assert verdict(cluster) == "True/Fits"
    assert cluster.of_kind("Job") == {}
    cluster.inspection_pods = ()
    assert cluster.settle() == 0
    assert verdict(cluster) == "True/Fits"


def test_the_jobs_pod_is_selected_by_no_service() -> None:
    cluster = FakeCluster(spec())
    cluster.settle()
    marks = cluster.of_kind("Job")["chat-inspect"]["spec"]["template"]["metadata"]["labels"]
    for service in cluster.of_kind("Service").values():
        assert not service["spec"]["selector"].items() <= marks.items()


def test_another_revision_is_read_anew_after_the_job_of_the_one_before() -> None:
    cluster = FakeCluster(spec())
    cluster.settle()
    first = cluster.of_kind("Job")["chat-inspect"]
    cluster.edit(spec(source="pvc://models/other"))
    kinds = [type(step) for step in cluster.reconcile().steps if _about_job(step)]
    assert kinds == [Delete]
    cluster.settle()
    assert cluster.of_kind("Job")["chat-inspect"] != first


def _about_job(step: Any) -> bool:
    return (isinstance(step, Delete) and step.kind == "Job") or (
        isinstance(step, Apply) and step.manifest["kind"] == "Job"
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "True/Fits"),
        ({"engine": {"maxNumSeqs": 64}}, "True/FitsFewerSequences"),
        ({"engine": {"maxModelLen": 131072}}, "False/ContextTooLong"),
        ({"engine": {"kvCacheMemory": "20Gi"}}, "False/KVCacheTooLarge"),
        ({"engine": {"dtype": "float32"}}, "False/WeightsTooLarge"),
        ({"product": "t4"}, "False/WeightsTooLarge"),
        ({"memory": "80Gi"}, "True/Fits"),
        ({"product": "X9"}, "Unknown/AcceleratorUnknown"),
        ({"product": "X9", "memory": "80Gi"}, "True/Fits"),
    ],
)
def test_the_verdict_for_an_8b_model_on_an_l4(change: dict[str, Any], expected: str) -> None:
    assert verdict(on_claim(**change)) == expected


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ((), "Unknown/AcceleratorUnknown"),
        ((None,), "Unknown/AcceleratorUnknown"),
        ((T4,), "False/WeightsTooLarge"),
        ((T4, L4), "Unknown/DependsOnNode"),
        ((L4, None), "Unknown/DependsOnNode"),
        ((L4, Device(80 * 2**30, "A100")), "True/Fits"),
        (None, "Unknown/AcceleratorUnknown"),
    ],
)
def test_what_the_nodes_have_decides(devices: tuple[Device | None, ...] | None, expected: str) -> None:
    assert verdict(on_claim(devices=devices)) == expected


def test_a_draft_model_is_said_to_be_uncounted() -> None:
    cluster = on_claim(runtime={"args": ["--draft-model=hf://org/small"]})
    assert verdict(cluster) == "True/Fits"
    assert "the model of --draft-model is not counted" in cluster.condition("CapacityFits")["message"]


def test_an_unknown_accelerator_is_told_what_to_write() -> None:
    message = on_claim(devices=()).condition("CapacityFits")["message"]
    assert "resources.accelerator.product (one of t4," in message
    assert "resources.accelerator.memory (such as 24Gi)" in message


def test_what_would_fit_is_said_and_an_event_tells_it_once() -> None:
    cluster = FakeCluster(spec(), devices=(T4,))
    cluster.settle()
    cluster.inspection_pods = (ended(json.dumps(model_as_json(EIGHT))),)
    told = [event for step in cluster.reconcile().steps for event in events_of(step)]
    assert [event.reason for event in told] == ["CapacityTooSmall"]
    message = cluster.condition("CapacityFits")["message"]
    assert "weights 16.1 GB + overhead 3.2 GB of 16.1 GB" in message
    assert "what would fit, each by itself: NVIDIA A10 (24.1 GB)" in message
    assert "tensor parallelism" not in message  # this engine is not told how many accelerators there are
    assert "quantized" not in message  # it loads no such checkpoint
    assert cluster.settle() <= 1
    assert cluster.settle() == 0


def test_a_quantized_checkpoint_takes_the_memory_of_sixteen_bits_in_the_bundled_engine() -> None:
    packed = quantized(EIGHT, 4)
    awq = replace(packed, shape=replace(packed.shape, quantization="awq 4 bits"))
    assert verdict(on_claim(awq, devices=(T4,))) == "False/WeightsTooLarge"
    assert verdict(on_claim(awq, devices=(T4,), runtime={"name": "vllm"})).startswith("True/")


def test_a_quantization_that_the_bundled_engine_does_not_read_fits_no_accelerator() -> None:
    packed = quantized(EIGHT, 4)
    cluster = on_claim(packed, devices=())
    assert verdict(cluster) == "False/QuantizedWeights"
    assert (
        "take another runtime, a checkpoint of GPTQ, AWQ, compressed-tensors, FP8 or GGUF"
        in cluster.condition("CapacityFits")["message"]
    )
    assert verdict(on_claim(packed, runtime={"name": "vllm"})) == "True/Fits"


def test_what_a_latent_expands_to_is_kept_in_the_status() -> None:
    shape = replace(EIGHT.shape, attention=(Attention(61, 576, 1, expanded=40_960),))
    whole = model_as_json(Model(shape, EIGHT.weights))
    assert KnownModel.model_validate(whole).model_dump(mode="json", by_alias=True, exclude_none=True) == whole


def test_a_restart_that_has_not_read_the_nodes_yet_changes_nothing() -> None:
    cluster = on_claim()
    before = cluster.condition("CapacityFits")
    cluster.devices = None
    assert cluster.settle() == 0
    assert cluster.condition("CapacityFits") == before


def test_nodes_that_come_change_the_verdict() -> None:
    cluster = on_claim(devices=(T4,))
    cluster.devices = (L4,)
    cluster.settle()
    assert verdict(cluster) == "True/Fits"


def test_an_engine_that_does_not_divide_a_model_uses_one_of_two() -> None:
    cluster = on_claim(devices=(T4,), count=2)
    assert verdict(cluster) == "False/WeightsTooLarge"
    assert "uses one of the 2 accelerators" in cluster.condition("CapacityFits")["message"]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ('{"problem": "model.safetensors is cut short"}', "cut short"),
        ("Traceback", "Traceback"),
        ("[]", "ended with"),
    ],
)
def test_a_model_that_cannot_be_read_is_unknown_with_the_cause(message: str, said: str) -> None:
    cluster = FakeCluster(spec(), devices=(L4,))
    cluster.settle()
    cluster.inspection_pods = (ended(message),)
    cluster.settle()
    assert verdict(cluster) == "Unknown/ModelNotReadable"
    assert said in cluster.condition("CapacityFits")["message"]
    assert cluster.of_kind("Job") == {}


def test_a_job_that_never_ran_ends_in_unknown() -> None:
    cluster = FakeCluster(spec())
    cluster.settle()
    failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "…"}
    cluster.objects["Job", "chat-inspect"]["status"] = {"conditions": [failed]}
    cluster.settle()
    assert verdict(cluster) == "Unknown/ModelNotReadable"
    assert cluster.of_kind("Job") == {}


def test_a_job_that_is_refused_or_has_no_image_stops_nothing() -> None:
    for fields in ({"inspection_refused": "quota"}, {"inspection_image": None}):
        cluster = FakeCluster(spec(), **fields)  # type: ignore[arg-type]  # two fields of different kinds
        cluster.settle()
        assert verdict(cluster) == "Unknown/ModelNotReadable"
        assert cluster.of_kind("Deployment")


def test_a_model_inside_the_image_is_not_guessed() -> None:
    cluster = FakeCluster(spec(source="embedded://demo"), devices=(L4,))
    cluster.settle()
    assert verdict(cluster) == "Unknown/ModelNotReadable"
    assert "kubectl llm plan" in cluster.condition("CapacityFits")["message"]


def test_the_hub_is_asked_once_the_commit_is_known_and_until_it_stands_in_the_status() -> None:
    wanted = spec(source="hf://acme/demo")
    cluster = FakeCluster(wanted, devices=(L4,), identities={revision_hash(wanted): Identity("c" * 40)})
    cluster.settle()
    assert verdict(cluster) == "Unknown/ModelBeingRead"
    revision = cluster.snapshot().revisions[cluster.target]
    question = hub_question(revision, cluster.status)
    assert question is not None
    assert (question.model.repository, question.commit) == ("acme/demo", "c" * 40)
    cluster.finding = Finding(EIGHT)
    cluster.settle()
    assert verdict(cluster) == "True/Fits"
    assert hub_question(revision, cluster.status) is None


def test_what_was_downloaded_to_a_shared_cache_is_read_there() -> None:
    cached = make_spec(
        model={"source": "hf://acme/demo", "cache": {"claimName": "models"}}, resources={"accelerator": {"kind": GPU}}
    )  # fmt: skip
    revision = Revision("a" * 10, 1, 1, cached, RUNTIME, commit="c" * 40)
    where = where_on_claim(revision)
    assert where is not None
    assert (where.claim, where.mounted) == ("models", "/models/cache")
    assert where.folder.startswith("/models/cache/")
    assert hub_question(revision, {}) is None


def test_a_model_that_needs_credentials_is_not_asked_for_by_the_operator() -> None:
    source = {"source": "hf://acme/demo", "credentials": {"secretName": "hub"}}
    closed = make_spec(model=source, resources={"accelerator": {"kind": GPU}})
    assert hub_question(Revision("a" * 10, 1, 1, closed, RUNTIME, commit="c" * 40), {}) is None


def test_naming_the_product_or_the_memory_makes_no_new_revision() -> None:
    assert revision_hash(spec()) == revision_hash(spec(product="l4")) == revision_hash(spec(memory="24Gi"))
    assert revision_hash(spec()) != revision_hash(spec(count=2))


def test_every_reason_and_event_is_documented() -> None:
    text = (ROOT / "docs/operate/troubleshooting.md").read_text()
    source = (ROOT / "operator/src/llmendpoint_operator/core/capacity/outlook.py").read_text()
    assert all(f"`{outcome.value}`" in text for outcome in Outcome)
    for reason in ("ModelBeingRead", "ModelNotReadable", "AcceleratorUnknown", "DependsOnNode", "CapacityTooSmall"):  # fmt: skip
        assert f'"{reason}"' in source
        assert f"`{reason}`" in text
