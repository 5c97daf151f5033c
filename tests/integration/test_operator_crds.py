"""docs/reference/llmendpoint.md: what a real API server refuses of each field, with what to write instead, and what kubectl shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from llmendpoint_operator.api import API_VERSION
from llmendpoint_operator.api.examples import EXAMPLES
from tests.cluster import Cluster
from tests.cluster.errors import CommandFailed
from tests.integration.installed import ROOT, RUNTIME, endpoint, install
from tests.integration.namespace import Namespace

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def namespace(control_plane: Cluster) -> Iterator[Namespace]:
    install(control_plane)
    found = Namespace(control_plane)
    yield found
    control_plane.kubectl("delete", "namespace", found.name, "--wait=false")


def create(namespace: Namespace, manifest: dict[str, Any]) -> None:
    namespace.cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest))


def adapters(*sources: str) -> dict[str, Any]:
    return {"adapters": [{"name": f"a{number}", "source": source} for number, source in enumerate(sources)]}


def access(*namespaces: str) -> dict[str, Any]:
    return {"access": {"namespaces": list(namespaces)}}


def prompts(fields: dict[str, Any]) -> dict[str, Any]:
    """A spec with one prompt."""
    prompt = {"name": "capital", "prompt": "Capital of France?", **fields}
    return {"rollout": {"verification": {"prompts": [prompt]}}}


def schedule(**fields: Any) -> dict[str, Any]:
    """With one bound at least."""
    return {
        "name": "office",
        "start": "30 7 * * mon-fri",
        "end": "0 18 * * MON-FRI",
        "minReplicas": 2,
        **fields,
    }


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("x", {"model": {"source": "gpt-4"}}, "for example embedded://demo, pvc://models/qwen3-8b"),
        ("x", {"model": {"source": "s3://B/model"}}, "model.source must be embedded://<name>"),
        (
            "x",
            {"model": {"source": "oci://images.example/m:latest"}},
            "oci://<image>@sha256:<64 hexadecimal digits>",
        ),
        (
            "x",
            {"model": {"source": "pvc://a/b", "cache": {"claimName": "c"}}},
            "model.cache needs a source that is downloaded",
        ),
        (
            "x",
            {"model": {"source": "embedded://demo", "allowPickle": True}},
            "model.allowPickle needs a source that is downloaded",
        ),
        (
            "x",
            {"model": {"source": "embedded://demo", "credentials": {"secretName": "s"}}},
            "imagePullSecrets of the endpoint's ServiceAccount",
        ),
        ("x", {"model": {"source": "s3://b12/m", "cache": {"claimName": "A_b"}}}, "for example models"),
        (
            "x",
            {"model": {"source": "s3://b12/m", "cache": {"claimName": "c", "scope": "Pod"}}},
            '"Shared", "Node"',
        ),
        ("x", {"model": {"source": "file:///a/../etc/passwd"}}, "must not contain '..'"),
        ("x", {"model": {}}, "spec.model.source: Required value"),
        (
            "x",
            {"model": {"source": "embedded://demo", "servedNames": ["a/b"]}},
            "no other name may contain '/'",
        ),
        ("x", {"model": {"source": "embedded://demo", "servedNames": ["a", "a"]}}, "Duplicate value"),
        ("x", {"engine": {"device": "cuda"}}, "add resources.accelerator: {kind: nvidia.com/gpu, count: 1}"),
        ("x", {"engine": {"device": "tpu"}}, 'supported values: "auto", "cpu", "cuda"'),
        ("x", {"engine": {"kvCacheMemory": "lots"}}, "spec.engine.kvCacheMemory"),
        ("x", {"resources": {"accelerator": {"kind": "gpu"}}}, "for example nvidia.com/gpu or amd.com/gpu"),
        (
            "x",
            {"resources": {"accelerator": {"kind": "nvidia.com/gpu", "count": 0}}},
            "greater than or equal to 1",
        ),
        ("x", {"runtime": {"args": ["--port=1"]}}, "use spec.model.source, spec.model.servedNames"),
        ("x", {"replicas": -1}, "greater than or equal to 0"),
        ("x", {"rollout": {"observe": {"minRequests": 0}}}, "greater than or equal to 1"),
        ("x", {"autoscaling": {}}, "spec.autoscaling.maxReplicas: Required value"),
        (
            "x",
            {"autoscaling": {"minReplicas": 3, "maxReplicas": 2}},
            "minReplicas must not be above autoscaling.maxR",
        ),
        ("x", {"autoscaling": {"maxReplicas": 2, "idleReplicas": 1}}, "idleReplicas must be below"),
        ("x", {"autoscaling": {"maxReplicas": 2, "activationThreshold": 5}}, "must not be above the target"),
        (
            "x",
            {
                "autoscaling": {
                    "maxReplicas": 2,
                    "activationThreshold": 9,
                    "signals": {"concurrency": {"target": 8}},
                }
            },
            "must not be above the target",
        ),
        (
            "x",
            {"autoscaling": {"maxReplicas": 2, "signals": {}}},
            "needs queueDepth, concurrency or kvCacheUtil",
        ),
        (
            "x",
            {"autoscaling": {"maxReplicas": 2, "signals": {"ttft": {"target": 2}}}},
            "ttft alone is not enough: it never lowers",
        ),
        (
            "x",
            {"autoscaling": {"maxReplicas": 2, "fallback": {"replicas": 3}}},
            "fallback.replicas must not be above",
        ),
        (
            "x",
            {"autoscaling": {"maxReplicas": 2, "schedules": [schedule(start="99 7 * * *")]}},
            "five fields of cron",
        ),
        (
            "x",
            {"autoscaling": {"maxReplicas": 2, "schedules": [schedule(end="daily")]}},
            "five fields of cron",
        ),
        (
            "x",
            {"autoscaling": {"maxReplicas": 2, "schedules": [schedule(minReplicas=3)]}},
            "in each of autoscaling.schedules",
        ),
        (
            "x",
            {"autoscaling": {"maxReplicas": 2, "provider": "magic"}},
            'supported values: "builtin", "keda", "hpa", "none"',
        ),
        (
            "x",
            {"rollout": {"observe": {"duration": 60, "maxDuration": 30}}},
            "for example duration: 60 with maxDuration: 600",
        ),
        ("x", {"rollout": {"observe": {"ttft": {}}}}, "for example ttft: {p95Seconds: 2}"),
        ("x", {"rollout": {"observe": {"control": 3}}}, "spec.rollout.observe.control"),
        ("x", {"rollout": {"observe": {"control": 60}}}, "spec.rollout.observe.control"),
        (
            "x",
            {"rollout": {"capacity": "InPlace", "observe": {"control": 20}}},
            "rollout.observe.control needs pods of both revisions at the same time; write capacity: Auto or Surge",
        ),
        (
            "x",
            {"rollout": {"strategy": "Recreate", "observe": {"control": 20}}},
            "rollout.observe.control needs pods of both revisions at the same time",
        ),
        ("x", {"rollout": {"strategy": "Canary"}}, "canary: {steps: [{weight: 10, duration: 60}]}"),
        ("x", {"rollout": {"canary": {"steps": [{"weight": 10}]}}}, "rollout.strategy: Canary and"),
        (
            "x",
            {"rollout": {"strategy": "Canary", "canary": {"steps": [{"weight": 50}, {"weight": 10}]}}},
            "must grow",
        ),
        ("x", {"rollout": {"strategy": "Recreate", "capacity": "Surge"}}, "leave rollout.capacity out"),
        ("x", {"rollout": {"strategy": "Recreate", "promotion": "Manual"}}, "write promotion: Auto"),
        ("x", prompts({}), "needs expect (what the answer must contain) or compare"),
        ("x", prompts({"expect": {}}), "needs contains, matches or equals"),
        ("x", prompts({"expect": {"matches": "(?=a)"}}), "error parsing regexp"),
        ("x", prompts({"compare": {"mode": "Judge"}}), "needs endpoint: <namespace>/<name>"),
        (
            "x",
            prompts({"compare": {"mode": "Exact", "minSimilarity": 0.9}}),
            "minSimilarity needs mode: Similarity",
        ),
        (
            "x",
            prompts({"temperature": 0.7, "compare": {"mode": "Exact"}}),
            "leave temperature out, or write mode: Similarity",
        ),
        (
            "x",
            prompts({"temperature": 0.7, "samples": 4, "compare": {"mode": "Similarity"}}),
            "needs samples: 5 or more",
        ),
        ("x", prompts({"minPassing": 1, "compare": {"mode": "Exact"}}), "minPassing needs expect"),
        (
            "x",
            prompts({"minPassing": 2, "expect": {"equals": "4"}}),
            "for example samples: 8 with minPassing: 7",
        ),
        ("x", prompts({"samples": 8, "minPassing": 9, "expect": {"equals": "4"}}), "is at most samples"),
        ("x", prompts({"temperature": 1, "minPassing": 9, "expect": {"equals": "4"}}), "is at most samples"),
        ("x", prompts({"samples": 11, "expect": {"equals": "4"}}), "less than or equal to 10"),
        ("x", prompts({"temperature": 2.5, "expect": {"equals": "4"}}), "less than or equal to 2"),
        ("x", {"terminationGracePeriodSeconds": 5}, "greater than or equal to 15"),
        (
            "x",
            adapters("oci://images.example/a@sha256:1"),
            "for example hf://acme/sql-lora@v2 or pvc://adapters/sql",
        ),
        ("x", adapters("pvc://claim"), "pvc://<claim>/<path>"),
        ("x", adapters("pvc://claim/../other"), "must not contain '..'"),
        ("x", adapters(*["hf://a/b"] * 9), "more entries than engine.maxAdapters; raise engine.maxAdapters"),
        (
            "x",
            {"adapters": [{"name": "chat:sql", "source": "hf://a/b"}]},
            "for example sql. Callers name the model",
        ),
        ("x", {"adapters": [{"name": "a", "source": "hf://a/b"}] * 2}, "Duplicate value"),
        ("x", {"adapters": [{"name": "a"}]}, "spec.adapters[0].source: Required value"),
        ("x", {"engine": {"maxAdapters": 65}}, "less than or equal to 64"),
        (
            "x",
            access("Team_A"),
            "name of a namespace, with a-z, 0-9 and '-', or '*' for all; for example team-b",
        ),
        ("x", access("team-b", "*"), "'*' stands for all namespaces, so it must be the only entry"),
        ("x", access("team-b", "team-b"), "Duplicate value"),
        (
            "x",
            access(*(f"t{n}" for n in range(65))),
            "spec.access.namespaces: Too many: 65: must have at most 64",
        ),
        ("x", {"access": {"namespace": "team-b"}}, 'unknown field "spec.access.namespace"'),
        ("x", {"replica": 2}, 'unknown field "spec.replica"'),
        ("x" * 53, {}, "at most 52 characters"),
        ("1x", {}, "begin with a letter"),
        ("x.y", {}, "for example qwen3-chat"),
    ],
)
def test_a_bad_spec_is_refused_with_what_to_write_instead(
    namespace: Namespace, name: str, spec: dict[str, Any], message: str
) -> None:
    manifest = endpoint(name, namespace.name)
    manifest["spec"] = {"model": {"source": "embedded://demo"}, **spec}
    with pytest.raises(CommandFailed) as caught:
        create(namespace, manifest)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"model": {"source": "pvc://models/qwen3-8b", "servedNames": ["Qwen3:8b", "chat_v1.0"]}},
        {"model": {"source": "file:///models/x"}, "resources": {"cpu": 2, "memory": "1.5Gi"}},
        {"engine": {"device": "cuda"}, "resources": {"accelerator": {"kind": "nvidia.com/gpu"}}},
        {"runtime": {"name": "other", "args": ["--port=1"]}},
        {
            **adapters(*["file:///a", "hf://a/b@main", "s3://bucket/a", "pvc://c/a/b"] * 16),
            "engine": {"maxAdapters": 64},
        },
        {"autoscaling": {"maxReplicas": 4}},
        {"access": {}},
        access("*"),
        access(*(f"t{n}" for n in range(64))),
        {
            "autoscaling": {
                "minReplicas": 2,
                "maxReplicas": 8,
                "idleReplicas": 0,
                "activationThreshold": 2,
                "signals": {
                    "queueDepth": {"target": 4},
                    "kvCacheUtilization": {"target": 0.8},
                    "ttft": {"target": 2},
                },
                "behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}},
                "fallback": {"replicas": 3, "behavior": "currentReplicasIfHigher"},
                "schedules": [
                    schedule(timeZone="Europe/Berlin"),
                    schedule(name="night", start="*/5 22-23 1,15 jan-mar *", end="0 6 * * 0", maxReplicas=3),
                ],
            }
        },
        {
            "model": {
                "source": "s3://models.example/qwen3-8b/",
                "cache": {"claimName": "cache", "scope": "Node"},
                "credentials": {"secretName": "store"},
                "allowPickle": True,
            }
        },
        {"model": {"source": f"oci://images.example/qwen3@sha256:{'a' * 64}"}},
        {
            "slo": {"ttftSeconds": 2, "itlSeconds": 0.1, "e2eSeconds": 30},
            "rollout": {
                "strategy": "Canary",
                "canary": {"steps": [{"weight": 10, "duration": 60}, {"weight": 50}]},
                "observe": {"errorRate": {"max": 0.01, "maxIncrease": 0.005}, "itl": {"maxRatio": 1.5}},
                "verification": {
                    "prompts": [
                        {
                            "name": "capital",
                            "prompt": "Capital of France?",
                            "expect": {"matches": "(?i)paris"},
                        },
                        {
                            "name": "tone",
                            "prompt": "Say hello.",
                            "compare": {"mode": "Similarity", "minSimilarity": 0.7},
                        },
                        {
                            "name": "poem",
                            "prompt": "Write a poem about the sea.",
                            "temperature": 1,
                            "minPassing": 8,
                            "expect": {"contains": ["sea"]},
                            "compare": {"mode": "Similarity"},
                        },
                        {
                            "name": "sum",
                            "prompt": "What is 2 + 2?",
                            "temperature": 0,
                            "samples": 3,
                            "minPassing": 3,
                            "expect": {"contains": ["4"]},
                            "compare": {"mode": "Exact"},
                        },
                        {
                            "name": "few",
                            "prompt": "Say hello.",
                            "temperature": 0.5,
                            "samples": 2,
                            "compare": {"mode": "Judge", "endpoint": "team-a/judge"},
                        },
                    ]
                },
            },
        },
    ],
)
def test_a_good_spec_is_taken(namespace: Namespace, spec: dict[str, Any]) -> None:
    manifest = endpoint("x", namespace.name)
    manifest["spec"] = {"model": {"source": "embedded://demo"}, **spec}
    create(namespace, manifest)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_every_example_of_the_reference_is_taken(namespace: Namespace, kind: str) -> None:
    """All at once: kubectl refuses the whole list where one is refused, or has a field that is not known."""
    needed = {
        "LLMEndpoint": {"model": {"source": "embedded://demo"}},
        "LLMRuntime": {"image": "i"},
        "LLMKey": {"id": "4k2m9x0a7b3c5d8e", "hashes": [{"sha256": "0" * 64}]},
    }[kind]
    items = []
    for number, example in enumerate(EXAMPLES[kind].values()):
        metadata = {"name": f"x{number}", "namespace": namespace.name}
        spec = {**needed, **yaml.safe_load(example)}
        items.append({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec})
    create(namespace, {"apiVersion": "v1", "kind": "List", "items": items})


def test_a_bad_runtime_is_refused(namespace: Namespace) -> None:
    manifest = {
        "apiVersion": "llmendpoint.io/v1alpha1", "kind": "LLMRuntime", "metadata": {"name": "x"},
        "spec": {"image": "i", "probes": {"live": {"path": "health"}}},
    }  # fmt: skip
    with pytest.raises(CommandFailed, match="a probe's path must begin with '/'"):
        create(namespace, manifest)


def with_paths(*paths: Any) -> dict[str, Any]:
    return {
        "apiVersion": "llmendpoint.io/v1alpha1", "kind": "LLMRuntime", "metadata": {"name": "x"},
        "spec": {"image": "i", "paths": list(paths)},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (
            ["/v1/rerank", "/metrics"],
            r"spec.paths\[1\].*the gateway does not pass .*; name paths that callers use, for example",
        ),
        (["/Load"], "the gateway does not pass"),
        (["/v1/load_lora_adapter"], "the gateway does not pass"),
        (["/v1/models/x"], "the gateway does not pass"),
        (["/"], r"spec.paths\[0\].*should be at least 2 chars long"),
        ([7], r"spec.paths\[0\].*must be of type string"),
        ([{"path": "/pooling"}], r"spec.paths\[0\]"),
        (["/team/chat/v1/rerank"], "names an endpoint; write the path that the engine has"),
        (["/a/../load"], r"spec.paths\[0\].*must be a whole path of letters.*for example /v2/rerank"),
        (["pooling"], "must be a whole path"),
        (["/pooling?x=1"], "must be a whole path"),
        (["/" + "a" * 128], r"spec.paths\[0\].*may not be more than 128"),
        ([f"/p{n}" for n in range(17)], r"spec.paths.*must have at most 16 items"),
        (["/pooling", "/pooling"], r"spec.paths\[1\].*Duplicate value"),
    ],
)
def test_a_runtime_that_declares_another_form_or_an_operators_path_is_refused(
    namespace: Namespace, paths: list[Any], message: str
) -> None:
    with pytest.raises(CommandFailed, match=message):
        create(namespace, with_paths(*paths))


def test_a_runtime_may_declare_paths_up_to_every_bound(namespace: Namespace) -> None:
    create(namespace, with_paths("/v1/rerank", "/pooling", "/inference/v1/generate"))
    create(namespace, with_paths(*(f"/{n:02}" + "/a" * 62 for n in range(16))))


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([f"/p{n}" for n in range(17)], r"status.paths.*must have at most 16 items"),
        (["/" + "a" * 128], r"status.paths\[0\].*may not be more than 128"),
        (["/"], r"status.paths\[0\].*should be at least 2 chars long"),
        ([7], r"status.paths\[0\].*must be of type string"),
        ("/pooling", r"status.paths.*must be of type array"),
    ],
)
def test_a_status_with_paths_beyond_a_bound_is_refused(
    namespace: Namespace, paths: Any, message: str
) -> None:
    """Whoever writes it: gateways read it."""
    namespace.apply("paths")
    change = json.dumps({"status": {"paths": paths}})
    with pytest.raises(CommandFailed, match=message):
        namespace.cluster.kubectl(
            "patch",
            "llm",
            "paths",
            "-n",
            namespace.name,
            "--subresource=status",
            "--type=merge",
            "-p",
            change,
        )


def test_kubectl_explain_says_what_a_field_is_for(namespace: Namespace) -> None:
    text = namespace.cluster.kubectl("explain", "llmendpoint.spec.model")
    assert "Which model is served, and under which names." in text
    assert "source\t<string> -required-" in text
    assert "`pvc://<claim>/<path>`" in " ".join(text.split())
    assert "kvCacheMemory" in namespace.cluster.kubectl("explain", "llm.spec.engine")


def test_the_columns_are_those_that_a_person_needs(namespace: Namespace) -> None:
    namespace.apply("columns")
    header, row = namespace.cluster.kubectl("get", "llm", "columns", "-n", namespace.name).splitlines()
    assert header.split() == ["NAME", "READY", "REASON", "REPLICAS", "REVISION", "URL", "AGE"]
    assert row.startswith("columns")
    assert "columns" in namespace.cluster.kubectl("get", "llmendpoint", "-n", namespace.name)
    assert "columns" in namespace.cluster.kubectl("get", "llmep", "-n", namespace.name)
    assert RUNTIME in namespace.cluster.kubectl("get", "llmruntimes")


def test_kubectl_scale_works_without_replicas_in_the_manifest(namespace: Namespace) -> None:
    namespace.apply("scaled")
    namespace.cluster.kubectl("scale", "llm/scaled", "--replicas=3", "-n", namespace.name)
    assert namespace.get("llm", "scaled")["spec"]["replicas"] == 3


def test_client_side_apply_works(namespace: Namespace) -> None:
    namespace.cluster.kubectl("apply", "--dry-run=server", "-f", str(ROOT / "crds"))
