"""README.md: what `make demo` prints of pods and endpoints, from objects as the API server shows them."""

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.errors import ClusterError
from tests.demo.product import Images, merged
from tests.demo.watch import Seen, follow, seen_endpoint, seen_pod


def pod(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "demo-1", **metadata}, "spec": {"nodeName": "node1"}, "status": status}


def condition(kind: str, status: str, message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "message": message, "reason": "Because"}


SCHEDULED = condition("PodScheduled", "True")
BACK_OFF = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}


@pytest.mark.parametrize(
    ("status", "state", "done"),
    [
        ({}, "waiting for the scheduler", False),
        ({"conditions": [condition("PodScheduled", "False", "Insufficient gpu")]}, "Insufficient gpu", False),
        ({"phase": "Pending", "conditions": [SCHEDULED]}, "scheduled on node1", False),
        (
            {"phase": "Pending", "conditions": [SCHEDULED], "containerStatuses": [{"state": BACK_OFF}]},
            "ImagePullBackOff: no such image",
            False,
        ),
        ({"phase": "Running", "conditions": [SCHEDULED]}, "loading the model", False),
        ({"phase": "Running", "conditions": [SCHEDULED, condition("Ready", "True")]}, "Ready", True),
    ],
)
def test_each_step_of_a_pod_has_its_words(status: dict[str, Any], state: str, done: bool) -> None:
    assert seen_pod(pod(status), lambda _: "loading the model") == Seen("pod demo-1", state, done)


def test_a_pod_that_stops_is_not_waited_for() -> None:
    status = {"conditions": [SCHEDULED, condition("Ready", "True")]}
    assert seen_pod(pod(status, deletionTimestamp="now"), None) == Seen("pod demo-1", "stopping", True)


@pytest.mark.parametrize(
    ("observed", "ready", "count", "done"),
    [(1, "True", 2, False), (2, "True", 1, False), (2, "True", 2, True), (2, "False", 0, False)],
)
def test_an_endpoint_is_done_when_all_replicas_of_the_spec_as_it_stands_are_ready(
    observed: int, ready: str, count: int, done: bool
) -> None:
    endpoint = {
        "metadata": {"name": "demo", "generation": 2},
        "spec": {"replicas": 2},
        "status": {
            "observedGeneration": observed,
            "readyReplicas": count,
            "conditions": [condition("Ready", ready)],
        },
    }
    assert seen_endpoint(endpoint).done is done


def test_following_prints_each_change_once_and_ends_when_all_is_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    states = iter(["scheduled", "scheduled", "Ready"])
    follow(lambda: [Seen("pod a", state := next(states), state == "Ready")], 30, 0.0)
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition(": ")[2] for line in lines] == ["scheduled", "Ready"]


def test_following_gives_up_with_what_is_missing() -> None:
    with pytest.raises(ClusterError, match="pod a: loading"):
        follow(lambda: [Seen("pod a", "loading", False), Seen("pod b", "Ready", True)], 0, 0.0)


def test_values_name_images_by_repository_and_tag_and_mount_the_libraries_read_only() -> None:
    values = Images("host:5000/op:1", "gw:2", "srv:3", site_packages=Path("/libraries")).values()
    assert values["operator"]["image"] == {"repository": "host:5000/op", "tag": "1"}
    [volume], [mount] = values["runtime"]["volumes"], values["runtime"]["volumeMounts"]
    assert volume["persistentVolumeClaim"]["readOnly"]
    assert mount["readOnly"]
    assert "volumes" not in Images("op:1", "gw:2", "srv:3").values()["runtime"]


def test_merging_keeps_what_only_one_side_has() -> None:
    assert merged({"a": {"x": 1, "y": 2}, "b": 1}, {"a": {"y": 3}, "c": 4}) == {
        "a": {"x": 1, "y": 3},
        "b": 1,
        "c": 4,
    }


def test_a_cause_is_printed_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    cause = "ImagePullBackOff: " + "failed to resolve the reference: " * 10 + "no such host"
    follow(lambda: [Seen("pod a", cause, True)], 30, 0.0)
    assert capsys.readouterr().out.rstrip().endswith("no such host")
