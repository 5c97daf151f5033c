# Every target is a line or two; the work is in Python modules that can be run by themselves.
# `make` alone lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PY := .venv/bin/python
PYTEST := $(PY) -m pytest
export GRPC_ENABLE_FORK_SUPPORT := 0
export NO_MKDOCS_2_WARNING := 1

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

.venv/.stamp: requirements/dev.txt requirements/docs.txt requirements/bootstrap.txt requirements/native.txt fit/pyproject.toml verdicts/pyproject.toml operator/pyproject.toml probe/pyproject.toml gateway/pyproject.toml server/pyproject.toml cli/pyproject.toml batch/pyproject.toml $(wildcard server/native/kernels/*) server/native/setup.py server/native/pyproject.toml
	@./tests/bootstrap.sh

venv: .venv/.stamp ## the Python environment, from the lock files

demo: .venv/.stamp ## the whole product on this machine, with a chat at the end (DEMO_KUBECONFIG=… for a cluster of yours)
	@$(PY) -m tests.demo up

demo-down: .venv/.stamp ## remove what `make demo` made, and only that
	@$(PY) -m tests.demo down

test: .venv/.stamp ## lint, types, layers, unit, integration, end to end; what CI runs
	@$(PY) -m tests.stages

test-unit: .venv/.stamp ## unit tests alone (no cluster)
	@$(PYTEST) -q -m "not integration and not e2e and not extended"

test-integration: .venv/.stamp ## against a real API server
	@$(PYTEST) -q -m "integration and not extended"

test-e2e: .venv/.stamp ## real pods, our images, real traffic
	@$(PYTEST) -q -m "e2e and not extended"

test-extended: .venv/.stamp ## what is too large for every run
	@$(PYTEST) -q -s -m extended

fuzz: .venv/.stamp ## 20,000 requests of every kind to the real server and through the real gateway
	@$(PY) -m tests.fuzz

lint: .venv/.stamp ## ruff, mypy --strict, import layers, generated files
	@$(PY) -m tests.stages --only lint

crds: .venv/.stamp ## write crds/ and docs/reference/ from the pydantic models
	@$(PY) -m llmendpoint_operator.api.generate && cp crds/*.yaml charts/llmendpoint/crds/

docs: .venv/.stamp ## the site, into build/site/; fails at a broken link, a broken anchor or a page that mkdocs.yml lacks
	@$(PY) -m mkdocs build --strict
	@echo build/site/index.html

docs-serve: .venv/.stamp ## the site on http://127.0.0.1:8000, built again at every change
	@$(PY) -m mkdocs serve --dev-addr 127.0.0.1:8000

pictures: .venv/.stamp ## write docs/pictures/status.svg and rollback.svg from what kubectl llm prints
	@$(PY) -m tests.docs.pictures

reference: .venv/.stamp ## write what docs/reference takes from the chart, the CLI, the API and the metrics
	@$(PY) -m tests.reference

dashboard: .venv/.stamp ## write the chart's Grafana dashboard from tests/monitoring/panels.py
	@$(PY) -m tests.monitoring

cluster: .venv/.stamp ## the embedded Kubernetes by itself
	@$(PY) -m tests.cluster up

cluster-down: .venv/.stamp ## remove the embedded Kubernetes
	@$(PY) -m tests.cluster down

images: .venv/.stamp ## build the images with buildah into ~/.cache/llmendpoint/image-*
	@$(PY) -m tests.cluster.images

bench-engine: .venv/.stamp ## tokens/s and TTFT beside OpenVINO, llama.cpp, vLLM and transformers on the same models
	@$(PY) -m tests.bench.engine

bench-serving: .venv/.stamp ## the server under 64 streams: tokens/s, ITL, TTFT, start; beside vLLM's
	@$(PY) -m tests.bench.serving

bench-sampler: .venv/.stamp ## the time of top_p, top_k and temperature beside greedy's, 152k logits a row
	@$(PY) -m tests.bench.sampler

bench-step: .venv/.stamp ## what Python does for a step of 1, 64 and 256 sequences that decode, while a GPU would wait
	@$(PY) -m tests.bench.step

bench-api: .venv/.stamp ## CPU of the engine's API process for each streamed token, beside a bare server
	@$(PY) -m tests.bench.api

bench-speculation: .venv/.stamp ## tokens/s with guessed tokens beside without, on answers that copy and on answers that do not
	@$(PY) -m tests.bench.speculation

bench-structured: .venv/.stamp ## the time between tokens with a grammar beside free text, 8 at a time
	@$(PY) -m tests.bench.structured

bench-weights: .venv/.stamp ## size, tokens/s and quality of int8 and int4 weights and of an 8-bit KV cache beside bfloat16 and float32
	@$(PY) -m tests.bench.weights

bench-gateway: .venv/.stamp ## CPU per decision and latency beside a direct call
	@$(PY) -m tests.bench.gateway

bench-prefixes: .venv/.stamp ## TTFT and cached tokens of 40 tenants' prompts on 4 engines: in turn, by fewest requests, sglang-router, ours
	@$(PY) -m tests.bench.prefixes

bench-tables: .venv/.stamp ## CPU of the gateway for one change of an EndpointSlice, and requests while such changes come
	@$(PY) -m tests.bench.tables

bench-operator: .venv/.stamp ## 1,000 endpoints with faked pods, beside a bare client's same writes
	@$(PY) -m tests.bench.operator

bench-day: .venv/.stamp ## bursty days in virtual time: replica-hours and missed deadlines beside KEDA's policy
	@$(PY) -m tests.bench.day

bench-rollout: .venv/.stamp ## from a bad revision's figures to the verdict and back, real pods under load
	@$(PYTEST) -q tests/e2e/test_rollouts.py -k "slow or one_in_ten" && cat build/bench/rollout.json

bench-verdicts: .venv/.stamp ## simulated rollouts: healthy revisions rolled back and bad ones seen, beside Argo Rollouts' and OME's rules
	@$(PY) -m tests.bench.verdicts

bench-wake: .venv/.stamp ## from zero: a held request to its pod, and a loaded model to the first token (real pods)
	@$(PY) -m tests.bench.wake
	@$(PYTEST) -q -s tests/e2e/test_first_token.py

bench-cluster: .venv/.stamp ## control plane and node start
	@$(PY) -m tests.bench.cluster

bench-docs: .venv/.stamp ## write docs/benchmarks.md from build/bench/*.json
	@$(PY) -m tests.bench.report

release-check: ## whether TAG is that of every version in the checkout (make release-check TAG=v0.1.0)
	@python3 -m tests.release check "$(TAG)"

release-wheels: ## the CLI's wheels and their SBOM, into dist/
	@python3 -m tests.release wheels

release-chart: ## the chart, into dist/; REGISTRY=host/path pushes it there
	@python3 -m tests.release chart

release-images: ## the images for amd64 and arm64 (docker buildx); IMAGE=server: that one; REGISTRY=host/path pushes them there
	@python3 -m tests.release images $(IMAGE)

demo-model: .venv/.stamp ## train embedded://demo again (about ten minutes on two cores)
	@$(PY) server/demo_model/train.py

lock: .venv/.stamp ## write requirements/*.txt anew (hashes, no addresses)
	@./requirements/lock.sh

.PHONY: help venv dashboard demo demo-down test test-unit test-integration test-e2e test-extended fuzz lint crds docs docs-serve pictures cluster cluster-down images bench-engine bench-api bench-sampler bench-step bench-serving bench-speculation bench-structured bench-weights bench-gateway bench-prefixes bench-tables bench-operator bench-day bench-rollout bench-verdicts bench-wake bench-cluster bench-docs release-check release-wheels release-chart release-images demo-model lock reference
