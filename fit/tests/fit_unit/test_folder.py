"""docs/concepts/sizing.md: a folder is read by its config.json and the headers of its weight files; no weights are loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmendpoint_fit.__main__ import main
from llmendpoint_fit.core.model import model_from_json
from llmendpoint_fit.core.weights import weight_files
from llmendpoint_fit.errors import FitError
from llmendpoint_fit.folder import read_folder

from .configs import LLAMA_8B

DEMO = Path(__file__).parents[3] / "server/src/llmendpoint_server/weights/embedded/demo"


def safetensors(tensors: dict[str, tuple[str, int]], cut: int = 0) -> bytes:
    """A file with tensors of so many bytes each."""
    header, at = {}, 0
    for name, (dtype, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    return len(text).to_bytes(8, "little") + text + b"\0" * (at - cut)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(
        safetensors({"a": ("BF16", 64), "b": ("F32", 32)})
    )
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(safetensors({"c": ("BF16", 6)}))
    (tmp_path / "consolidated.safetensors").write_bytes(safetensors({"a": ("BF16", 70)}))
    return tmp_path


def test_the_demo_model_is_read_from_its_own_files() -> None:
    model = read_folder(DEMO)
    assert model.shape.architecture == "LlamaForCausalLM"
    assert model.stored == pytest.approx(model.shape.parameters * 2, rel=0.01)


def test_bytes_are_summed_by_dtype_and_a_second_copy_is_left_out(folder: Path) -> None:
    assert read_folder(folder).weights == {"BF16": 70, "F32": 32}


def test_an_index_says_which_files_count() -> None:
    index = {"weight_map": {"a": "b.safetensors", "c": "d.safetensors"}}
    assert weight_files(["a.safetensors", "b.safetensors", "d.safetensors"], index) == (
        "b.safetensors",
        "d.safetensors",
    )


def test_files_without_a_header_count_with_their_size(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        path.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"x" * 99)
    assert read_folder(folder).weights == {"BF16": 99}


def test_a_gguf_file_says_that_the_model_is_quantized(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        path.unlink()
    (folder / "model-Q4_0.gguf").write_bytes(b"x" * 99)
    model = read_folder(folder)
    assert (model.weights, model.shape.quantization) == ({"U8": 99}, "gguf")


def test_without_weights_the_parameters_are_counted(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        path.unlink()
    assert read_folder(folder).stored == pytest.approx(16.06e9, rel=0.01)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (safetensors({"a": ("BF16", 64)}, cut=10), "cut short"),
        (b"\x80\x02ctorch", "no safetensors file"),
        (b"", "no safetensors file"),
        ((5).to_bytes(8, "little") + b"[1,2]", "no safetensors file"),
    ],
)
def test_a_file_that_is_cut_or_something_else_is_named(folder: Path, content: bytes, said: str) -> None:
    (folder / "model-00002-of-00002.safetensors").write_bytes(content)
    with pytest.raises(FitError, match=f"model-00002-of-00002.safetensors.*{said}"):
        read_folder(folder)


def test_the_command_prints_and_writes_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "termination-log"
    assert main([str(DEMO), "--termination-log", str(log)]) == 0
    assert log.read_text() == capsys.readouterr().out.strip()
    assert model_from_json(json.loads(log.read_text())) == read_folder(DEMO)
    assert len(log.read_text()) < 4096


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nothing")]) == 3
    assert "no config.json" in json.loads(capsys.readouterr().out)["problem"]
    (tmp_path / "config.json").write_text("{")
    assert main([str(tmp_path)]) == 1
    assert "config.json" in json.loads(capsys.readouterr().out)["problem"]
