"""docs/reference/cli.md: `kubectl llm` through the real kubectl on a real API server, with the answers and exit codes of the page.

The test plays the operator and writes what it would.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmendpoint_cli import kubeconfig
from llmendpoint_cli.actions import ask
from llmendpoint_cli.client import Client
from llmendpoint_cli.core.requests import Action, promoted_revision
from tests.cluster import Cluster
from tests.integration.installed import install
from tests.integration.namespace import READY, Namespace

pytestmark = pytest.mark.integration

Json = dict[str, Any]
ANNOTATION = "llmendpoint.io/request"
BLUE, GREEN = "7d9f8c6b54", "0c1d2e3f4a"
SINCE = "2026-11-21T11:59:20Z"
WAITING = {
    "activeRevision": BLUE,
    "targetRevision": GREEN,
    "traffic": {"epoch": 3, "weights": [{"revision": BLUE, "weight": 100}]},
    "rollout": {
        "state": "AwaitingPromotion",
        "blue": BLUE,
        "green": GREEN,
        "mode": "Surge",
        "stateSince": SINCE,
    },
}


class Endpoint:
    """The endpoint `chat` in a namespace of its own, and commands about it."""

    def __init__(self, cluster: Cluster) -> None:
        self.namespace = Namespace(cluster)
        self.namespace.apply(replicas=2)
        self.cluster = cluster
        cluster.apply(working_operator(self.namespace.name))

    def environment(self) -> dict[str, str]:
        """With `kubectl-llm` on PATH, as pip installs it."""
        known = self.cluster.environment
        return {**known, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{known['PATH']}"}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [str(self.cluster.bin / "kubectl"), "llm", *arguments, "-n", self.namespace.name]
        return subprocess.Popen(
            command, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        return finish(self.start(*arguments))

    def get(self) -> Json:
        found: Json = self.namespace.get("llmendpoint", "chat")
        return found

    def write_status(self, *conditions: Json, **status: Any) -> None:
        """Replace fields of the status; observed is the generation as it is now."""
        whole = {"observedGeneration": self.get()["metadata"]["generation"], **status}
        if conditions:
            whole["conditions"] = [{"lastTransitionTime": SINCE, **c} for c in conditions]
        patch = json.dumps({"status": whole})
        self.cluster.kubectl(
            "patch",
            "llm/chat",
            "-n",
            self.namespace.name,
            "--subresource=status",
            "--type=merge",
            "-p",
            patch,
        )

    def request(self) -> Json | None:
        text = self.get()["metadata"].get("annotations", {}).get(ANNOTATION)
        return json.loads(text) if text else None

    def wait_for_request(self, revision: str = GREEN) -> Json:
        """The request about this revision, once it is there."""

        def found() -> Json | None:
            request = self.request()
            return request if request and request["revision"] == revision else None

        result: Json = self.cluster.wait_for(f"a request about {revision}", found, 30)
        return result

    def answer(self, request: Json, outcome: str, message: str) -> None:
        answer = {"id": request["id"], "action": request["action"], "outcome": outcome, "message": message}
        self.write_status(request=answer)


def working_operator(namespace: str) -> Json:
    """The Lease of the operator that the test plays; renewed for as long as any test runs."""
    spec = {"holderIdentity": "test", "renewTime": "2099-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15}
    metadata = {"name": "llmendpoint-operator", "namespace": namespace}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def condition(kind: str, status: bool, reason: str, message: str = "") -> Json:
    return {"type": kind, "status": str(status), "reason": reason, "message": message}


@pytest.fixture
def endpoint(control_plane: Cluster) -> Iterator[Endpoint]:
    install(control_plane)
    found = Endpoint(control_plane)
    yield found
    control_plane.kubectl("delete", "namespace", found.namespace.name, "--wait=false")


def make_pod(endpoint: Endpoint, name: str, revision: str) -> None:
    labels = {"llmendpoint.io/endpoint": "chat", "llmendpoint.io/revision": revision}
    spec = {"containers": [{"name": "engine", "image": "x:1"}], "nodeSelector": {"none": "such"}}
    metadata = {"name": name, "namespace": endpoint.namespace.name, "labels": labels}
    endpoint.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def make_record(endpoint: Endpoint, number: int, revision: str, **inputs: Any) -> None:
    labels = {"llmendpoint.io/endpoint": "chat", "llmendpoint.io/revision": revision}
    metadata = {"name": f"chat-{revision}", "namespace": endpoint.namespace.name, "labels": labels}
    data = {"inputs": {"model": {"source": "embedded://demo"}, **inputs}}
    endpoint.cluster.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": metadata,
            "revision": number,
            "data": data,
        }
    )


def test_status_shows_revisions_pods_and_why_one_is_not_ready(endpoint: Endpoint) -> None:
    for name, revision in (("chat-blue", BLUE), ("chat-green", GREEN)):
        make_pod(endpoint, name, revision)
    endpoint.namespace.write_pod_status("chat-blue", READY)
    endpoint.write_status(condition("Ready", True, "SomeReplicasReady"), **WAITING, readyReplicas=1)

    def scheduled() -> bool:
        return "Unschedulable" in endpoint.run("status")[1]

    endpoint.cluster.wait_for("the scheduler's word", scheduled, 30)
    code, text, _ = endpoint.run("status", "chat")
    assert code == 0
    lines = text.splitlines()
    assert lines[0] == f"{endpoint.namespace.name}/chat  RollingOut  1/2 replicas ready"
    assert any("rollout AwaitingPromotion (Surge)" in line for line in lines)
    assert any(f"revision {BLUE}  active  1/1 pods ready  100 % of new requests" in line for line in lines)
    assert any("pod chat-blue  Ready" in line for line in lines)
    assert any("pod chat-green  Pending" in line and "Unschedulable: " in line for line in lines)
    (found,) = json.loads(endpoint.run("status", "-o", "json")[1])
    assert found["operator"] == "Working"
    assert {r["name"]: [(p["name"], p["phase"]) for p in r["pods"]] for r in found["revisions"]} == {
        BLUE: [("chat-blue", "Ready")],
        GREEN: [("chat-green", "Pending")],
    }


def test_an_endpoint_that_no_operator_has_seen_says_so(endpoint: Endpoint) -> None:
    _, text, _ = endpoint.run("status")
    assert "the operator has not seen generation 1 of the spec yet" in text


def test_watching_for_a_program_gives_a_line_at_every_change(endpoint: Endpoint) -> None:
    process = endpoint.start("status", "chat", "--watch", "-o", "json")
    assert process.stdout is not None
    try:
        assert json.loads(process.stdout.readline())[0]["phase"] == "Pending"
        endpoint.write_status(
            condition("Ready", True, "AllReplicasReady"), activeRevision=BLUE, targetRevision=BLUE
        )
        assert json.loads(process.stdout.readline())[0]["phase"] == "Ready"
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_promote_asks_by_an_annotation_and_prints_the_answer(endpoint: Endpoint) -> None:
    endpoint.write_status(**WAITING)
    before = endpoint.get()
    process = endpoint.start("rollout", "promote", "chat")
    request = endpoint.wait_for_request()
    assert (request["action"], request["revision"]) == ("promote", GREEN)
    endpoint.answer(request, "Accepted", f"revision {GREEN} takes over")
    code, out, err = finish(process)
    assert (code, err) == (0, "")
    assert (
        out.splitlines()[0] == f"{endpoint.namespace.name}/chat: promote {GREEN}: revision {GREEN} takes over"
    )
    after = endpoint.get()
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]


def test_the_request_survives_who_applies_the_manifest_again(endpoint: Endpoint) -> None:
    endpoint.write_status(**WAITING)
    process = endpoint.start("rollout", "promote", "chat", "-o", "json")
    request = endpoint.wait_for_request()
    endpoint.namespace.apply(replicas=2)
    assert endpoint.request() == request
    endpoint.answer(request, "Accepted", "")
    code, out, _ = finish(process)
    assert code == 0
    assert {k: json.loads(out)[k] for k in ("id", "action", "revision", "accepted")} == {
        "id": request["id"], "action": "promote", "revision": GREEN, "accepted": True,
    }  # fmt: skip


def test_what_the_operator_refuses_ends_with_its_words_and_code_4(endpoint: Endpoint) -> None:
    endpoint.write_status(**WAITING)
    process = endpoint.start("rollout", "abort", "chat")
    request = endpoint.wait_for_request()
    assert request["action"] == "abort"
    endpoint.answer(request, "Refused", f"revision {GREEN} has taken over meanwhile")
    code, out, err = finish(process)
    assert (code, out) == (4, "")
    assert err.endswith(f"the operator refuses to abort {GREEN}: revision {GREEN} has taken over meanwhile\n")


@pytest.mark.parametrize("action", ["promote", "abort"])
def test_what_makes_no_sense_is_refused_without_asking(endpoint: Endpoint, action: str) -> None:
    endpoint.write_status(activeRevision=BLUE, targetRevision=BLUE, rollout={"state": "Idle"})
    code, _, err = endpoint.run("rollout", action, "chat")
    assert code == 4
    assert f"no rollout is under way, and revision {BLUE} serves" in err
    assert endpoint.request() is None


def test_without_an_operator_the_wait_ends_and_the_next_request_does_not_overwrite(
    endpoint: Endpoint,
) -> None:
    endpoint.write_status(**WAITING)
    code, _, err = endpoint.run("rollout", "promote", "chat", "--timeout", "1")
    assert code == 5
    assert "timed out after 1 s, waiting for the operator's answer" in err
    assert "the request stays on" in err
    code, _, err = endpoint.run("rollout", "abort", "chat")
    assert code == 4
    assert "has not answered an earlier request yet (promote)" in err
    request = endpoint.request()
    assert request is not None
    assert request["action"] == "promote"


def test_undo_names_the_revision_before_or_the_one_that_is_asked_for_and_writes_its_spec_back(
    endpoint: Endpoint,
) -> None:
    make_record(endpoint, 1, "aaaaaaaaaa")
    make_record(endpoint, 2, BLUE, engine={"maxNumSeqs": 8})
    make_record(endpoint, 3, GREEN, engine={"maxNumSeqs": 4})
    endpoint.write_status(activeRevision=GREEN, targetRevision=GREEN)
    for arguments, expected, engine in (
        ((), BLUE, {"maxNumSeqs": 8}),
        (("--to-revision", "1"), "aaaaaaaaaa", {}),
    ):
        process = endpoint.start("rollout", "undo", "chat", *arguments)
        request = endpoint.wait_for_request(expected)
        spec = endpoint.get()["spec"]
        assert {k: v for k, v in spec["engine"].items() if k == "maxNumSeqs"} == engine, (
            "written with the request"
        )
        assert spec["replicas"] == 2
        endpoint.answer(request, "Accepted", "")
        assert finish(process)[0] == 0
    code, _, err = endpoint.run("rollout", "undo", "chat", "--to-revision", "9")
    assert code == 3
    assert "no revision 9" in err
    _, text, _ = endpoint.run("rollout", "history", "chat")
    assert [line.split()[:3] for line in text.splitlines()[1:]] == [
        ["1", "aaaaaaaaaa", "kept"],
        ["2", BLUE, "kept"],
        ["3", GREEN, "active"],
    ]
    assert "engine.maxNumSeqs: 8 -> 4" in text


def test_rollout_status_follows_to_the_end(endpoint: Endpoint) -> None:
    endpoint.write_status(**WAITING)
    process = endpoint.start("rollout", "status", "chat", "-o", "json")
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert (first["verdict"], first["state"]) == ("Running", "AwaitingPromotion")
    ready = condition("Ready", True, "AllReplicasReady", f"revision {GREEN} answers requests")
    weights = [{"revision": GREEN, "weight": 100}]
    endpoint.write_status(
        ready, activeRevision=GREEN, rollout={"state": "Idle"}, traffic={"epoch": 4, "weights": weights}
    )
    code, out, _ = finish(process)
    last = json.loads(out.splitlines()[-1])
    assert (code, last["verdict"], last["activeRevision"]) == (0, "Done", GREEN)


def test_rollout_status_of_a_revision_that_was_rolled_back_fails_with_the_reason(endpoint: Endpoint) -> None:
    message = "9.8 % of 51 requests failed, allowed are 2 %"
    rejected = {"revision": GREEN, "reason": "ErrorRate", "message": message, "at": SINCE}
    stalled = condition("Stalled", True, "RevisionRejected", message)
    rollout = {**WAITING["rollout"], "state": "RolledBack"}  # type: ignore[dict-item]
    endpoint.write_status(
        condition("Ready", True, "AllReplicasReady"),
        stalled,
        **{**WAITING, "rollout": rollout},
        rejected=rejected,
    )
    code, out, _ = endpoint.run("rollout", "status", "chat")
    assert code == 1
    assert f"failed: revision {GREEN} was rolled back: ErrorRate: {message}; revision {BLUE} serves" in out


def test_rollout_status_that_takes_too_long_says_for_what_it_waited(endpoint: Endpoint) -> None:
    code, out, err = endpoint.run("rollout", "status", "chat", "--timeout", "1")
    assert code == 5
    assert "Pending" in out
    assert f"waiting for the result of the rollout of {endpoint.namespace.name}/chat" in err


def test_a_request_is_about_what_was_looked_at_when_others_write_in_between(endpoint: Endpoint) -> None:
    endpoint.write_status(**WAITING)
    looked: list[str] = []

    def about(found: Json) -> str:
        looked.append(found["metadata"]["resourceVersion"])
        if len(looked) == 1:
            endpoint.write_status(rollout={**WAITING["rollout"], "green": "bbbbbbbbbb"})  # type: ignore[dict-item]
        return promoted_revision(found)

    client = Client(lambda: kubeconfig.load(str(endpoint.cluster.kubeconfig)))
    request = ask(client, endpoint.namespace.name, "chat", Action.PROMOTE, about)
    assert len(set(looked)) == 2
    assert request.revision == "bbbbbbbbbb"
    assert endpoint.request() == json.loads(request.as_annotation())


def test_exit_codes_tell_usage_absence_and_missing_permission_apart(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    assert endpoint.run("rollout", "promote")[0] == 2
    code, _, err = endpoint.run("rollout", "restart", "nobody")
    assert (code, err) == (3, f"error: LLMEndpoint {endpoint.namespace.name}/nobody not found\n")
    token = endpoint.cluster.kubectl("create", "token", "default", "-n", endpoint.namespace.name).strip()
    config = yaml.safe_load(endpoint.cluster.kubeconfig.read_text())
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    code, _, err = endpoint.run("status", "--kubeconfig", str(tmp_path / "config"))
    assert code == 6
    assert "cannot list resource" in err
