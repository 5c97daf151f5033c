"""docs/concepts/weights.md: a folder whose weights are not whole is refused with what is wrong."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.errors import ModelNotFound
from llmendpoint_server.protocol import Configure

NAME = "model.layers.1.self_attn.q_proj.weight"
Tensors = dict[str, torch.Tensor]


def refusal(folder: Path) -> str:
    with pytest.raises(ModelNotFound) as refused:
        load(Configure(str(folder), device="cpu", dtype="float32", max_num_seqs=2, max_batched_tokens=64))
    return str(refused.value)


@pytest.fixture
def folder(model_folder: Callable[[str], Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(model_folder("llama"), tmp_path / "model"))


TENSORS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor | None], str]] = {
    "one lacks": (lambda _: None, f"there are no weights for 1 tensors, such as {NAME}"),
    "one is short": (lambda weight: weight[:8].contiguous(), "other sizes than the configuration says"),
    "one is int8": (lambda weight: weight.to(torch.int8), f"{NAME} is I8"),
    "one is fp8": (lambda weight: weight.to(torch.float8_e4m3fn), f"{NAME} is F8_E4M3"),
}


@pytest.mark.parametrize("what", TENSORS)
def test_a_tensor_that_lacks_or_is_of_another_kind_is_named(what: str, folder: Path) -> None:
    change, words = TENSORS[what]
    path = folder / "model.safetensors"
    tensors = load_file(path)
    changed = change(tensors.pop(NAME))
    save_file(tensors if changed is None else tensors | {NAME: changed}, path)
    assert words in refusal(folder)


FILES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda data: data[: len(data) // 2],
    "noise": lambda _: os.urandom(500),
    "a header of 2^62 bytes": lambda data: struct.pack("<Q", 2**62) + data[8:],
    "a header of 1 GiB": lambda data: struct.pack("<Q", 2**30) + data[8:],
    "a deep header": lambda _: struct.pack("<Q", 100_005) + b'{"a":' + b"[" * 100_000,
    "an offset beyond": lambda data: data.replace(b'"data_offsets":[0,', b'"data_offsets":[9,', 1),
}


@pytest.mark.parametrize("what", FILES)
def test_a_file_that_is_not_whole_is_named(what: str, folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(FILES[what](path.read_bytes()))
    assert "model.safetensors is cut short or no safetensors file" in refusal(folder)
