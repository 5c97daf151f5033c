"""docs/concepts/models.md: a model is resolved, then downloaded once, and only then pods start that find it."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmendpoint_operator.api import LLMRuntimeSpec, ModelSpec, PodInputs
from llmendpoint_operator.core.models.files import Delivery, delivery, model_files
from llmendpoint_operator.core.models.jobs import make_download_job, make_remove_job, make_resolve_job
from llmendpoint_operator.core.models.tasks import EXITS, Stage, fetch_failed, read_task
from llmendpoint_operator.core.pods.deployment import make_deployment
from llmendpoint_operator.core.pods.manifests import Owner
from llmendpoint_operator.core.pods.revision import Revision
from llmendpoint_operator.observe.models.progress import percent

from ..fake_cluster import NOW, make_spec
from ..model_stage import REVISION, RUNTIME, ModelCluster, ended_pod

GOLDEN = Path(__file__).parents[1] / "golden"
OWNER = Owner("team-a", "chat", "uid-1")
S3 = {"source": "s3://models/qwen3-8b", "credentials": {"secretName": "store"}}
CACHED: dict[str, Any] = {**S3, "cache": {"claimName": "cache"}}
NODE = {
    "source": "hf://acme/demo@main",
    "cache": {"claimName": "cache", "scope": "Node"},
    "allowPickle": True,
}
OCI = {"source": f"oci://images.example/qwen3@sha256:{'a' * 64}"}


def inputs(model: dict[str, Any], **more: Any) -> PodInputs:
    return PodInputs.model_validate({"model": model, **more})


def deployment(model: dict[str, Any], **more: Any) -> dict[str, Any]:
    commit = "" if model is OCI else REVISION
    return make_deployment(
        OWNER, Revision("7d9f8c6b54", 1, 1, inputs(model, **more), RUNTIME, "", None, commit), 1
    )


def engine(model: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = deployment(model)["spec"]["template"]["spec"]["containers"][0]
    return found


TOLERANT = inputs(
    CACHED, resources={"nodeSelector": {"gpu": "h100"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]},
    runtime={"env": [{"name": "AWS_REGION", "value": "eu-north-1"}]},
)  # fmt: skip
DOWNLOAD_JOB = make_download_job("team-a", REVISION, TOLERANT, RUNTIME)
CASES = {
    "job_model_resolve": make_resolve_job(OWNER, "7d9f8c6b54", inputs(S3), RUNTIME),
    "job_model_download": DOWNLOAD_JOB,
    "job_model_remove": make_remove_job(DOWNLOAD_JOB),
    "deployment_cache_shared": deployment(CACHED),
    "deployment_cache_node": deployment(NODE),
    "deployment_image_volume": deployment(OCI),
}


@pytest.mark.parametrize("name", CASES)
def test_a_manifest_is_exactly_as_in_its_golden_file(name: str) -> None:
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(yaml.safe_dump(CASES[name], sort_keys=False, width=118))
    assert CASES[name] == yaml.safe_load(path.read_text())


@pytest.mark.parametrize(
    ("model", "how"),
    [
        ({"source": "embedded://demo"}, Delivery.DIRECT),
        ({"source": "pvc://models/x"}, Delivery.DIRECT),
        (OCI, Delivery.DIRECT),
        ({"source": "hf://acme/demo"}, Delivery.DIRECT),
        ({"source": "hf://acme/demo", "credentials": {"secretName": "t"}}, Delivery.POD),
        ({"source": "hf://acme/demo", "allowPickle": True}, Delivery.POD),
        ({"source": "s3://models/x"}, Delivery.POD),
        (NODE, Delivery.POD),
        (CACHED, Delivery.JOB),
    ],
)
def test_who_downloads_follows_from_source_cache_and_credentials(
    model: dict[str, Any], how: Delivery
) -> None:
    assert delivery(ModelSpec.model_validate(model)) is how


def test_the_engine_is_told_a_folder_that_it_can_only_read() -> None:
    for model, root in ((CACHED, "/models/cache"), (NODE, "/models/cache"), (S3, "/models/fetched")):
        folder = model_files(ModelSpec.model_validate(model), REVISION).folder
        assert engine(model)["args"] == [f"--model={root}/{folder}"]
        mount = next(m for m in engine(model)["volumeMounts"] if m["name"] == "model-weights")
        assert mount == {"name": "model-weights", "mountPath": root, "readOnly": True}
    assert engine(OCI)["args"] == ["--model=/models/image"]
    assert engine({"source": "hf://acme/demo@main"})["args"] == [
        "--model=hf://acme/demo",
        f"--revision={REVISION}",
    ]


def test_the_engine_never_gets_the_credentials() -> None:
    assert "envFrom" not in engine(S3)
    [fetcher] = deployment(S3)["spec"]["template"]["spec"]["initContainers"]
    assert fetcher["envFrom"] == [{"secretRef": {"name": "store"}}]


def test_files_are_shared_by_those_who_could_download_them_all_the_same() -> None:
    first = model_files(ModelSpec.model_validate(CACHED), REVISION)
    renamed = model_files(ModelSpec.model_validate({**CACHED, "servedNames": ["other"]}), REVISION)
    assert first == renamed
    others = [
        {**CACHED, "credentials": None}, {**CACHED, "allowPickle": True}, {**CACHED, "source": "s3://models/other"},
    ]  # fmt: skip
    found = {model_files(ModelSpec.model_validate(m), REVISION).folder for m in others} | {first.folder}
    found.add(model_files(ModelSpec.model_validate(CACHED), "5" * 40).folder)
    assert len(found) == 5
    elsewhere = model_files(ModelSpec.model_validate({**CACHED, "cache": {"claimName": "other"}}), REVISION)
    assert elsewhere.folder == first.folder
    assert elsewhere.job_name != first.job_name


def test_no_pod_is_made_before_the_model_lies_in_the_cache() -> None:
    fake = ModelCluster(spec=make_spec(model=CACHED))
    fake.reconcile(NOW)
    assert list(fake.jobs()) == ["model-resolve"]
    assert fake.condition("Ready")["reason"] == "ModelResolving"
    assert fake.condition("Degraded")["status"] == "False"
    fake.end("model-resolve", message=f'{{"revision": "{REVISION}"}}')
    fake.reconcile(NOW)
    assert "model-download" in fake.jobs()
    fake.reconcile(NOW)
    assert fake.condition("Ready")["reason"] == "ModelDownloading"
    assert fake.condition("Progressing")["message"].endswith("is downloaded to claim cache: 0 %")
    assert fake.status["model"] == {"revision": REVISION, "progress": 0}
    assert fake.of_kind("Deployment") == {}
    assert fake.at(NOW).steps == ()
    fake.end("model-download")
    fake.settle(NOW)
    assert len(fake.of_kind("Deployment")) == 1
    assert fake.status["model"] == {"revision": REVISION, "progress": 100}


def test_the_old_revision_goes_on_while_the_model_of_the_new_one_is_downloaded() -> None:
    fake = ModelCluster(spec=make_spec())
    fake.settle(NOW)
    old = fake.target
    fake.make_ready(old)
    fake.settle(NOW)
    assert fake.active == old
    fake.edit(make_spec(model=CACHED))
    fake.resolved()
    fake.settle(NOW)
    assert fake.active == old
    assert fake.replicas() == {old: 1}
    assert fake.condition("Ready")["status"] == "True"
    assert fake.condition("Progressing")["reason"] == "ModelDownloading"
    fake.end("model-download")
    fake.settle(NOW)
    assert len(fake.replicas()) == 2


@pytest.mark.parametrize("code", [code for code in EXITS if code != 1])
def test_a_model_that_cannot_be_had_is_told_with_the_field_and_begun_anew_later(code: int) -> None:
    fake = ModelCluster(spec=make_spec(model=CACHED))
    fake.resolved()
    fake.end("model-download", code, '{"event": "s3://models/qwen3-8b: what was wrong"}')
    fake.settle(NOW)
    reason, hint, _ = EXITS[code]
    stalled = fake.condition("Stalled")
    assert stalled["reason"] == reason
    assert stalled["message"] == f"s3://models/qwen3-8b: what was wrong; {hint}"
    assert "spec.model." in stalled["message"]
    assert fake.at(NOW).requeue_after == 300
    fake.reconcile(NOW + timedelta(seconds=301))
    assert "model-download" not in fake.jobs()
    fake.reconcile(NOW + timedelta(seconds=302))
    assert "model-download" in fake.jobs()


def test_a_source_that_does_not_answer_is_no_reason_to_give_up() -> None:
    fake = ModelCluster(spec=make_spec(model=CACHED))
    fake.resolved()
    fake.end("model-download", 1, "the store answers 503", failed=False)
    fake.settle(NOW)
    assert fake.condition("Degraded")["reason"] == "ModelUnavailable"
    assert fake.condition("Stalled") == {}


def test_a_source_that_cannot_be_resolved_is_told_alike() -> None:
    fake = ModelCluster(spec=make_spec(model=S3))
    fake.reconcile(NOW)
    fake.end("model-resolve", 7, '{"event": "s3://models/qwen3-8b: 403"}')
    fake.settle(NOW)
    assert fake.condition("Stalled")["reason"] == "ModelAccessDenied"
    assert "spec.model.credentials.secretName" in fake.condition("Stalled")["message"]


def test_without_an_image_for_it_nothing_is_begun() -> None:
    runtime = LLMRuntimeSpec.model_validate({"image": "engine:1"})
    fake = ModelCluster(spec=make_spec(model=CACHED), runtime=runtime)
    fake.settle(NOW)
    assert fake.jobs() == {}
    assert "models.image" in fake.condition("Stalled")["message"]


def test_a_pod_whose_download_fails_says_so_though_its_engine_never_began() -> None:
    fake = ModelCluster(spec=make_spec(model=S3))
    fake.resolved()
    fake.settle(NOW)
    [pod] = fake.pods[fake.target]
    ended = ended_pod("x", 6, "the volume has 1 MiB free")["status"]["containerStatuses"]
    pod["status"]["initContainerStatuses"] = ended
    fake.settle(NOW)
    assert fake.condition("Degraded")["reason"] == "ModelCacheFull"


def test_a_job_on_its_way_out_is_not_relied_upon() -> None:
    job = {"metadata": {"name": "j", "annotations": {"llmendpoint.io/unused-since": "x"}}, "status": {}}
    assert read_task(job, ()).stage is Stage.LEAVING
    assert read_task({"metadata": {"name": "j", "deletionTimestamp": "x"}}, ()).stage is Stage.LEAVING
    assert read_task(None, ()).stage is Stage.ABSENT


def test_the_last_of_several_failures_is_told() -> None:
    first, second = ended_pod("a", 1, "first"), ended_pod("b", 3, "second")
    first["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = "2025-01-01T00:00:00Z"
    found = fetch_failed([second, first])
    assert found is not None
    assert found.message.startswith("second")
    assert fetch_failed([ended_pod("c", 0)]) is None


def test_a_secret_that_is_not_there_is_told_with_its_field() -> None:
    waiting = {"reason": "CreateContainerConfigError", "message": 'secret "store" not found'}
    pod = {
        "metadata": {"name": "p"},
        "status": {"containerStatuses": [{"name": "model", "state": {"waiting": waiting}}]},
    }
    found = fetch_failed([pod])
    assert found is not None
    assert 'secret "store" not found; see spec.model.credentials.secretName' in found.message


def test_progress_goes_in_tenths_and_is_whole_only_when_the_job_is() -> None:
    answers = [(0, 0), (5, 100), (19, 100), (99, 100), (100, 100), (-3, 100)]
    assert [percent({"bytes": b, "total": t}) for b, t in answers] == [0, 0, 10, 90, 90, 0]
    assert percent({"bytes": "x"}) is None
    assert percent([]) is None


def test_a_question_that_failed_is_left_to_its_own_end_and_then_asked_again() -> None:
    fake = ModelCluster(spec=make_spec(model=S3))
    fake.reconcile(NOW)
    fake.end("model-resolve", 3, "there is nothing")
    fake.settle(NOW)
    assert fake.at(NOW + timedelta(seconds=301)).steps == ()
    fake.objects.clear()
    fake.reconcile(NOW + timedelta(seconds=302))
    assert list(fake.jobs()) == ["model-resolve"]
