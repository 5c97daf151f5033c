import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, so before it is imported

from llmendpoint_server.engine.attention import varlen


def _load(name: str) -> ModuleType:
    # Under --import-mode=importlib a test folder is no package: the helper beside it is loaded by its path.
    spec = importlib.util.spec_from_file_location(
        f"engine_test_{name}", Path(__file__).with_name(f"{name}.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny matmuls gain nothing from a second thread, and beside a busy neighbour each waits for it a time slice."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny model of the given shape, made once."""
    models, made = _load("models"), {}

    def folder(shape: str) -> Path:
        if shape not in made:
            made[shape] = models.save(shape, tmp_path_factory.mktemp(shape))
        return Path(made[shape])

    return folder


@pytest.fixture(scope="session")
def _varlen_double() -> ModuleType:
    return _load("varlen_on_cpu")


@pytest.fixture
def varlen_on_cpu(_varlen_double: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's kernel runs on CUDA only: plain operators stand for it."""
    monkeypatch.setattr(varlen, "varlen_attn", _varlen_double.varlen_attn)
