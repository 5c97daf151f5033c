"""A model folder of transformers, saved in bf16, as a GGUF file: convert_gguf.py FROM TO."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np

LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
REST = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def main(source: Path, target: str) -> None:
    config = json.loads((source / "config.json").read_text())
    writer = gguf.GGUFWriter(target, config["model_type"])
    write_properties(writer, config)
    for name, values in tensors(source / "model.safetensors"):
        name = name.removesuffix(".weight")
        if name.startswith("model.layers."):
            _, _, layer, rest = name.split(".", 3)
            new = f"blk.{layer}.{LAYER[rest]}.weight"
            if config["model_type"] == "llama" and rest.endswith(("q_proj", "k_proj")):
                values = interleaved(values, config["head_dim"])
        else:
            new = f"{REST[name]}.weight"
        add(writer, new, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_properties(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)


def tensors(path: Path) -> list[tuple[str, np.ndarray]]:
    """Names and values, as 16-bit integers that hold bf16."""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    end = 8 + int(data[:8].view(np.uint64)[0])
    header = json.loads(bytes(data[8:end]))
    header.pop("__metadata__", None)
    found = []
    for name, entry in header.items():
        if entry["dtype"] != "BF16":
            raise ValueError(f"{name} is {entry['dtype']}, not BF16")
        first, last = (end + offset for offset in entry["data_offsets"])
        found.append((name, data[first:last].view(np.uint16).reshape(entry["shape"])))
    return found


def interleaved(values: np.ndarray, head_dim: int) -> np.ndarray:
    """llama.cpp rotates pairs of neighbours in a Llama's heads; transformers rotates the halves."""
    rows, columns = values.shape
    return values.reshape(rows // head_dim, 2, head_dim // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def add(writer: gguf.GGUFWriter, name: str, values: np.ndarray) -> None:
    """Matrices stay bf16; llama.cpp wants norms in float32."""
    if values.ndim == 1:
        writer.add_tensor(name, (values.astype(np.uint32) << 16).view(np.float32))
    else:
        raw = np.ascontiguousarray(values).view(np.uint8)
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType.BF16)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
