"""The examples of docs/reference/: parts of a spec as YAML, by the path of the field that they show; "" is a whole spec.

Each is a whole value of the top-level fields that it names. Tests give them to the models and to a real API server.
"""

from __future__ import annotations

from collections.abc import Mapping

LLMENDPOINT: Mapping[str, str] = {
    "": """
model:
  source: embedded://demo
engine:
  device: cpu
""",
    "model": """
model:
  source: hf://Qwen/Qwen3-8B@main
  servedNames: [qwen3, chat]
  cache: {claimName: models}
  credentials: {secretName: hub-token}
""",
    "model.source": """
model:
  source: pvc://models/qwen3-8b
""",
    "runtime": """
runtime:
  name: vllm
  args: [--enable-chunked-prefill]
  env:
    - {name: VLLM_LOGGING_LEVEL, value: WARNING}
""",
    "resources": """
resources:
  accelerator: {kind: nvidia.com/gpu, count: 1}
  cpu: "4"
  memory: 32Gi
  nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}
  tolerations:
    - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
""",
    "engine": """
engine:
  device: cpu
  maxModelLen: 8192
  maxNumSeqs: 16
  kvCacheMemory: 2Gi
""",
    "engine.device": """
engine: {device: cuda}
resources:
  accelerator: {kind: nvidia.com/gpu, count: 1}
""",
    "adapters": """
engine:
  maxAdapters: 16
  maxAdapterRank: 64
adapters:
  - {name: sql, source: "hf://acme/sql-lora@v2"}
  - {name: legal, source: "s3://acme-models/adapters/legal"}
  - {name: support, source: "pvc://adapters/support"}
""",
    "progressDeadlineSeconds": """
progressDeadlineSeconds: 1800   # half an hour, for a large model
""",
    "terminationGracePeriodSeconds": """
terminationGracePeriodSeconds: 300
""",
    "replicas": """
replicas: 2
""",
    "autoscaling": """
autoscaling:
  minReplicas: 0
  maxReplicas: 8
  cooldownPeriod: 600
""",
    "autoscaling.signals": """
autoscaling:
  maxReplicas: 8
  signals:
    queueDepth: {target: 4}
    ttft: {target: 1.5}
""",
    "autoscaling.behavior": """
autoscaling:
  maxReplicas: 8
  behavior:
    scaleDown:
      stabilizationWindowSeconds: 600
      policies:
        - {type: Pods, value: 1, periodSeconds: 60}   # one replica a minute
""",
    "autoscaling.fallback": """
autoscaling:
  maxReplicas: 8
  fallback: {failureThreshold: 3, replicas: 2, behavior: currentReplicasIfHigher}
""",
    "autoscaling.schedules": """
autoscaling:
  minReplicas: 0
  maxReplicas: 8
  schedules:
    - name: office
      start: 30 7 * * mon-fri
      end: 0 18 * * mon-fri
      timeZone: Europe/Berlin
      minReplicas: 2
""",
    "revisionHistoryLimit": """
revisionHistoryLimit: 5
""",
    "rollout": """
rollout:
  strategy: BlueGreen
  capacity: Auto
  promotion: Manual
""",
    "rollout.verification": """
rollout:
  verification:
    timeoutSeconds: 30
    prompts:
      - name: capital
        prompt: What is the capital of France?
        expect: {contains: [Paris]}
      - name: tone
        prompt: Explain a KV cache in one sentence.
        temperature: 0.7
        compare: {mode: Similarity}
""",
    "rollout.observe": """
rollout:
  observe:
    duration: 120
    control: 20          # percent of the requests that the old revision keeps meanwhile
    falseRollbackRate: 0.01
    errorRate: {max: 0.01}
    ttft: {p95Seconds: 2, maxRatio: 1.5}
    onInconclusive: Rollback
""",
    "rollout.canary": """
rollout:
  strategy: Canary
  canary:
    steps:
      - {weight: 10, duration: 300}
      - {weight: 50, duration: 300}
""",
    "slo": """
slo: {ttftSeconds: 2, itlSeconds: 0.1, e2eSeconds: 60}
""",
    "security": """
security:
  allowedClients:
    - namespaceSelector:
        matchLabels: {kubernetes.io/metadata.name: team-b}
    - ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}
""",
    "access": """
access: {namespaces: [team-b]}
""",
    "traffic": """
traffic:
  firstByteTimeoutSeconds: 20
  queue: {maxRequests: 200, timeoutSeconds: 30}
""",
    "circuitBreaker": """
circuitBreaker: {errorRate: 0.5, windowSeconds: 30, minRequests: 20, openSeconds: 10}
""",
}

