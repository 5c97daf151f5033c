"""docs/concepts/weights.md: a GGUF file is served dequantized, and a broken one is refused without reading what its header claims."""

from __future__ import annotations

import contextlib
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.formats.gguf import check_file
from llmendpoint_server.engine.formats.groups import BadWeights
from llmendpoint_server.errors import ModelNotFound
from llmendpoint_server.protocol import Configure
from llmendpoint_server.weights.plan import lacking
from server.tests.engine.test_formats import logits_apart

NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
KIND = gguf.GGMLQuantizationType
Blocks = Callable[[np.ndarray[Any, Any]], tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]


def q8_0(weight: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A scale in float16 and 32 numbers of 8 bits, for each 32 inputs; and the weight that they stand for."""
    rows, meant = [], np.zeros_like(weight)
    for y, row in enumerate(weight):
        line = b""
        for x in range(0, len(row), 32):
            scale = np.float16(np.abs(row[x : x + 32]).max() / 127)
            whole = np.clip(np.rint(row[x : x + 32] / np.float32(scale)), -127, 127).astype(np.int8)
            line += scale.tobytes() + whole.tobytes()
            meant[y, x : x + 32] = whole * np.float32(scale)
        rows.append(np.frombuffer(line, np.uint8))
    return np.stack(rows), meant


def q4_0(weight: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A scale in float16 and 16 bytes for each 32 inputs: the first 16 in the low bits, the others in the high ones, plus 8."""
    rows, meant = [], np.zeros_like(weight)
    for y, row in enumerate(weight):
        line = b""
        for x in range(0, len(row), 32):
            scale = np.float16(np.abs(row[x : x + 32]).max() / 7)
            whole = np.clip(np.rint(row[x : x + 32] / np.float32(scale)), -8, 7).astype(int)
            line += scale.tobytes() + bytes(
                int(a + 8) | int(b + 8) << 4 for a, b in zip(whole[:16], whole[16:], strict=True)
            )
            meant[y, x : x + 32] = whole * np.float32(scale)
        rows.append(np.frombuffer(line, np.uint8))
    return np.stack(rows), meant


def f16(weight: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return weight.astype(np.float16), weight.astype(np.float16).astype(np.float32)


STORED: dict[str, tuple[Blocks, gguf.GGMLQuantizationType]] = {
    "Q8_0": (q8_0, KIND.Q8_0),
    "Q4_0": (q4_0, KIND.Q4_0),
    "F16": (f16, KIND.F16),
}


def turned(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """llama.cpp turns neighbouring dimensions together, transformers the two halves of a head."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def turned_back(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    return weight.reshape(heads, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def write(
    source: Path, folder: Path, blocks: Blocks, kind: gguf.GGMLQuantizationType
) -> dict[str, torch.Tensor]:
    """The tiny Llama in a GGUF file; returns the weights that it stands for."""
    folder.mkdir()
    shutil.copy(source / "config.json", folder)
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    writer.add_name("tiny")
    for add, number in (
        (writer.add_block_count, 4), (writer.add_context_length, 512), (writer.add_embedding_length, 64),
        (writer.add_feed_forward_length, 128), (writer.add_head_count, 4), (writer.add_head_count_kv, 2),
        (writer.add_vocab_size, 512), (writer.add_rope_dimension_count, 16),
    ):  # fmt: skip
        add(number)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_token_list([f"t{n}" for n in range(512)])
    meant = {}
    for name, tensor in load_file(source / "model.safetensors").items():
        weight = tensor.float().numpy()
        heads = 4 if "q_proj" in name else 2 if "k_proj" in name else 0
        layer, short = name.removesuffix(".weight"), ""
        if layer.startswith("model.layers."):
            _, _, number, rest = layer.split(".", 3)
            short = f"blk.{number}.{NAMES[rest]}.weight"
        else:
            short = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}[
                layer
            ] + ".weight"
        if weight.ndim == 1:
            writer.add_tensor(short, weight)
            meant[name] = tensor
            continue
        data, stands_for = blocks(turned(weight, heads) if heads else weight)
        writer.add_tensor(short, data, raw_dtype=kind)
        meant[name] = torch.from_numpy(turned_back(stands_for, heads) if heads else stands_for)
    for step in (
        writer.write_header_to_file,
        writer.write_kv_data_to_file,
        writer.write_tensors_to_file,
        writer.close,
    ):
        step()
    return meant


def configure(folder: Path) -> Configure:
    return Configure(str(folder), device="cpu", dtype="float32", max_num_seqs=4, max_batched_tokens=64)


@pytest.mark.parametrize("stored", STORED)
def test_a_gguf_file_has_the_logits_of_the_weights_that_it_stands_for(
    stored: str, model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    meant = write(model_folder("llama"), tmp_path / "gguf", *STORED[stored])
    contents = check_file(tmp_path / "gguf" / "model.gguf")
    assert contents.architecture == "llama"
    assert contents.types == {stored: 30, "F32": 9}
    served, info = load(configure(tmp_path / "gguf"))
    assert info.quantization == "GGUF"
    assert logits_apart(served, model_folder("llama"), meant) < 1e-5


def test_a_gguf_file_of_another_shape_than_its_configuration_is_refused(
    model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    write(model_folder("llama"), tmp_path / "gguf", f16, KIND.F16)
    path = tmp_path / "gguf" / "config.json"
    path.write_text(path.read_text().replace('"intermediate_size": 128', '"intermediate_size": 96'))
    with pytest.raises(ModelNotFound, match="other sizes than the configuration says"):
        load(configure(tmp_path / "gguf"))


def test_several_gguf_files_are_refused_and_a_gguf_file_needs_a_configuration_and_a_tokenizer_beside_it(
    model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    write(model_folder("llama"), tmp_path / "gguf", f16, KIND.F16)
    shutil.copy(tmp_path / "gguf" / "model.gguf", tmp_path / "gguf" / "other.gguf")
    with pytest.raises(ModelNotFound, match="has 2 GGUF files"):
        load(configure(tmp_path / "gguf"))
    assert lacking(["config.json", "tokenizer.json", "a.gguf"]) is None
    assert "tokenizer.json" in (lacking(["config.json", "a.gguf"]) or "")
    assert "config.json" in (lacking(["tokenizer.json", "a.gguf"]) or "")
    assert "single *.gguf but 2" in (lacking(["config.json", "tokenizer.json", "a.gguf", "b.gguf"]) or "")
    assert "*.safetensors or *.gguf" in (lacking(["config.json", "tokenizer.json"]) or "")


@pytest.fixture(scope="module")
def whole(model_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("gguf") / "model"
    write(model_folder("llama"), folder, q8_0, KIND.Q8_0)
    return (folder / "model.gguf").read_bytes()


COUNT = struct.Struct("<Q")
BROKEN = [
    (lambda data: b"", "has 0 bytes, and is no GGUF file"),
    (lambda data: b"GGML" + data[4:], "does not begin with GGUF"),
    (lambda data: data[:4] + struct.pack("<I", 7) + data[8:], "is GGUF of version 7; 2 and 3 are read"),
    (lambda data: data[:8] + COUNT.pack(2**60) + data[16:], f"says that it has {2**60} tensors"),
    (lambda data: data[:16] + COUNT.pack(2**60) + data[24:], f"tensors and {2**60} keys: at most 65536"),
    (lambda data: data[:16] + COUNT.pack(60000) + data[24:], "is not read|not known|ends in its header|bytes; at most"),
    (lambda data: data[:24] + COUNT.pack(2**62) + data[32:], f"has a name of {2**62} bytes; at most 65536"),
    (lambda data: data[:200], "ends in its header: at byte"),
    (lambda data: data[: len(data) // 2], "it is cut short; copy or download it again"),
    (lambda data: data[:8] + COUNT.pack(0) + data[16:], "has no tensors"),
    (lambda data: data.replace(b"general.architecture", b"general.architectura"), r"has no general\.architecture"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "why"), BROKEN, ids=[why for _, why in BROKEN])
def test_a_broken_gguf_file_is_refused_with_what_is_wrong(
    change: Callable[[bytes], bytes], why: str, whole: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(change(whole))
    with pytest.raises(BadWeights, match=why):
        check_file(path)


@settings(max_examples=300, deadline=500)
@given(
    places=st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 255)), max_size=6),
    end=st.integers(0, 12000),
)
def test_whatever_a_gguf_header_says_it_is_read_or_refused_at_once(
    places: list[tuple[int, int]], end: int, whole: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(whole[:end])
    for place, value in places:
        if place < len(data):
            data[place] = value
    path = tmp_path_factory.getbasetemp() / "changed.gguf"
    path.write_bytes(bytes(data) + whole[end:])
    with contextlib.suppress(BadWeights):
        check_file(path)
