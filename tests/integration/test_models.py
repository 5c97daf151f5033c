"""docs/concepts/models.md: Jobs bring models, endpoints share them, and what nobody uses goes, on a real API server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmendpoint_server.weights.sigv4 import Keys
from tests.cluster import Cluster
from tests.hub_stub import MODEL, Hub
from tests.integration.installed import RUNTIME
from tests.integration.model_jobs import ModelJobs
from tests.integration.namespace import Namespace
from tests.integration.operator_process import OperatorProcess
from tests.s3_stub import BUCKET, ObjectStore

pytestmark = pytest.mark.integration

KEYS = Keys("AK", "secret")
FILES = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": bytes(2**18)}
COMMIT = "1" * 40
SOURCE = f"s3://{BUCKET}/demo"
MODEL_SPEC = {"source": SOURCE, "cache": {"claimName": "cache"}, "credentials": {"secretName": "store"}}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    folder = tmp_path_factory.mktemp("commit")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    found = Hub({COMMIT: folder}, main=COMMIT)
    yield found
    found.close()


@pytest.fixture(scope="module")
def operator(prepared: Cluster, hub: Hub) -> Iterator[OperatorProcess]:
    """One that deletes what was unused for a second."""
    arguments = (
        "--model-image",
        "localhost/model:1",
        "--cache-retention-seconds",
        "1",
        "--hub-endpoint",
        hub.url,
    )
    with OperatorProcess(prepared, *arguments) as process:
        yield process


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    found = ObjectStore({f"demo/{name}": content for name, content in FILES.items()}, keys=KEYS)
    yield found
    found.close()


@pytest.fixture
def jobs(operator: OperatorProcess, namespace: Namespace, store: ObjectStore, tmp_path: Path) -> ModelJobs:
    """A namespace with the store's credentials."""
    secret = {
        "AWS_ENDPOINT_URL": store.url, "AWS_REGION": store.region, "AWS_ACCESS_KEY_ID": KEYS.access,
        "AWS_SECRET_ACCESS_KEY": KEYS.secret,
    }  # fmt: skip
    literals = [f"--from-literal={name}={value}" for name, value in secret.items()]
    namespace.cluster.kubectl("create", "secret", "generic", "store", "-n", namespace.name, *literals)
    return ModelJobs(namespace, tmp_path / "volume")


def test_two_endpoints_share_one_download_and_the_last_one_takes_it_with_it(
    jobs: ModelJobs, store: ObjectStore
) -> None:
    namespace, wait_for = jobs.namespace, jobs.namespace.cluster.wait_for
    namespace.apply("first", model=MODEL_SPEC)
    assert jobs.run("model-resolve") == 0
    store.faults.gate = threading.Event()
    pod = jobs.pod("model-download")
    download = jobs.start(pod)
    wait_for(
        "half of the model in the status",
        lambda: namespace.status("first").get("model", {}).get("progress", 0) >= 40,
        30,
    )
    waiting = namespace.wait_condition("Progressing", "True", "ModelDownloading", "first")
    assert f"{SOURCE} at" in waiting["message"]
    assert namespace.items("deployments") == []
    namespace.apply("second", model={**MODEL_SPEC, "servedNames": ["other"]})
    assert jobs.run("model-resolve") == 0
    store.faults.gate.set()
    assert jobs.end(pod, download) == 0
    revisions = {name: namespace.bring_up(1, name) for name in ("first", "second")}
    assert len(jobs.named("model-download")) == 1
    folders = {
        argument.rpartition("/")[2]
        for name in revisions
        for pod in namespace.get("pods", "-l", f"llmendpoint.io/endpoint={name}")["items"]
        for argument in pod["spec"]["containers"][0]["args"]
        if argument.startswith("--model=/models/cache/")
    }
    [folder] = folders
    assert {path.name for path in (jobs.volume / folder).iterdir()} == {*FILES, ".llmendpoint.json"}

    jobs.delete_endpoints("first", "second")
    assert jobs.run("model-remove") == 0
    assert list(jobs.volume.iterdir()) == []
    wait_for("the record to be gone", lambda: not jobs.named("model-download"), 30)


