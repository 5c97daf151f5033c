"""docs/concepts/adapters.md: an adapter that this engine would compute wrongly is refused, and the message names what is at fault."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig
from safetensors.torch import save_file

from llmendpoint_server.engine.adapters.files import CONFIG, WEIGHTS, Unfit, read_adapter
from server.tests.engine import lora

LINEARS = {"model.layers.0.q_proj": (8, 6), "model.layers.0.v_proj": (8, 4)}
KEY = "base_model.model.model.layers.0.q_proj.lora_{}.weight"
TENSORS = {KEY.format("A"): torch.ones(2, 8), KEY.format("B"): torch.ones(6, 2)}


def write(folder: Path, tensors: dict[str, torch.Tensor] | None = None, **config: Any) -> Path:
    (folder / CONFIG).write_text(json.dumps({"peft_type": "LORA", "lora_alpha": 4, "r": 2, **config}))
    save_file({name: one.contiguous() for name, one in (tensors or TENSORS).items()}, folder / WEIGHTS)
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(Unfit) as caught:
        read_adapter(folder, LINEARS, 4)
    return str(caught.value)


def test_an_adapter_is_read_with_its_scale(tmp_path: Path) -> None:
    found = read_adapter(write(tmp_path), LINEARS, 4)
    assert list(found) == ["model.layers.0.q_proj"]
    pair = found["model.layers.0.q_proj"]
    assert (pair.a.shape, pair.b.shape, pair.scale) == ((2, 8), (6, 2), 2.0)
    assert (
        read_adapter(write(tmp_path, use_rslora=True), LINEARS, 4)["model.layers.0.q_proj"].scale
        == 4 / 2**0.5
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_each_format_of_numbers_is_read(tmp_path: Path, dtype: torch.dtype) -> None:
    found = read_adapter(write(tmp_path, {name: one.to(dtype) for name, one in TENSORS.items()}), LINEARS, 4)
    assert found["model.layers.0.q_proj"].a.dtype is dtype


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"task_type": "SEQ_CLS"}, "task_type is 'SEQ_CLS'"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"use_dora": True}, "use_dora is set"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save is set"),
        ({"lora_bias": True}, "lora_bias is set"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out is set"),
        ({"alpha_pattern": {"q_proj": 3}}, "alpha_pattern is set"),
        ({"target_parameters": ["experts.w1"]}, "target_parameters is set"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices is set"),
        ({"layer_replication": [[0, 1]]}, "layer_replication is set"),
        ({"a_field_of_next_year": 1}, "a_field_of_next_year is set"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights is 'pissa_niter_4'"),
        ({"lora_alpha": "x"}, "lora_alpha is 'x'"),
        ({"lora_alpha": float("nan")}, "lora_alpha is nan"),
        ({"lora_alpha": None}, "lora_alpha is None"),
    ],
)
def test_a_kind_of_adapter_that_is_not_served_is_refused_by_its_field(
    tmp_path: Path, config: dict[str, Any], named: str
) -> None:
    assert named in refusal(write(tmp_path, **config))


def test_what_peft_writes_by_default_sets_no_field_that_is_refused(tmp_path: Path) -> None:
    LoraConfig(r=2, lora_alpha=4, task_type="CAUSAL_LM", target_modules=["q_proj"]).save_pretrained(
        str(tmp_path)
    )
    save_file(TENSORS, tmp_path / WEIGHTS)
    assert read_adapter(tmp_path, LINEARS, 4)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({KEY.format("A"): torch.ones(2, 9)}, "another base model"),
        ({KEY.format("B"): torch.ones(7, 2)}, "model.layers.0.q_proj: lora_A is [2, 8] and lora_B [7, 2]"),
        ({KEY.format("A"): torch.ones(5, 8), KEY.format("B"): torch.ones(6, 5)}, "its rank is 5"),
        ({KEY.format("A"): torch.ones(8)}, "its rank is 0"),
        ({KEY.format("A"): torch.full((2, 8), float("nan"))}, "not a number"),
        ({KEY.format("A"): torch.ones(2, 8, dtype=torch.int32)}, "its dtype is 'I32'"),
        ({"base_model.model.lm_head.lora_A.weight": torch.ones(2, 8)}, "lm_head"),
        ({"base_model.model.model.embed_tokens.lora_embedding_A": torch.ones(2, 8)}, "embeddings"),
        ({KEY.format("A").replace("A.weight", "magnitude_vector"): torch.ones(6)}, "DoRA"),
        ({"base_model.model.model.layers.9.q_proj.lora_A.weight": torch.ones(2, 8)}, "model.layers.9.q_proj: this model has no"),
        ({"surprise": torch.ones(1)}, "surprise"),
    ],
)  # fmt: skip
def test_a_tensor_that_does_not_fit_is_refused_by_its_name(
    tmp_path: Path, change: dict[str, torch.Tensor], named: str
) -> None:
    assert named in refusal(write(tmp_path, {**TENSORS, **change}))


def test_one_tensor_of_a_pair_alone_is_refused(tmp_path: Path) -> None:
    assert "lora_B.weight is missing" in refusal(write(tmp_path, {KEY.format("A"): torch.ones(2, 8)}))


def test_an_adapter_of_another_model_is_refused(model_folder: Callable[[str], Path], tmp_path: Path) -> None:
    folder = lora.save(model_folder("llama"), tmp_path, r=2, target_modules=["q_proj"])
    assert "this model has no linear layer of this name" in refusal(folder)


def test_a_file_that_is_larger_than_any_adapter_of_the_model_is_not_read(tmp_path: Path) -> None:
    write(tmp_path)
    with (tmp_path / WEIGHTS).open("r+b") as file:
        file.truncate(2**33)
    assert "8589934592 bytes" in refusal(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"peft_type": "LORA"}'])
def test_a_configuration_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    write(tmp_path)
    (tmp_path / CONFIG).write_bytes(content)
    assert CONFIG in refusal(tmp_path)


def test_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    assert CONFIG in refusal(tmp_path)
    (write(tmp_path) / WEIGHTS).unlink()
    assert WEIGHTS in refusal(tmp_path)


def test_tensors_that_lie_over_one_another_are_refused_before_any_is_copied(tmp_path: Path) -> None:
    """A name costs a few bytes, and what lies unevenly is copied: many names of the same bytes would take all memory."""
    write(tmp_path)
    entry = {"dtype": "F32", "shape": [4000], "data_offsets": [1, 16_001]}
    header = json.dumps({f"t{number}": entry for number in range(5000)}).encode()
    (tmp_path / WEIGHTS).write_bytes(len(header).to_bytes(8, "little") + header + bytes(16_001))
    tracemalloc.start()
    try:
        assert "over another tensor" in refusal(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_change_of_the_bytes_does_more_than_refuse_or_give_tensors_of_the_right_shape(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = write(tmp_path_factory.mktemp("adapter"))
    content = bytearray((folder / WEIGHTS).read_bytes())
    header = int.from_bytes(content[:8], "little") + 8
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, header - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3) | st.sampled_from([b"9", b"-", b"0", b"e", b"]"]))  # fmt: skip
    (folder / WEIGHTS).write_bytes(bytes(content))
    try:
        found = read_adapter(folder, LINEARS, 4)
    except Unfit:
        return
    for name, pair in found.items():
        inputs, outputs = LINEARS[name]
        assert (pair.a.shape[1], pair.b.shape[0], len(pair.a)) == (inputs, outputs, pair.b.shape[1])
