"""The server under load: `make bench-serving`.

One Llama of 134M random parameters behind HTTP on 127.0.0.1, clients that stream token by token, and prompts of token
ids. The parts, each of which runs by itself with --only:

- throughput: 64 streams at once beside the engine alone, without HTTP
- itl: the time between two tokens of a stream while prompts of 2,000 tokens arrive
- prefix: TTFT of prompts that share 90 %, without the prefix cache and with it
- start: from the start of the process to Ready, with embedded://demo
- vllm: 64 streams with lengths as in ShareGPT's conversations, beside vLLM's CPU server

What is compared runs in turn, so that a noisy machine spoils both sides alike. Figures are medians over the rounds.
"""
