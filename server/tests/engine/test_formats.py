"""docs/concepts/weights.md: checkpoints with quantized weights are served with the weights that they stand for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine import gate, native
from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.forward import forward
from llmendpoint_server.engine.linear import NativeLinear
from llmendpoint_server.engine.runner import ModelRunner
from llmendpoint_server.errors import ModelNotFound, UnsupportedArchitecture
from llmendpoint_server.protocol import Configure
from server.tests.engine import quantized as q

HALF = torch.float16
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}
ModelFolder = Callable[[str], Path]
Store = Callable[[torch.Tensor], tuple[q.Tensors, torch.Tensor]]


def compressed_config(layout: str, bits: int, kind: str = "int", **more: object) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": kind, "symmetric": True, "strategy": "group", **more}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {"quant_method": "compressed-tensors", "format": layout, "config_groups": {"group_0": group}, "ignore": ["lm_head"]}  # fmt: skip


def in_groups(
    pack: Callable[..., q.Tensors],
    bits: int = 4,
    size: int | None = 32,
    symmetric: bool = True,
    shuffled: bool = False,
    dtype: torch.dtype = HALF,
    **more: int,
) -> Store:
    def store(weight: torch.Tensor) -> tuple[q.Tensors, torch.Tensor]:
        groups = weight.shape[1] // size if size else 1
        found = q.numbers(weight, bits, groups, symmetric, shuffled, dtype)
        return pack(found, dtype, **more), found.weight()

    return store


def fp8(block: tuple[int, int] | None, name: str) -> Store:
    def store(weight: torch.Tensor) -> tuple[q.Tensors, torch.Tensor]:
        return q.fp8(weight, (1, weight.shape[1]) if block == (1, 0) else block, name)

    return store


FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
CASES: dict[str, tuple[dict[str, Any], Store, int | None]] = {
    "gptq": (GPTQ, in_groups(q.gptq), 4),
    "gptq, one group": (GPTQ | {"group_size": -1}, in_groups(q.gptq, size=None), 4),
    "gptq, zeros": (GPTQ | {"sym": False}, in_groups(q.gptq, symmetric=False), 4),
    "gptq, version 2": (GPTQ | {"sym": False, "checkpoint_format": "gptq_v2"}, in_groups(q.gptq, symmetric=False, version=2), 4),
    "gptq, inputs by their activation": (GPTQ | {"desc_act": True}, in_groups(q.gptq, symmetric=False, shuffled=True), None),
    "gptq, 8 bits": (GPTQ | {"bits": 8}, in_groups(q.gptq, bits=8), None),
    "gptq, 8 bits, one group": (GPTQ | {"bits": 8, "group_size": -1}, in_groups(q.gptq, bits=8, size=None), 8),
    "awq": (AWQ, in_groups(q.awq, symmetric=False), 4),
    "awq, groups of 16": (AWQ | {"group_size": 16}, in_groups(q.awq, size=16), 4),
    "packed": (compressed_config("pack-quantized", 4), in_groups(q.compressed, dtype=torch.bfloat16), 4),
    "packed, zeros": (compressed_config("pack-quantized", 4), in_groups(q.compressed, symmetric=False), 4),
    "packed, inputs by their activation": (compressed_config("pack-quantized", 4), in_groups(q.compressed, shuffled=True), None),
    "packed, 8 bits": (compressed_config("pack-quantized", 8), in_groups(q.compressed, bits=8, size=None), 8),
    "whole numbers": (compressed_config("int-quantized", 8), in_groups(q.whole, bits=8, size=None), 8),
    "whole numbers, zeros": (compressed_config("int-quantized", 8), in_groups(q.whole, bits=8, size=None, symmetric=False), None),
    "floats, an output's scale": (compressed_config("float-quantized", 8, "float"), fp8((1, 0), "weight_scale"), None),
    "floats, one scale": (compressed_config("float-quantized", 8, "float"), fp8(None, "weight_scale"), None),
    "fp8, blocks": (FP8 | {"weight_block_size": [48, 40]}, fp8((48, 40), "weight_scale_inv"), None),
    "fp8, one scale": (FP8, fp8(None, "weight_scale"), None),
    "fbgemm": ({"quant_method": "fbgemm_fp8"}, fp8((1, 0), "weight_scale"), None),
}  # fmt: skip
"""The configuration, how a weight is stored, and the bits that it keeps in memory, if it does."""


def configure(folder: Path, **settings: object) -> Configure:
    return Configure(**{"model_path": str(folder), "device": "cpu", "dtype": "float32", "max_num_seqs": 4, "max_batched_tokens": 64, **settings})  # type: ignore[arg-type]  # names are checked at run time  # fmt: skip


def logits_apart(served: ModelRunner, source: Path, weights: q.Tensors) -> float:
    """The difference between the logits of a served model and those of transformers' own with these weights."""
    own = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    assert not own.load_state_dict(weights, strict=False).unexpected_keys
    tokens = gate.probe_prompts(512)[2]
    sequence = Sequence(Request("one", tuple(tokens), SamplingParams(1)), 0, tokens, [], table=[0, 1, 2])
    step = served.backend.prepare(Batch((Scheduled(sequence, 0, len(tokens)),), 0.0))
    step.logit_rows = torch.arange(len(tokens))
    with torch.inference_mode():
        expected = own(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    return gate.difference(forward(served.model, served.backend, step), expected)


@pytest.mark.parametrize("case", CASES)
def test_a_checkpoint_has_the_logits_of_the_weights_that_it_stands_for(
    case: str, model_folder: ModelFolder, tmp_path: Path
) -> None:
    config, store, bits = CASES[case]
    made = q.write(model_folder("llama"), tmp_path / "packed", config, store)
    served, info = load(configure(made.folder))
    assert logits_apart(served, model_folder("llama"), made.weights) < 1e-5
    projections = [m for m in served.model.modules() if isinstance(m, NativeLinear)][:-1]
    kept = {4: torch.uint8, 8: torch.int8}.get(bits or 0)
    assert {m._weight.dtype for m in projections} <= ({kept} if kept else {torch.float32, torch.bfloat16})
    assert len(projections) == 16  # four layers of qkv, out, gate and up, down
    assert info.quantization != "none"


def test_experts_are_dequantized_because_the_model_holds_them_together(
    model_folder: ModelFolder, tmp_path: Path
) -> None:
    """mixtral's experts are `w1`, `w2` and `w3` in files, and two tensors of all experts in the model."""
    made = q.write(
        model_folder("mixtral"), tmp_path / "packed", GPTQ, in_groups(q.gptq), ("_proj", ".w1", ".w2", ".w3")
    )
    served, _ = load(configure(made.folder))
    plain = tmp_path / "plain"
    shutil.copytree(model_folder("mixtral"), plain)
    save_file(
        {name: one.contiguous() for name, one in made.weights.items()},
        plain / "model.safetensors",
        {"format": "pt"},
    )
    assert len([name for name in made.weights if ".w1" in name]) == 16
    assert logits_apart(served, plain, {}) < 1e-5


def test_a_quantized_checkpoint_can_be_quantized_again_on_load(
    model_folder: ModelFolder, tmp_path: Path
) -> None:
    made = q.write(model_folder("llama"), tmp_path / "packed", FP8, fp8(None, "weight_scale"))
    served, info = load(configure(made.folder, quantization="int8"))
    assert info.quantization == "int8"
    assert logits_apart(served, model_folder("llama"), made.weights) < 0.1


def test_it_is_served_without_the_kernels_too(
    model_folder: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "llmendpoint_native", None)
    made = q.write(model_folder("llama"), tmp_path / "packed", AWQ, in_groups(q.awq, symmetric=False))
    served, _ = load(configure(made.folder))
    assert logits_apart(served, model_folder("llama"), made.weights) < 1e-5


NESTED = compressed_config("pack-quantized", 4)
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"quant_method": "aqlm"}, "its weights are quantized by 'aqlm'; awq, compressed-tensors, .* and GGUF are read"),
    ({"bits": 4}, "its weights are quantized by 'None'"),
    (GPTQ | {"bits": 3}, "its weights are quantized with bits 3; 4 and 8 are read"),
    (GPTQ | {"bits": 2}, "its weights are quantized with bits 2"),
    (GPTQ | {"bits": "four"}, r"quantization_config\.bits is 'four', which is no whole number"),
    (GPTQ | {"group_size": None}, r"quantization_config\.group_size is None"),
    (GPTQ | {"checkpoint_format": "marlin"}, "its weights are GPTQ in the layout 'marlin'; gptq and gptq_v2 are read"),
    (GPTQ | {"dynamic": {"+:.*down.*": {"bits": 8}}}, "GPTQ with other numbers of bits for some layers"),
    (AWQ | {"bits": 8}, "its weights are quantized with bits 8; 4 are read"),
    (AWQ | {"version": "gemv"}, "its weights are AWQ in the layout 'gemv'; gemm is read"),
    (FP8 | {"weight_block_size": [128]}, r"its weights are FP8 in blocks of \[128\]"),
    (NESTED | {"config_groups": {}}, "config_groups names no weights"),
    (NESTED | {"format": "nvfp4-pack-quantized"}, "compressed-tensors in the layout 'nvfp4-pack-quantized'"),
    (NESTED | {"sparsity_config": {"format": "sparse-24-bitmask"}}, "compressed-tensors that are sparse too"),
    (compressed_config("pack-quantized", 2), "its weights are ints of 2 bits; ints of 4 and 8 and floats of 8 are read"),
    (compressed_config("float-quantized", 4, "float"), "its weights are floats of 4 bits"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "why"), REFUSED, ids=lambda one: one if isinstance(one, str) else "")
