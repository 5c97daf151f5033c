"""One rank of two: loads each folder divided and whole, and rank 0 prints by how much their logits differ, as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from llmendpoint_server.engine import gate, loading
from llmendpoint_server.engine.parallel import group as groups
from llmendpoint_server.engine.parallel.dividing import load_model

CPU = torch.device("cpu")


def main(rank: int, port: int, folders: list[str]) -> None:
    torch.set_num_threads(1)
    group = groups.join(rank, 2, CPU, None, port)
    apart: dict[str, tuple[float, float]] = {}
    for path in folders:
        folder = loading.open_folder(path)
        prompts = gate.probe_prompts(512)
        divided = load_model(folder, CPU, torch.float32, None, group)
        whole = loading.load_model(folder, CPU, torch.float32)
        sizes = [sum(one.numel() for one in model.parameters()) for model in (divided, whole)]  # type: ignore[attr-defined]  # of transformers
        logits = [gate.reference_logits(model, prompts, CPU) for model in (divided, whole)]
        apart[Path(path).name] = gate.difference(*logits), sizes[0] / sizes[1]
    if rank == 0:
        print(json.dumps(apart))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
