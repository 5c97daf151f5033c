"""docs/concepts/architecture.md: what cannot be served correctly is refused at load, with the cause and with what can be."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from llmendpoint_server.engine import bring_up, measuring
from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.loading import choose_dtype, open_folder, saved_dtype
from llmendpoint_server.errors import BadConfiguration, ModelNotFound, UnsupportedArchitecture
from llmendpoint_server.protocol import Configure


def configure(folder: Path | str, **settings: object) -> Configure:
    return Configure(**{"model_path": str(folder), "device": "cpu", "dtype": "float32", **settings})  # type: ignore[arg-type]  # names are checked at run time


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ("falcon", "'falcon' cannot be served: .*interface"),
        ("mamba", "'mamba' cannot be served: .*interface"),
        ("llama4_text", "it has layers of the kind chunked_attention"),
        ("longrope", r"its rotary embedding \(longrope\) changes with the longest sequence"),
    ],
)
def test_an_architecture_that_would_answer_nonsense_is_refused_with_what_works(
    shape: str, why: str, model_folder: Callable[[str], Path]
) -> None:
    with pytest.raises(UnsupportedArchitecture, match=why) as caught:
        load(configure(model_folder(shape)))
    assert "What can: llama, qwen2" in str(caught.value)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("saved", "has_bf16", "chosen"),
    [
        (torch.bfloat16, True, torch.bfloat16),
        (torch.float32, True, torch.bfloat16),
        (torch.float16, True, torch.float16),
        (torch.bfloat16, False, torch.float16),
        (None, False, torch.float16),
    ],
)
def test_an_accelerator_computes_in_two_bytes_and_in_what_the_model_was_saved_in_where_it_can(
    saved: torch.dtype | None, has_bf16: bool, chosen: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bf16)
    assert choose_dtype("auto", torch.device("cuda"), saved) is chosen
    assert choose_dtype("float32", torch.device("cuda"), saved) is torch.float32


def test_what_a_model_was_saved_in_is_read_from_its_config(
    model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(model_folder("llama"), tmp_path / "half"))
    config = json.loads((folder / "config.json").read_text())
    for name in ("dtype", "torch_dtype"):
        rest = {key: value for key, value in config.items() if key not in ("dtype", "torch_dtype")}
        (folder / "config.json").write_text(json.dumps(rest | {name: "float16"}))
        assert saved_dtype(open_folder(str(folder)).config) is torch.float16


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=f"There is no folder {tmp_path / 'nothing'}") as caught:
        load(configure(tmp_path / "nothing"))
    assert caught.value.exit_code == 3


def test_a_folder_without_weights_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelNotFound, match=r"has no \*\.safetensors"):
        load(configure(tmp_path))


def test_a_model_type_that_transformers_does_not_know_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "nobody"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelNotFound, match=r"config\.json in .* cannot be used"):
        load(configure(tmp_path))


def test_a_length_beyond_the_model_is_refused_with_both_numbers_before_a_step_of_that_length_runs(
    model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "measure", None)
    monkeypatch.setattr(bring_up, "_free_memory", None)
    with pytest.raises(BadConfiguration, match="max-model-len is 4096; this model was made for at most 512"):
        load(configure(model_folder("llama"), max_model_len=4096))


def test_a_cache_too_small_for_the_wanted_length_is_refused_with_what_would_fit(
    model_folder: Callable[[str], Path],
) -> None:
    with pytest.raises(BadConfiguration, match="at most 64, or --kv-cache-memory to at least 131072"):
        load(configure(model_folder("llama"), max_model_len=128, kv_cache_memory=4 * 16384))


def test_the_length_follows_a_small_cache_where_none_is_wanted(model_folder: Callable[[str], Path]) -> None:
    _, info = load(configure(model_folder("llama"), kv_cache_memory=4 * 16384))
    assert (info.kv_pages, info.max_model_len) == (4, 64)
