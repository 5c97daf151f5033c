"""docs/operate/security.md: a Secret that an endpoint names is sent to no host that the platform did not allow."""

from __future__ import annotations

from typing import Any

import pytest

from llmendpoint_operator.api import LLMRuntimeSpec, PodInputs
from llmendpoint_operator.core.models.jobs import make_download_job, make_resolve_job
from llmendpoint_operator.core.pods.deployment import make_deployment
from llmendpoint_operator.core.pods.manifests import Owner
from llmendpoint_operator.core.pods.revision import Revision

from ..fake_cluster import NOW, make_spec
from ..model_stage import REVISION, RUNTIME, ModelCluster

OWNER = Owner("team-a", "chat", "uid-1")
HF: dict[str, Any] = {"source": "hf://acme/demo", "credentials": {"secretName": "payroll"}}
S3: dict[str, Any] = {"source": "s3://models/qwen3-8b", "credentials": {"secretName": "payroll"}}
PUBLIC: dict[str, Any] = {"source": "hf://acme/demo", "cache": {"claimName": "cache"}}
EVIL = "http://listener.evil.example"

PLATFORM = RUNTIME.model_copy(
    update={"env": LLMRuntimeSpec.model_validate({
        "image": "e:1", "env": [{"name": "HTTPS_PROXY", "value": "http://proxy.platform:3128"}]}).env}
)  # fmt: skip


def variables(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"env": [{"name": name, "value": value} for name, value in pairs]}


@pytest.mark.parametrize("model", [HF, S3, PUBLIC], ids=["hub", "store", "no credentials"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_ENDPOINT", EVIL),
        ("HF_ENDPOINT", "https://huggingface.co@evil.example"),
        ("HF_ENDPOINT", "https://huggingface.co/$(HF_TOKEN)"),
        ("AWS_ENDPOINT_URL", EVIL),
        ("AWS_ENDPOINT_URL_S3", EVIL),
        ("AWS_REGION", "x.evil.example/"),
        ("AWS_DEFAULT_REGION", "$(AWS_SECRET_ACCESS_KEY)"),
        ("HTTPS_PROXY", EVIL),
        ("https_proxy", EVIL),
        ("Http_Proxy", EVIL),
        ("ALL_PROXY", EVIL),
        ("no_proxy", "*"),
        ("SSL_CERT_FILE", "/models/cache/ca.crt"),
        ("SSL_CERT_DIR", "/tmp"),
        ("REQUESTS_CA_BUNDLE", "/tmp/ca.crt"),
        ("CURL_CA_BUNDLE", "/tmp/ca.crt"),
        ("AWS_CA_BUNDLE", "/tmp/ca.crt"),
    ],
)
def test_no_pod_with_a_secret_is_made_for_a_host_that_the_platform_does_not_allow(
    model: dict[str, Any], name: str, value: str
) -> None:
    fake = ModelCluster(spec=make_spec(model=model, runtime=variables((name, value))))
    fake.settle(NOW)
    assert fake.jobs() == {}
    assert fake.of_kind("Deployment") == {}
    stalled = fake.condition("Stalled")
    assert stalled["reason"] == "HubNotAllowed"
    assert f"spec.runtime.env {name}: " in stalled["message"]


def test_the_kubelet_writes_no_secret_into_the_name_of_a_folder() -> None:
    """In a container's arguments it replaces $(NAME); the request for that folder goes to the owner of the bucket."""
    source = "s3://bucket-of-mine/$(HF_TOKEN)/x"
    fake = ModelCluster(spec=make_spec(model={**S3, "source": source}))
    fake.settle(NOW)
    assert fake.jobs() == {}
    assert "spec.model.source must not contain '$('" in fake.condition("Stalled")["message"]


@pytest.mark.parametrize("value", ["https://huggingface.co", "https://huggingface.co:443/", ""])
def test_the_platforms_own_hub_may_be_named(value: str) -> None:
    fake = ModelCluster(spec=make_spec(model=HF, runtime=variables(("HF_ENDPOINT", value))))
    fake.reconcile(NOW)
    assert list(fake.jobs()) == ["model-resolve"]


def test_what_runs_already_is_left_alone_by_an_upgrade_and_the_next_revision_is_refused() -> None:
    before = make_spec(model={**HF, "cache": {"claimName": "cache"}})
    fake = ModelCluster(spec=before)
    fake.resolved()
    fake.end("model-download")
    fake.settle(NOW)
    fake.make_ready(fake.target)
    fake.settle(NOW)
    active, jobs = fake.active, set(fake.jobs())
    fake.edit(make_spec(model={**HF, "source": "hf://acme/other"}, runtime=variables(("HF_ENDPOINT", EVIL))))
    fake.settle(NOW)
    assert (fake.active, set(fake.jobs())) == (active, jobs)
    assert fake.condition("Stalled")["reason"] == "HubNotAllowed"
    assert fake.condition("Ready")["status"] == "True"


def test_an_engine_that_downloads_by_itself_has_no_secret_and_may_have_a_hub_of_its_own() -> None:
    fake = ModelCluster(
        spec=make_spec(model={"source": "hf://acme/demo"}, runtime=variables(("HF_ENDPOINT", EVIL)))
    )
    fake.settle(NOW)
    assert fake.condition("Stalled") == {}
    assert fake.condition("Ready")["reason"] == "ModelResolving"


LOADED = [("LD_PRELOAD", "/models/cache/x.so"), ("PYTHONPATH", "/models/cache"), ("SSLKEYLOGFILE", "/models/cache/k"),
          ("AWS_REGION", "eu-north-1"), ("HF_ENDPOINT", "")]  # fmt: skip


def test_a_download_gets_of_the_users_variables_only_those_that_it_needs() -> None:
    inputs = PodInputs.model_validate(
        {"model": {**S3, "cache": {"claimName": "c"}}, "runtime": variables(*LOADED)}
    )
    containers = [
        make_resolve_job(OWNER, "7d9f8c6b54", inputs, PLATFORM)["spec"]["template"]["spec"]["containers"][0],
        make_download_job("team-a", REVISION, inputs, PLATFORM)["spec"]["template"]["spec"]["containers"][0],
        init_container(3, {"runtime": variables(*LOADED)}),
    ]
    for container in containers:
        assert {item["name"]: item.get("value") for item in container["env"]} == {
            "HTTPS_PROXY": "http://proxy.platform:3128",
            "AWS_REGION": "eu-north-1",
        }
        assert container["envFrom"] == [{"secretRef": {"name": "payroll"}}]


def test_the_pods_of_revisions_from_before_keep_their_environment() -> None:
    names = {item["name"] for item in init_container(2, {"runtime": variables(*LOADED)})["env"]}
    assert names == {"HTTPS_PROXY", *(name for name, _ in LOADED)}


def init_container(template_version: int, more: dict[str, Any]) -> dict[str, Any]:
    inputs = PodInputs.model_validate({"model": S3, **more})
    revision = Revision("7d9f8c6b54", 1, template_version, inputs, PLATFORM, "", None, REVISION)
    pod = make_deployment(OWNER, revision, 1)["spec"]["template"]["spec"]
    found: dict[str, Any] = next(c for c in pod["initContainers"] if c["name"] == "model")
    return found