def test_a_removal_that_a_quota_forbids_is_told_and_not_tried_again_at_once(jobs: ModelJobs) -> None:
    namespace, kubectl = jobs.namespace, jobs.namespace.cluster.kubectl
    namespace.apply("first", model=MODEL_SPEC)
    assert jobs.run("model-resolve") == 0
    assert jobs.run("model-download") == 0
    namespace.bring_up(1, "first")
    kubectl("create", "quota", "none", "-n", namespace.name, "--hard=count/jobs.batch=0")
    namespace.cluster.wait_for(
        "the quota to be counted", lambda: namespace.get("quota", "none").get("status", {}).get("used"), 30
    )
    jobs.delete_endpoints("first")

    def told() -> list[dict[str, Any]]:
        events = namespace.get("events", "--field-selector", "reason=ModelNotRemoved")["items"]
        return [event for event in events if event["involvedObject"]["kind"] == "Job"]

    [event] = namespace.cluster.wait_for("an Event of the removal", told, 60)
    assert "exceeded quota" in event["message"]
    assert "attempt 1, the next one in 5 min" in event["message"]
    assert [event["involvedObject"]["name"]] == jobs.named("model-download")
    kubectl("delete", "quota", "none", "-n", namespace.name)
    namespace.apply("second", model=MODEL_SPEC)
    assert jobs.run("model-resolve") == 0
    waits = namespace.wait_condition("Degraded", "True", "ModelNotRemoved", "second")
    assert "exceeded quota" in waits["message"]
    assert jobs.named("model-remove") == [], "the pause goes on"


def test_a_model_on_a_node_leaves_it_with_its_last_revision(jobs: ModelJobs) -> None:
    namespace, wait_for = jobs.namespace, jobs.namespace.cluster.wait_for
    namespace.apply("chat", model={**MODEL_SPEC, "cache": {"claimName": "cache", "scope": "Node"}})
    assert jobs.run("model-resolve") == 0
    [pod] = namespace.pods(namespace.target(), 1)
    assert jobs.named("model-kept") == [], "no node has it yet"
    jobs.bind(pod, "node-1")
    wait_for("a record of the node", lambda: jobs.named("model-kept"), 60)
    [record] = namespace.get("jobs", "-l", "app.kubernetes.io/component=model-kept")["items"]
    assert record["spec"]["suspend"]
    [container] = namespace.get("pod", pod)["spec"]["initContainers"]
    [folder] = [a.partition("=")[2] for a in container["args"] if a.startswith("--name=")]
    (jobs.volume / folder).mkdir(parents=True)
    (jobs.volume / folder / "model.safetensors").write_bytes(b"x")
    jobs.delete_endpoints("chat")
    assert jobs.run("model-kept") == 0
    assert list(jobs.volume.iterdir()) == []
    wait_for("the record to be gone", lambda: not jobs.named("model-kept"), 60)


def test_a_model_that_is_used_again_is_not_deleted(jobs: ModelJobs, operator: OperatorProcess) -> None:
    namespace = jobs.namespace
    namespace.apply("chat", model=MODEL_SPEC)
    assert jobs.run("model-resolve") == 0
    assert jobs.run("model-download") == 0
    first = namespace.bring_up(1)
    namespace.apply("chat", model={"source": "embedded://demo"})
    assert namespace.bring_up(1) != first
    operator.settle()
    assert len(jobs.named("model-download")) == 1, "revisions that are kept use their model"
    assert jobs.named("model-remove") == []


