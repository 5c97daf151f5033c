"""A model folder of transformers as OpenVINO's: convert_openvino.py FROM TO [int8]."""

from __future__ import annotations

import sys

from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig

source, target, *weights = sys.argv[1:]
if weights == ["int8"]:
    chosen = {"quantization_config": OVWeightQuantizationConfig(bits=8)}
else:
    chosen = {"load_in_8bit": False}
OVModelForCausalLM.from_pretrained(source, export=True, compile=False, **chosen).save_pretrained(target)
