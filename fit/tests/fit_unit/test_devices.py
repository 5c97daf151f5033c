"""docs/concepts/sizing.md: what an accelerator is, by the first that says it: the spec, the resource's name, or the nodes' labels."""

from __future__ import annotations

from typing import Any

import pytest

from llmendpoint_fit.core.devices import Device, Wanted, labelled, on_nodes, parse_wanted, said
from llmendpoint_fit.core.engines import parse_load, splits
from llmendpoint_fit.core.memory import Load
from llmendpoint_fit.core.quantity import parse_bytes

MIB, GIB = 2**20, 2**30
GPU = "nvidia.com/gpu"
L4 = {"nvidia.com/gpu.product": "NVIDIA-L4", "nvidia.com/gpu.memory": "23034"}
MIG, GKE = "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", {"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}
T4 = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "15360"}


def node(labels: dict[str, str], count: int = 1, kind: str = GPU) -> dict[str, Any]:
    return {"metadata": {"labels": labels}, "status": {"allocatable": {kind: str(count), "cpu": "4"}}}


@pytest.mark.parametrize(
    ("labels", "device"),
    [
        (L4, Device(23034 * MIB, "NVIDIA-L4")),
        ({"nvidia.com/gpu.product": "NVIDIA-L4"}, Device(23034 * MIB, "NVIDIA-L4")),
        ({"nvidia.com/gpu.product": "NVIDIA-X1"}, None),
        ({"nvidia.com/gpu.product": "NVIDIA-X1", "nvidia.com/gpu.memory": "1000"}, Device(1000 * MIB, "NVIDIA-X1")),
        ({**L4, "nvidia.com/gpu.product": "NVIDIA-L4-SHARED"}, None),
        ({"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM", "amd.com/gpu.vram": "192G"}, Device(192 * GIB, "AMD_Instinct_MI300X_OAM")),
        ({"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM", "amd.com/gpu.vram": "196608"}, Device(192 * GIB, "AMD_Instinct_MI300X_OAM")),
        ({"cloud.google.com/gke-accelerator": "nvidia-l4"}, Device(23034 * MIB, "nvidia-l4")),
        ({"karpenter.k8s.aws/instance-gpu-name": "a100", "karpenter.k8s.aws/instance-gpu-memory": "81920"}, Device(81920 * MIB, "a100")),
        ({"nvidia.com/gpu.product": "NVIDIA-L4", "nvidia.com/gpu.memory": "much"}, Device(23034 * MIB, "NVIDIA-L4")),
        ({"nvidia.com/gpu.product": MIG}, Device(5 * 10**9, MIG)),
        ({"nvidia.com/gpu.product": MIG, "nvidia.com/gpu.memory": "4864"}, Device(4864 * MIB, MIG)),
        (GKE, Device(40960 * MIB, "nvidia-tesla-a100")),
        ({**GKE, "cloud.google.com/gke-gpu-partition-size": "1g.5gb"}, Device(5 * 10**9, "nvidia-tesla-a100-MIG-1g.5gb")),
        ({"cloud.google.com/gke-gpu-partition-size": "3g.20gb"}, Device(20 * 10**9, "gpu-MIG-3g.20gb")),
        ({**GKE, "cloud.google.com/gke-gpu-partition-size": "half"}, None),
        ({"kubernetes.io/hostname": "a"}, None),
    ],
)  # fmt: skip
def test_labels_of_nodes(labels: dict[str, str], device: Device | None) -> None:
    assert labelled(labels) == device


@pytest.mark.parametrize(
    ("wanted", "device"),
    [
        (Wanted(GPU, memory=24 * GIB), Device(24 * GIB, GPU)),
        (Wanted(GPU, memory=24 * GIB, product="L4"), Device(24 * GIB, "L4")),
        (Wanted(GPU, product="L4"), Device(23034 * MIB, "L4")),
        (Wanted(GPU, product="X9"), None),
        (Wanted(GPU, product=MIG), Device(5 * 10**9, MIG)),
        (Wanted(GPU, selector={"nvidia.com/gpu.product": MIG}), Device(5 * 10**9, MIG)),
        (Wanted(GPU, selector={**GKE, "cloud.google.com/gke-gpu-partition-size": "1g.5gb"}), Device(5 * 10**9, "nvidia-tesla-a100-MIG-1g.5gb")),
        (Wanted("nvidia.com/mig-1g.10gb"), Device(10**10, "nvidia.com/mig-1g.10gb")),
        (Wanted(GPU, selector={"nvidia.com/gpu.product": "Tesla-T4"}), Device(15360 * MIB, "Tesla-T4")),
        (Wanted(GPU, selector={"zone": "a"}), None),
        (Wanted(GPU), None),
    ],
)  # fmt: skip
def test_what_the_spec_itself_says(wanted: Wanted, device: Device | None) -> None:
    assert said(wanted) == device


def test_nodes_count_when_they_have_the_kind_and_the_selected_labels() -> None:
    nodes = [
        node(L4 | {"pool": "a"}),
        node(T4),
        node(T4),
        node(L4, kind="amd.com/gpu"),
        node({"pool": "a"}, count=0),
    ]
    assert on_nodes(Wanted(GPU), nodes) == (labelled(T4), labelled(L4))
    assert on_nodes(Wanted(GPU, selector={"pool": "a"}), nodes) == (labelled(L4),)
    assert on_nodes(Wanted(GPU, selector={"pool": "b"}), nodes) == ()


def test_a_node_that_does_not_say_is_told_apart_from_none() -> None:
    assert on_nodes(Wanted(GPU), [node({}), node(L4)]) == (labelled(L4), None)
    assert on_nodes(Wanted("nvidia.com/mig-1g.10gb"), [node(L4, kind="nvidia.com/mig-1g.10gb")]) == (
        Device(10**10, "nvidia.com/mig-1g.10gb"),
    )


def test_a_spec_is_read_as_it_stands_in_a_manifest() -> None:
    spec = {
        "resources": {"accelerator": {"kind": GPU, "count": 2, "memory": "24Gi"}, "nodeSelector": {"pool": "a"}},
        "engine": {"maxModelLen": 8192, "maxNumSeqs": 16, "kvCacheMemory": "2Gi", "dtype": "float16"},
        "runtime": {"name": "vllm"},
    }  # fmt: skip
    assert parse_wanted(spec) == Wanted(GPU, 2, None, 24 * GIB, {"pool": "a"})
    load = parse_load(spec)
    assert load == Load(8192, 16, "float16", None, 2 * GIB, frees_windows=True, keeps_latents=True)
    assert parse_wanted({}) is None
    assert parse_load({"runtime": {"name": "vllm"}}).dtype is None
    assert (parse_load({}).frees_windows, parse_load({}).keeps_latents) == (False, False)


@pytest.mark.parametrize(
    ("text", "size"), [("24Gi", 24 * GIB), ("80G", 80 * 10**9), ("1.5Gi", 3 * 2**29), (7, 7)]
)
def test_quantities(text: str | int, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "24GB", "-1", "1e9", "Gi"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="24Gi"):
        parse_bytes(text)


def test_an_engine_divides_a_model_when_it_is_told_over_how_many() -> None:
    assert splits(["--tensor-parallel-size=$(accelerator.count)"])
    assert splits(["--tp-size=2"])
    assert not splits(["--model=x", "--top-k=1"])
