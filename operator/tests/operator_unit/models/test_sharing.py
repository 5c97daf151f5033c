"""docs/contribute/contracts.md: endpoints with equal Jobs share a download, and a fault in one Job holds up no other endpoint."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from llmendpoint_operator.api import EnvVar, PodInputs
from llmendpoint_operator.core.models.files import files_of_revision, hub_of, model_files
from llmendpoint_operator.core.models.jobs import make_download_job, pod_digest
from llmendpoint_operator.core.models.retention import files_name
from llmendpoint_operator.core.models.sharing import find_download
from llmendpoint_operator.core.pods.deployment import make_deployment
from llmendpoint_operator.core.pods.revision import Revision

from ..model_stage import ENDED, REVISION, RUNTIME
from .test_models import CACHED, OWNER, S3, inputs

PLAIN = inputs(CACHED)
ELSEWHERE = inputs(CACHED, resources={"tolerations": [{"key": "gpu", "operator": "Exists"}]})
OTHER_ENV = inputs(CACHED, runtime={"env": [{"name": "AWS_REGION", "value": "eu-north-1"}]})


def job(wanted: PodInputs, name: str = "", condition: str = "") -> dict[str, Any]:
    made = copy.deepcopy(make_download_job("team-a", REVISION, wanted, RUNTIME, name=name))
    if condition:
        made["status"] = {"conditions": [{"type": condition, "status": "True", "lastTransitionTime": ENDED}]}
    return made


def found(jobs: list[dict[str, Any]], wanted: PodInputs) -> tuple[str, bool]:
    """The name of the endpoint's Job, and whether it is there."""
    mine = job(wanted)
    name, live = find_download(jobs, mine, pod_digest(mine))
    return name, live is not None


BASE = job(PLAIN)["metadata"]["name"]


def test_equal_endpoints_share_the_job_of_the_files_name() -> None:
    assert found([], PLAIN) == (BASE, False)
    assert found([job(PLAIN)], inputs({**CACHED, "servedNames": ["other"]})) == (BASE, True)


@pytest.mark.parametrize("wanted", [ELSEWHERE, OTHER_ENV], ids=["on other nodes", "another environment"])
def test_an_endpoint_whose_job_would_be_another_has_its_own(wanted: PodInputs) -> None:
    jobs = [job(PLAIN)]
    name, there = found(jobs, wanted)
    assert (name != BASE, there) == (True, False)
    jobs.append(job(wanted, name))
    assert found(jobs, wanted) == (name, True)
    assert found(jobs, PLAIN) == (BASE, True)
    assert {files_name(one) for one in jobs} == {BASE}


def test_the_other_way_round_too() -> None:
    """A Job that has more than the endpoint wants is no Job of the endpoint's."""
    jobs = [job(ELSEWHERE)]
    assert found(jobs, PLAIN)[0] != BASE


def test_what_one_has_brought_is_there_for_all() -> None:
    """A Job that an operator before this one finished is the record for everybody: nothing is downloaded again."""
    old = job(ELSEWHERE, condition="Complete")
    old["metadata"]["annotations"] = {"llmendpoint.io/model-source": "x"}
    assert files_name(old) == BASE
    for wanted in (PLAIN, ELSEWHERE, OTHER_ENV):
        assert found([old], wanted) == (BASE, True)


def test_a_running_job_of_an_operator_before_is_gone_on_with_where_it_is_equal() -> None:
    old = job(ELSEWHERE)
    del old["metadata"]["annotations"]
    assert found([old], ELSEWHERE) == (BASE, True)


def test_a_failed_job_of_another_endpoint_holds_nobody_up() -> None:
    name, there = found([job(ELSEWHERE, condition="Failed")], PLAIN)
    assert (name != BASE, there) == (True, False)


def test_a_job_that_goes_without_having_brought_anything_hides_no_model_that_is_there() -> None:
    """Its pods may never find a node, and everybody would wait for it."""
    goes = job(ELSEWHERE, "another")
    goes["metadata"]["annotations"]["llmendpoint.io/removing"] = "true"
    for jobs in ([goes, job(PLAIN, condition="Complete")], [job(PLAIN, condition="Complete"), goes]):
        assert found(jobs, PLAIN) == (BASE, True)
    assert found([goes, job(PLAIN)], PLAIN) == ("another", True)


def test_a_finished_job_that_goes_is_waited_for_it_may_take_the_files_along() -> None:
    goes = job(ELSEWHERE, "another", condition="Complete")
    goes["metadata"]["annotations"]["llmendpoint.io/removing"] = "true"
    assert found([job(PLAIN, condition="Complete"), goes], PLAIN) == ("another", True)


HF = {"source": "hf://acme/demo@main", "cache": {"claimName": "cache"}}
HUBS = [
    (HF, "HF_ENDPOINT", "https://mirror.example", "https://mirror.example"),
    (HF, "HF_ENDPOINT", "https://huggingface.co/", ""),
    (HF, "AWS_ENDPOINT_URL", "https://s3.example", ""),
    (S3, "AWS_ENDPOINT_URL", "https://s3.example/", "https://s3.example"),
]


@pytest.mark.parametrize(("model", "name", "value", "hub"), HUBS)
def test_the_hub_is_a_part_of_the_caches_key(model: dict[str, Any], name: str, value: str, hub: str) -> None:
    wanted = inputs(model, runtime={"env": [{"name": name, "value": value}]})
    assert hub_of(wanted, RUNTIME) == hub
    plain, own = model_files(wanted.model, REVISION), model_files(wanted.model, REVISION, hub)
    assert (plain.folder != own.folder) == bool(hub)
    assert (plain.job_name != own.job_name) == bool(hub)


def test_an_empty_variable_of_the_endpoint_does_not_hide_the_platforms_mirror() -> None:
    """The downloader does not get empty ones (core/endpoint/allowed.py)."""
    mirrored = RUNTIME.model_copy(
        update={"env": (EnvVar(name="HF_ENDPOINT", value="https://mirror.example"),)}
    )
    assert (
        hub_of(inputs(HF, runtime={"env": [{"name": "HF_ENDPOINT", "value": ""}]}), mirrored)
        == "https://mirror.example"
    )


@pytest.mark.parametrize(("version", "told"), [(1, False), (2, False), (3, True)])
def test_revisions_of_before_keep_the_folder_that_they_have(version: int, told: bool) -> None:
    env = {"env": [{"name": "HF_ENDPOINT", "value": "https://mirror.example"}]}
    plain, mirrored = (
        Revision("7d9f8c6b54", 1, version, inputs(HF, runtime=runtime), RUNTIME, "", None, REVISION)
        for runtime in ({}, env)
    )
    args = [
        make_deployment(OWNER, one, 1)["spec"]["template"]["spec"]["containers"][0]["args"]
        for one in (plain, mirrored)
    ]
    assert (args[0] != args[1]) == told
    assert (files_of_revision(plain).folder != files_of_revision(mirrored).folder) == told
    assert any(files_of_revision(mirrored).folder in arg for arg in args[1])