def test_a_format_that_is_not_read_is_refused_before_a_weight_is(
    config: dict[str, Any], why: str, model_folder: ModelFolder, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(model_folder("llama"), tmp_path / "copy"))
    found = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(found | {"quantization_config": config}))
    (folder / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(UnsupportedArchitecture, match=why) as caught:
        load(configure(folder))
    assert caught.value.exit_code == 4


Q_PROJ = "model.layers.0.self_attn.q_proj"
PACKED: dict[str, tuple[dict[str, Any], Store]] = {
    "gptq": (GPTQ, in_groups(q.gptq)),
    "shuffled": (GPTQ, in_groups(q.gptq, shuffled=True)),
    "awq": (AWQ, in_groups(q.awq)),
    "packed": (NESTED, in_groups(q.compressed, symmetric=False)),
    "whole": (compressed_config("int-quantized", 8), in_groups(q.whole, bits=8, size=None)),
    "fp8": (FP8, fp8(None, "weight_scale")),
    "blocks": (FP8 | {"weight_block_size": [32, 32]}, fp8((32, 32), "weight_scale_inv")),
}
Change = Callable[[q.Tensors], object]
BROKEN: list[tuple[str, Change, str]] = [
    ("gptq", lambda t: t.pop(f"{Q_PROJ}.scales"), rf"there is no {Q_PROJ}\.scales beside"),
    ("gptq", lambda t: t.pop(f"{Q_PROJ}.qweight"), rf"there is no {Q_PROJ}\.qweight beside"),
    ("gptq", lambda t: t.update({f"{Q_PROJ}.scales": torch.ones(3, 64)}), r"scales is \[3, 64\], and .* want \[2, 64\]"),
    ("gptq", lambda t: t.update({f"{Q_PROJ}.qzeros": torch.ones(2, 9, dtype=torch.int32)}), r"qzeros is \[2, 9\]"),
    ("gptq", lambda t: t.update({f"{Q_PROJ}.qweight": torch.ones(8, 64)}), "qweight is float32, and must be int32"),
    ("gptq", lambda t: t.update({f"{Q_PROJ}.qweight": torch.ones(8, dtype=torch.int32)}), "has 1 dimensions, and must have 2"),
    ("shuffled", lambda t: t[f"{Q_PROJ}.g_idx"].fill_(2), "g_idx names groups that are not there; there are 2"),
    ("shuffled", lambda t: t[f"{Q_PROJ}.g_idx"].fill_(-1), "g_idx names groups that are not there"),
    ("awq", lambda t: t.pop(f"{Q_PROJ}.qzeros"), rf"there is no {Q_PROJ}\.qzeros"),
    ("awq", lambda t: t.update({f"{Q_PROJ}.scales": torch.ones(2, 60)}), "scales is"),
    ("packed", lambda t: t.pop(f"{Q_PROJ}.weight_scale"), rf"there is no {Q_PROJ}\.weight_scale"),
    ("packed", lambda t: t.pop(f"{Q_PROJ}.weight_shape"), rf"there is no {Q_PROJ}\.weight_shape"),
    ("packed", lambda t: t.update({f"{Q_PROJ}.weight_shape": torch.tensor([64, 2**40])}), "which holds no .* inputs"),
    ("packed", lambda t: t.update({f"{Q_PROJ}.weight_shape": torch.tensor([-1, 64])}), "must be two sizes"),
    ("packed", lambda t: t.update({f"{Q_PROJ}.weight_scale": torch.ones(64, 3)}), "has 3 groups, which do not divide 64 inputs"),
    ("whole", lambda t: t.pop(f"{Q_PROJ}.weight_scale"), "weight is int8, and there is no scale beside it"),
    ("whole", lambda t: t.update({f"{Q_PROJ}.weight_scale": torch.ones(5, 1)}), r"weight_scale is \[5, 1\]"),
    ("fp8", lambda t: t.pop(f"{Q_PROJ}.weight_scale"), "weight is float8_e4m3fn, and there is no scale beside it"),
    ("fp8", lambda t: t.update({f"{Q_PROJ}.weight_scale": torch.ones(2, 2)}), r"must be 1 or \[64, 1\]"),
    ("fp8", lambda t: t.update({f"{Q_PROJ}.weight": torch.ones(64, 64)}), "must be a matrix in float8_e4m3fn"),
    ("blocks", lambda t: t.update({f"{Q_PROJ}.weight_scale_inv": torch.ones(4, 4)}), r"of \[64, 64\] want \[2, 2\]"),
    ("awq", lambda t: [t.pop(f"{Q_PROJ}.{part}") for part in ("qweight", "qzeros", "scales")], f"no weights for 1 tensors, such as {Q_PROJ}"),
    ("awq", lambda t: t.update(widened(t)), r"1 tensors have other sizes than the configuration says, such as .*q_proj"),
]  # fmt: skip
"""What is changed in a file, and what is said of it."""


def widened(tensors: q.Tensors) -> q.Tensors:
    """Twice the outputs, in all tensors of a layer."""
    names = [f"{Q_PROJ}.{part}" for part in ("qweight", "qzeros", "scales")]
    return {name: torch.cat([tensors[name]] * 2, 1) for name in names}


@pytest.mark.parametrize(("made", "change", "why"), BROKEN, ids=[f"{one[0]}: {one[2]}" for one in BROKEN])
def test_tensors_that_contradict_each_other_or_the_configuration_are_refused_by_name(
    made: str, change: Change, why: str, model_folder: ModelFolder, tmp_path: Path
) -> None:
    folder = q.write(model_folder("llama"), tmp_path / "packed", *PACKED[made]).folder
    tensors = {name: one for path in folder.glob("*.safetensors") for name, one in load_file(path).items()}
    change(tensors)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelNotFound, match=why):
        load(configure(folder))


def test_groups_that_do_not_divide_the_inputs_are_refused(model_folder: ModelFolder, tmp_path: Path) -> None:
    made = q.write(model_folder("llama"), tmp_path / "packed", GPTQ | {"group_size": 48}, in_groups(q.gptq))
    with pytest.raises(ModelNotFound, match=r"has \d+ inputs, which groups of 48 do not divide"):
        load(configure(made.folder))


def test_a_file_that_is_no_safetensors_and_a_checkpoint_that_is_not_quantized_are_refused(
    model_folder: ModelFolder, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(model_folder("llama"), tmp_path / "copy"))
    found = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(found | {"quantization_config": GPTQ}))
    with pytest.raises(ModelNotFound, match="says GPTQ, 4 bits, and no layer has such weights"):
        load(configure(folder))
    (folder / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(ModelNotFound, match="a file of weights cannot be read"):
        load(configure(folder))
