"""docs/concepts/adapters.md: what the status says, and that no adapter harms its endpoint."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from llmendpoint_operator.core.adapters.awaited import LONGEST_S
from llmendpoint_operator.core.adapters.moves import Load, PodAdapters, Wanted, failed
from llmendpoint_operator.core.endpoint.plan import WriteStatus
from llmendpoint_operator.core.endpoint.steps import Event

from ..adapters_stage import LEGAL, LOADS, QUIET, SQL, Stage, having, serving
from ..fake_cluster import NOW, make_spec

BROKEN = failed(
    PodAdapters({}), Load(Wanted("sql", "hf://acme/sql")), "HTTP 404: no such adapter", 0.0, refused=True
)


def state(stage: Stage) -> tuple[str, str]:
    condition = stage.condition("AdaptersReady")
    return condition["status"], condition["reason"]


def events(stage: Stage) -> list[Event]:
    """Of the pass that settles it."""
    return [e for s in stage.reconcile().steps if isinstance(s, WriteStatus) for e in s.events]


def test_without_adapters_the_status_says_nothing_of_them() -> None:
    stage = serving()
    assert stage.condition("AdaptersReady") == {}
    assert "adapters" not in stage.status


def test_an_adapter_is_ready_when_every_ready_replica_has_it() -> None:
    stage = serving(SQL, LEGAL, replicas=2)
    assert state(stage) == ("False", "Loading")
    one, two = stage.names()
    stage.has = {one: having(SQL, LEGAL), two: having(LEGAL)}
    stage.settle()
    assert stage.entries() == {"sql": (1, ""), "legal": (2, "")}
    assert state(stage) == ("False", "Loading")
    assert "sql (1 of 2 replicas)" in stage.condition("AdaptersReady")["message"]
    stage.has[two] = having(SQL, LEGAL)
    assert Event("AdaptersLoaded", "every ready replica has sql, legal") in events(stage)
    assert state(stage) == ("True", "AllLoaded")
    assert events(stage) == [], "a steady state writes nothing"


def test_an_adapter_that_fails_is_named_and_the_endpoint_stays_as_healthy_as_it_is() -> None:
    stage = serving(SQL, LEGAL)
    stage.has = {stage.names()[0]: replace(having(LEGAL), failures=BROKEN.failures)}
    found = events(stage)
    assert [(e.reason, e.type) for e in found] == [("AdapterFailed", "Warning")]
    assert "hf://acme/sql: HTTP 404: no such adapter" in found[0].message
    assert stage.entries() == {"sql": (0, "HTTP 404: no such adapter"), "legal": (1, "")}
    assert state(stage) == ("False", "LoadFailed")
    assert stage.condition("Ready")["status"] == "True"
    assert stage.condition("Degraded")["status"] == "False"
    assert stage.condition("Stalled") == stage.condition("Reconciling") == {}


def test_an_adapters_token_does_not_come_to_stand_in_the_status() -> None:
    stage = serving(SQL)
    said = failed(PodAdapters({}), Load(Wanted("sql", "hf://acme/sql")), "hf_abcdefghijklmnop refused", 0.0)
    stage.has = {stage.names()[0]: said}
    stage.settle()
    assert "hf_abc" not in str(stage.status)


def test_an_operator_that_has_asked_no_pod_yet_repeats_what_the_status_says() -> None:
    stage = serving(SQL)
    stage.has = {stage.names()[0]: having(SQL)}
    stage.settle()
    stage.has = {}
    assert stage.settle() == 0
    assert state(stage) == ("True", "AllLoaded")


def test_a_runtime_that_loads_none_is_named() -> None:
    stage = Stage(
        make_spec(adapters=[SQL], **QUIET), runtime=LOADS.model_copy(update={"loads_adapters": False})
    )
    stage.settle()
    stage.make_ready(stage.target)
    stage.settle()
    assert state(stage) == ("False", "RuntimeCannotLoad")
    assert stage.entries()["sql"][0] == 0
    assert "loadsAdapters" in stage.entries()["sql"][1]
    assert stage.condition("Ready")["status"] == "True"


def test_without_a_ready_replica_nothing_is_known() -> None:
    stage = Stage(make_spec(adapters=[SQL], replicas=0, **QUIET))
    stage.settle()
    assert state(stage) == ("Unknown", "NoReplica")


def began(stage: Stage, revision: str, at: Any) -> None:
    """Its pods are ready since then."""
    stage.make_ready(revision)
    for pod in stage.pods[revision]:
        pod["status"]["conditions"][0]["lastTransitionTime"] = at.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_new_revision_gets_requests_once_its_replicas_have_the_adapters() -> None:
    stage = serving(SQL)
    blue = stage.active
    stage.with_adapters(SQL, engine={"maxNumSeqs": 2})
    stage.settle()
    began(stage, stage.target, NOW)
    stage.settle()
    assert (stage.state, stage.active) == ("Warming", blue)
    pod = str(stage.pods[stage.target][0]["metadata"]["name"])
    stage.has = {pod: having(SQL)}
    stage.settle()
    assert stage.active == stage.target != blue


def test_a_first_revision_answers_without_waiting_for_adapters() -> None:
    stage = Stage(make_spec(adapters=[SQL], **QUIET))
    stage.settle()
    began(stage, stage.target, NOW)
    stage.settle()
    assert stage.active == stage.target
    assert state(stage) == ("False", "Loading")


def test_a_new_revision_waits_neither_for_a_broken_adapter_nor_for_a_slow_one_for_long() -> None:
    for what in ("broken", "slow"):
        stage = serving(SQL)
        blue = stage.active
        stage.with_adapters(SQL, engine={"maxNumSeqs": 2})
        stage.settle()
        began(stage, stage.target, NOW)
        plan = stage.reconcile()
        stage.settle()
        assert stage.active == blue
        assert plan.requeue_after is not None
        assert plan.requeue_after <= LONGEST_S
        if what == "broken":
            stage.has = {str(stage.pods[stage.target][0]["metadata"]["name"]): BROKEN}
            stage.settle()
        else:
            stage.settle(NOW + timedelta(seconds=LONGEST_S))
        assert stage.active == stage.target != blue, what