@pytest.mark.parametrize(
    ("change", "reason", "said"),
    [
        ({"demo/model.safetensors": None}, "ModelNotFound", "correct spec.model.source"),
        (
            {"demo/model.safetensors": None, "demo/model.bin": b"x"},
            "ModelFormatRefused",
            "spec.model.allowPickle",
        ),
    ],
)
def test_what_is_no_model_is_told_with_the_field(
    jobs: ModelJobs, store: ObjectStore, change: dict[str, bytes | None], reason: str, said: str
) -> None:
    for key, content in change.items():
        if content is None:
            del store.objects[key]
        else:
            store.objects[key] = content
    jobs.namespace.apply("chat", model=MODEL_SPEC)
    assert jobs.run("model-resolve") in (3, 5)
    found = jobs.namespace.wait_condition("Stalled", "True", reason)
    assert said in found["message"]
    assert SOURCE in found["message"]


def test_content_that_is_not_what_the_source_lists_is_told(jobs: ModelJobs, store: ObjectStore) -> None:
    store.faults.corrupt["demo/model.safetensors"] = 2
    jobs.namespace.apply("chat", model=MODEL_SPEC)
    assert jobs.run("model-resolve") == 0
    assert jobs.run("model-download") == 8
    found = jobs.namespace.wait_condition("Stalled", "True", "ModelCorrupt")
    assert "model.safetensors hashes to" in found["message"]


def test_an_image_volume_is_taken_by_the_api_server(jobs: ModelJobs) -> None:
    namespace, image = jobs.namespace, f"images.example/qwen3@sha256:{'a' * 64}"
    namespace.apply("chat", model={"source": f"oci://{image}"})
    [pod] = namespace.pods(namespace.target(), 1)
    volumes = {volume["name"]: volume for volume in namespace.get("pod", pod)["spec"]["volumes"]}
    assert volumes["model-weights"]["image"] == {"reference": image, "pullPolicy": "IfNotPresent"}


def test_jobs_and_pods_of_models_keep_to_the_restricted_level(jobs: ModelJobs) -> None:
    namespace = jobs.namespace
    label = "pod-security.kubernetes.io/enforce=restricted"
    namespace.cluster.kubectl("label", "namespace", namespace.name, label)
    namespace.apply("cached", model=MODEL_SPEC)
    assert jobs.run("model-resolve") == 0
    assert jobs.pod("model-download")["spec"]["securityContext"]["fsGroup"] == 65532


def test_a_branch_of_a_public_hub_is_asked_for_by_the_operator_and_its_commit_downloaded_by_a_job(
    jobs: ModelJobs, hub: Hub
) -> None:
    namespace = jobs.namespace
    environment = [{"name": "HF_ENDPOINT", "value": hub.url}]
    model = {"source": f"hf://{MODEL}@main", "cache": {"claimName": "cache"}}
    namespace.apply("chat", model=model, runtime={"name": RUNTIME, "env": environment})
    assert jobs.run("model-download") == 0
    assert jobs.named("model-resolve") == []
    [pod] = namespace.pods(namespace.target(), 1)
    args = namespace.get("pod", pod)["spec"]["containers"][0]["args"]
    assert not [argument for argument in args if argument.startswith("--revision")]
    [folder] = jobs.volume.glob("[!.]*")
    assert f"--model=/models/cache/{folder.name}" in args
    assert namespace.status()["model"] == {"revision": COMMIT, "progress": 100}


def test_a_named_secret_goes_to_no_host_of_the_users_choice(jobs: ModelJobs) -> None:
    """With rights on LLMEndpoints alone; the Secret is somebody else's."""
    namespace = jobs.namespace
    evil = "http://127.0.0.1:9"
    for name, variable in (("hub", "HF_ENDPOINT"), ("store", "AWS_ENDPOINT_URL"), ("proxy", "HTTPS_PROXY")):
        source = SOURCE if variable == "AWS_ENDPOINT_URL" else f"hf://{MODEL}"
        spec = {"source": source, "credentials": {"secretName": "store"}}
        namespace.apply(
            name, model=spec, runtime={"name": RUNTIME, "env": [{"name": variable, "value": evil}]}
        )
        message = namespace.wait_condition("Stalled", "True", "HubNotAllowed", name)["message"]
        assert f"spec.runtime.env {variable}" in message
    assert jobs.named("model-resolve") == []
    assert namespace.items("pods") == []
