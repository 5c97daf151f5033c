"""OpenVINO GenAI's continuous batching."""

from __future__ import annotations

import numpy as np
import openvino
import openvino_genai
from wire import Answering, Options, Prompts, Sampling, serve

PRECISIONS = {"bfloat16": "bf16", "float32": "f32"}
UNUSED_TOKEN = 2
"""OpenVINO GenAI wants an end token even where it is to be ignored."""


def load(options: Options) -> tuple[str, Answering]:
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = 2  # GiB
    scheduler.max_num_seqs = options.batch
    scheduler.max_num_batched_tokens = 4096
    scheduler.enable_prefix_caching = False
    precision = PRECISIONS[options.dtype]
    pipeline = openvino_genai.ContinuousBatchingPipeline(
        options.model,
        scheduler_config=scheduler,
        device="CPU",
        properties={"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": options.threads},
    )

    def answer(prompts: Prompts, sampling: Sampling) -> Prompts:
        config = generation(sampling)
        ids = [openvino.Tensor(np.array([prompt], dtype=np.int64)) for prompt in prompts]
        return [list(found.m_generation_ids[0]) for found in pipeline.generate(ids, [config] * len(ids))]

    version = openvino_genai.__version__.split("-")[0]
    form = f"int8 weights, {precision}" if options.weights else precision
    return f"OpenVINO GenAI {version} continuous batching, {form}", answer


def generation(sampling: Sampling) -> openvino_genai.GenerationConfig:
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = sampling.max_tokens
    config.ignore_eos = True
    config.eos_token_id = UNUSED_TOKEN
    config.stop_token_ids = {UNUSED_TOKEN}
    config.do_sample = not sampling.greedy
    if not sampling.greedy:
        config.temperature, config.top_p = sampling.temperature, sampling.top_p
    return config


if __name__ == "__main__":
    serve(load)