LLMRUNTIME: Mapping[str, str] = {
    "": """
image: registry.example/llm/engine:1.0
args:
  - value: --model=$(model.path)
  - value: --port=$(ports.http)
readiness: Generation
probes:
  startup: {path: /health}
  live: {path: /health}
""",
    "image": """
image: registry.example/llm/engine:1.0
""",
    "command": """
command: [python3, -m, engine.server]
""",
    "args": """
args:
  - value: --model=$(model.path)
  - value: --max-model-len=$(engine.maxModelLen)
    when: engine.maxModelLen
  - value: --no-prefix-caching
    when: "!engine.prefixCaching"
""",
    "ports": """
ports: {http: 8000}
""",
    "probes": """
probes:
  startup: {path: /health}
  ready: {path: /health}
  live: {path: /health}
""",
    "paths": """
paths: [/pooling, /v2/rerank]
""",
    "readiness": """
readiness: Generation
probes:
  startup: {path: /health}
  live: {path: /health}
""",
    "stuckAfterSeconds": """
readiness: Generation
stuckAfterSeconds: 300
""",
    "loadsAdapters": """
loadsAdapters: true
args:
  - value: --enable-lora
    when: adapters
  - value: --max-loras=$(engine.maxAdapters)
    when: adapters
  - value: --max-lora-rank=$(engine.maxAdapterRank)
    when: adapters
""",
    "probeImage": """
readiness: Generation
probeImage: registry.example/llm/operator:1.0
""",
    "modelImage": """
modelImage: registry.example/llm/server:1.0
""",
    "env": """
env:
  - {name: HTTPS_PROXY, value: "http://proxy.example:3128"}
""",
    "volumes": """
volumes:
  - name: shm
    emptyDir: {medium: Memory, sizeLimit: 8Gi}
volumeMounts:
  - {name: shm, mountPath: /dev/shm}
""",
    "volumeMounts": """
volumes:
  - name: plugins
    configMap: {name: engine-plugins}
volumeMounts:
  - {name: plugins, mountPath: /plugins, readOnly: true}
""",
}

_HASHES = """hashes:
  - sha256: 5ab1a9b0d3c8d24a6a1d1f0fbb2f4a8a24b9c0d9a5e2d6b7c1f3e4d5a6b7c8d9"""
LLMKEY: Mapping[str, str] = {
    "": f"""
id: 4k2m9x0a7b3c5d8e
{_HASHES}
grants:
  - {{name: chat}}
""",
    "id": """
id: 4k2m9x0a7b3c5d8e
""",
    "hashes": f"""
{_HASHES}
  - sha256: 0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0
    expires: "2026-12-01T00:00:00Z"
""",
    "expires": """
expires: "2027-01-01T00:00:00Z"
""",
    "disabled": """
disabled: true
""",
    "grants": """
grants:
  - {name: chat}                                        # of the key's own namespace
  - {namespace: team-b, name: embed}
  - {namespace: team-c, matchLabels: {tier: gold}}
  - {namespace: shared}                                 # all of its endpoints
""",
    "priority": """
priority: Low
""",
}

EXAMPLES: Mapping[str, Mapping[str, str]] = {
    "LLMEndpoint": LLMENDPOINT,
    "LLMRuntime": LLMRUNTIME,
    "LLMKey": LLMKEY,
}
"""By kind."""
