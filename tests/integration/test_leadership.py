"""docs/contribute/contracts.md: one process works, by the Lease, and each change of a spec is told once with who and what.

The operators are real processes.
"""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.cluster import Cluster
from tests.integration.namespace import Namespace
from tests.integration.operator_process import OperatorProcess

pytestmark = pytest.mark.integration


def log_lines(operator: OperatorProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in operator.log.read_text().splitlines() if line.startswith("{")]


def changes(namespace: Namespace, name: str = "chat") -> list[dict[str, Any]]:
    """SpecChanged Events, the oldest first."""
    found = [
        event
        for event in namespace.get("events")["items"]
        if event["reason"] == "SpecChanged" and event["involvedObject"]["name"] == name
    ]
    return sorted(found, key=lambda event: int(event["metadata"]["resourceVersion"]))


def wait_changes(namespace: Namespace, count: int, name: str = "chat") -> list[str]:
    def found() -> list[str] | None:
        messages = [event["message"] for event in changes(namespace, name)]
        return messages if len(messages) >= count else None

    messages: list[str] = namespace.cluster.wait_for(f"{count} spec changes to be told", found, 30)
    assert len(messages) == count
    return messages


def test_each_change_is_told_once_with_who_what_and_which_revision(
    prepared: Cluster, namespace: Namespace
) -> None:
    secret = {"env": [{"name": "TOKEN", "value": "s3cret"}], "name": "integration"}
    with OperatorProcess(prepared) as operator:
        namespace.apply()
        first = namespace.target()
        [created] = wait_changes(namespace, 1)
        assert created.startswith("generation 1: kubectl-client-side-apply (Update) created at 20")
        assert f"revision {first}, model embedded://demo, accelerator none" in created
        namespace.apply(engine={"maxNumSeqs": 4}, runtime=secret)
        second = namespace.target()
        edited = wait_changes(namespace, 2)[1]
        assert "changed engine.maxNumSeqs (unset -> 4), runtime.env[TOKEN] at" in edited
        assert f"revision {second}" in edited
        namespace.cluster.kubectl("scale", "llm/chat", "--replicas=2", "-n", namespace.name)
        scaled = wait_changes(namespace, 3)[2]
        assert scaled.startswith(
            f"generation 3: kubectl (Update) changed replicas (1 -> 2); revision {second}"
        )
        logged = [line for line in log_lines(operator) if line["event"] == "spec changed"]
        mine = [line for line in logged if line["endpoint"] == f"{namespace.name}/chat"]
        assert [line["fields"] for line in mine] == [
            None,
            ["engine.maxNumSeqs", "runtime.env[TOKEN]"],
            ["replicas"],
        ]
        assert "s3cret" not in operator.log.read_text()
        assert "s3cret" not in json.dumps(namespace.get("events"))


def test_a_restart_repeats_nothing_and_tells_what_was_changed_meanwhile(
    prepared: Cluster, namespace: Namespace
) -> None:
    with OperatorProcess(prepared) as operator:
        namespace.apply(engine={"maxNumSeqs": 2})
        namespace.apply("other")
        namespace.target()
        namespace.target("other")
        wait_changes(namespace, 1)
        wait_changes(namespace, 1, "other")
        assert operator.stop() == 0
        namespace.apply(engine={"maxNumSeqs": 4})
        operator.start()
        told = wait_changes(namespace, 2)[1]
        assert told.startswith(
            "generation 2: kubectl-client-side-apply (Update) changed engine.maxNumSeqs (2 -> 4) at"
        )
        operator.settle()
        assert [event["count"] for event in changes(namespace)] == [1, 1]
        assert [event["count"] for event in changes(namespace, "other")] == [1]


def test_one_change_of_an_endpoint_is_one_look_at_it(prepared: Cluster, namespace: Namespace) -> None:
    """Endpoints of other tests are not looked at: this operator sees its own namespace alone."""
    with OperatorProcess(prepared, "--watch-namespace", namespace.name) as operator:
        namespace.apply()
        namespace.target()
        operator.settle()
        before = operator.reconciles()
        prepared.kubectl("label", "llmendpoint", "chat", "-n", namespace.name, "team=a")
        operator.settle()
        assert operator.reconciles() == before + 1


def test_what_is_put_back_again_and_again_is_one_event_that_counts(
    prepared: Cluster, namespace: Namespace
) -> None:
    patch = json.dumps({"spec": {"selector": {"llmendpoint.io/revision": "other"}}})

    def count() -> int:
        found = [e for e in namespace.get("events")["items"] if e["reason"] == "ServiceRestored"]
        found += [e for e in namespace.get("events")["items"] if e["reason"] == "ChildRestored"]
        assert len({e["message"] for e in found}) == len(found)
        return sum(int(e["count"]) for e in found)

    with OperatorProcess(prepared):
        namespace.apply()
        headless = f"chat-{namespace.target()}"
        namespace.cluster.wait_for("its Service", lambda: headless in {s["metadata"]["name"] for s in namespace.items("services")}, 30)  # fmt: skip
        for times in range(1, 4):
            namespace.cluster.kubectl(
                "patch", "service", headless, "-n", namespace.name, "--type=merge", "-p", patch
            )
            namespace.cluster.wait_for(f"it to be put back {times} times", lambda n=times: count() == n, 30)  # type: ignore[misc]


def test_a_leader_that_was_frozen_writes_nothing_when_it_wakes_up(
    prepared: Cluster, namespace: Namespace
) -> None:
    with OperatorProcess(prepared) as frozen, OperatorProcess(prepared).start("standby") as standby:
        namespace.apply()
        first = namespace.target()
        frozen.settle()
        assert standby.writes() == 0
        assert standby.page("/healthz") == {"status": "ok", "leading": False}
        frozen.send(signal.SIGSTOP)
        prepared.wait_for(
            "the standby to take over", lambda: standby.page("/readyz") == {"status": "ready"}, 60
        )
        wrote = sum(line["event"] == "wrote" for line in log_lines(frozen))
        namespace.apply(engine={"maxNumSeqs": 4})
        second = namespace.target()
        assert second != first
        frozen.send(signal.SIGCONT)
        assert frozen.wait() == 1, "it ends, so that it is started anew and waits for the lease"
        lines = log_lines(frozen)
        assert sum(line["event"] == "wrote" for line in lines) == wrote
        assert any("the lease went to" in line.get("reason", "") for line in lines)
