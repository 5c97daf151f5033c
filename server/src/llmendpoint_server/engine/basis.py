"""Which model is loaded, on which device and in which dtype: what every rank finds by the same settings."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from llmendpoint_server.engine import gate, loading, native
from llmendpoint_server.engine.formats.layer import Format
from llmendpoint_server.engine.loading import Folder
from llmendpoint_server.engine.parallel.group import Group
from llmendpoint_server.engine.preparing import Prepared, prepare
from llmendpoint_server.protocol import Configure
from llmendpoint_server.resources import usable_threads

BYTES_PER_THREAD = 32 * 2**20


@dataclass(frozen=True, slots=True)
class Basis:
    """What is loaded, and where."""

    folder: Folder
    form: Format | None
    device: torch.device
    dtype: torch.dtype

    @staticmethod
    def of(settings: Configure) -> Basis:
        device = loading.choose_device(settings.device)
        folder = loading.open_folder(settings.model_path)
        form = gate.refuse_by_config(folder.architecture, folder.config)
        dtype = loading.choose_dtype(settings.dtype, device, loading.saved_dtype(folder.config))
        return Basis(folder, form, device, dtype)

    def prepare(self, settings: Configure, group: Group | None) -> Prepared:
        usable = max(1, usable_threads() // settings.tensor_parallel_size)
        torch.set_num_threads(threads_for(self.folder, usable))
        kernels = native.find(self.device, self.dtype)
        return prepare(self.folder, self.form, self.device, self.dtype, kernels, settings, group)


def threads_for(folder: Folder, usable: int) -> int:
    """One thread for each `BYTES_PER_THREAD` of weights, at most `usable`. For less work, waking another thread costs
    more than it saves, and beside a busy neighbour the step waits for it. OMP_NUM_THREADS lowers the number."""
    usable = min(usable, int(os.environ.get("OMP_NUM_THREADS", usable)))
    files = [folder.gguf] if folder.gguf else folder.path.glob("*.safetensors")
    weights = sum(file.stat().st_size for file in files)
    return max(1, min(usable, weights // BYTES_PER_THREAD))
