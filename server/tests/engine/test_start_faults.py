"""docs/contribute/contracts.md: kernels that do not load are left out and the log says why; what cannot be is a clear error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from structlog.testing import capture_logs

from llmendpoint_server.engine import bring_up, native
from llmendpoint_server.errors import BadConfiguration
from llmendpoint_server.protocol import Configure

CPU = torch.device("cpu")


def extension(load: Callable[[frozenset[str]], tuple[str, Any]]) -> Any:
    return SimpleNamespace(load=load)


def raising(error: Exception) -> Any:
    def load(flags: frozenset[str]) -> tuple[str, Any]:
        raise error

    return extension(load)


@pytest.mark.parametrize(
    ("installed", "cause"),
    [
        (None, "llmendpoint_native is not installed"),
        (raising(ImportError("the processor has none of avx2")), "the processor has none of avx2"),
        (raising(ImportError("amx: invalid ELF header")), "amx: invalid ELF header"),
        (extension(lambda flags: ("amx", SimpleNamespace(LANES=16))), "another version"),
        (extension(lambda flags: ("amx", SimpleNamespace(LAYER=216))), "layers of 216 bytes instead of 280"),
        (
            extension(
                lambda flags: ("avx2", SimpleNamespace(LANES=16, INPUTS=32, BF16=0, LAYER=native.LAYER_BYTES))
            ),
            "avx2 does not compute in bfloat16",
        ),
    ],
    ids=["missing", "processor", "system", "version", "layers", "dtype"],
)
def test_kernels_that_do_not_fit_are_left_out_and_the_log_says_why(
    installed: Any, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "llmendpoint_native", installed)
    with capture_logs() as logs:
        assert native.find(CPU, torch.bfloat16) is None
    [line] = logs
    assert line["log_level"] == "warning"
    assert line["event"].startswith("without CPU kernels")
    assert cause in line["cause"]


def test_kernels_that_fit_are_named_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = SimpleNamespace(LANES=16, INPUTS=32, BF16=1, LAYER=native.LAYER_BYTES)
    monkeypatch.setattr(native, "llmendpoint_native", extension(lambda flags: ("avx512_bf16", functions)))
    with capture_logs() as logs:
        assert native.find(CPU, torch.bfloat16) is not None
    assert [(line["event"], line["variant"]) for line in logs] == [("CPU kernels", "avx512_bf16")]


def test_int8_where_the_kernels_are_not_is_an_error_that_says_what_to_do(
    model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "llmendpoint_native", None)
    configure = Configure(str(model_folder("llama")), device="cpu", dtype="float32", quantization="int8")
    with pytest.raises(BadConfiguration, match=r"int8, which needs the CPU kernels.*Leave it out") as caught:
        bring_up.load(configure)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("length", [None, 8])
def test_a_budget_below_one_page_says_what_is_needed_and_not_to_serve_no_tokens(
    length: int | None, model_folder: Callable[[str], Path]
) -> None:
    configure = Configure(
        str(model_folder("llama")), device="cpu", dtype="float32", kv_cache_memory=100, max_model_len=length
    )
    with pytest.raises(
        BadConfiguration, match="and there are 100: set --kv-cache-memory to at least"
    ) as caught:
        bring_up.load(configure)
    assert "--max-model-len" not in str(caught.value)
