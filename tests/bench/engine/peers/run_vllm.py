"""vLLM's CPU build, without its server."""

from __future__ import annotations

import os

from wire import Answering, Options, Prompts, Sampling, serve

# Both before vLLM is imported: the engine in this process, and threads on all processors (by itself it leaves one out).
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0)))
os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"  # GiB

import vllm


def load(options: Options) -> tuple[str, Answering]:
    engine = vllm.LLM(
        options.model,
        dtype=options.dtype,
        skip_tokenizer_init=True,
        max_num_seqs=options.batch,
        max_model_len=1024,
        enable_prefix_caching=False,
        disable_log_stats=True,
    )

    def answer(prompts: Prompts, sampling: Sampling) -> Prompts:
        wanted = vllm.SamplingParams(
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            ignore_eos=True,
            detokenize=False,
        )
        found = engine.generate([{"prompt_token_ids": prompt} for prompt in prompts], wanted, use_tqdm=False)
        return [list(request.outputs[0].token_ids) for request in found]

    return f"vLLM {vllm.__version__} CPU build, {options.dtype}", answer


if __name__ == "__main__":
    serve(load)
