"""docs/reference/cli.md: `kubectl llm keys` prints a key once, alone, and sends the cluster nothing but its hash."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from llmendpoint_cli.__main__ import app
from llmendpoint_cli.core.keys import (
    appliers,
    grant_texts,
    make_grants,
    make_key,
    parse_duration,
    rotated,
    unusable,
    view_of,
)
from llmendpoint_cli.errors import BadUsage, CliError, Conflict, NoAccess, NotFound, Refused

from .api_server import ApiServer, status_text
from .samples import Json

KEYS = "/apis/llmendpoint.io/v1alpha1/namespaces/team-a/llmkeys"
FORM = re.compile(r"llm_([a-z0-9]{16})_[A-Za-z0-9_-]{43}")
ID = "4k2m9x0a7b3c5d8e"
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def key(*hashes: Json, **spec: Any) -> Json:
    entries = list(hashes) or [{"sha256": "0" * 64}]
    metadata = {"name": "ci", "namespace": "team-a", "resourceVersion": "7", "uid": "u"}
    return {"metadata": metadata, "spec": {"id": ID, "hashes": entries, "priority": "Normal", **spec}}


def run(config: str, *arguments: str) -> Result:
    result = CliRunner().invoke(app, ["keys", *arguments, "--kubeconfig", config])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def sha256(text: str, namespace: str = "team-a") -> str:
    inner = hashlib.sha256(text.encode()).hexdigest()
    return hashlib.sha256(f"{namespace}/{inner}".encode()).hexdigest()


def writes(server: ApiServer) -> list[tuple[str, str, Any]]:
    return [(verb, path, body) for verb, path, _, body in server.asked if verb != "GET"]


@pytest.fixture
def cluster(server: ApiServer) -> ApiServer:
    """A key `ci`, and no endpoint."""
    server.answers = {
        "/llmendpoints/": (404, status_text("not found")),
        "/llmkeys": (200, key(grants=[{"name": "chat"}])),
    }
    return server


def test_a_key_alone_is_on_standard_output_and_the_cluster_gets_its_hash(
    cluster: ApiServer, config: str
) -> None:
    result = run(config, "create", "ci", "--grant", "chat", "--grant", "team-b/*")
    text = result.stdout.removesuffix("\n")
    assert (found := FORM.fullmatch(text))
    [(verb, path, body)] = writes(cluster)
    assert (verb, path) == ("POST", f"{KEYS}?fieldManager=kubectl-llm")
    assert body["metadata"] == {"name": "ci", "namespace": "team-a"}
    assert body["spec"] == {
        "id": found[1],
        "hashes": [{"sha256": sha256(text)}],
        "grants": [{"name": "chat"}, {"namespace": "team-b"}],
    }
    assert text not in json.dumps(cluster.asked)
    assert text not in result.stderr
    assert "made, for chat, team-b/*" in result.stderr


def test_a_hash_is_bound_to_the_namespace_of_its_llmkey_and_the_gateway_makes_the_same() -> None:
    """gateway/tests/identity/test_copies.py has the same three literals: the two parts share no code."""
    text = "llm_4k2m9x0a7b3c5d8e_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    known = "7b8eee6988f35bb739e8fe30d409e56548d8e905faa9f6970fcfc46d880ace3c"
    made = make_key("team-a", "ci", ID, text)
    assert made["spec"]["hashes"] == [{"sha256": known}]
    assert rotated(made, text, NOW, 0 * DAY) == [{"sha256": known}]
    assert make_key("team-b", "ci", ID, text)["spec"]["hashes"] != [{"sha256": known}]


def test_a_write_says_what_its_body_is(cluster: ApiServer, config: str) -> None:
    run(config, "create", "ci", "--all")
    run(config, "revoke", "ci")
    kinds = [headers["Content-Type"] for verb, _, headers, _ in cluster.asked if verb in ("POST", "PATCH")]
    assert kinds == ["application/json", "application/merge-patch+json"]


def test_no_two_keys_are_alike(cluster: ApiServer, config: str) -> None:
    texts = {run(config, "create", "ci", "--all").stdout for _ in range(20)}
    assert len(texts) == len({text.split("_")[1] for text in texts}) == 20


def test_a_key_may_expire_and_have_a_priority(cluster: ApiServer, config: str) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    run(config, "create", "ci", "--all", "--expires", "30d", "--priority", "low")
    spec = writes(cluster)[0][2]["spec"]
    assert before <= datetime.fromisoformat(spec["expires"]) - 30 * DAY <= datetime.now(UTC)
    assert (spec["priority"], spec["grants"]) == ("Low", [{}])


def test_json_has_the_key_and_what_it_is_for(cluster: ApiServer, config: str) -> None:
    result = run(config, "create", "ci", "--grant", "chat", "-o", "json")
    found = json.loads(result.stdout)
    assert FORM.fullmatch(found.pop("key"))
    assert found == {
        "namespace": "team-a", "name": "ci", "id": ID, "grants": ["chat"], "priority": "Normal", "state": "Active"
    }  # fmt: skip


def test_a_dry_run_asks_no_cluster_and_prints_a_manifest_and_apart_from_it_the_key(tmp_path: Any) -> None:
    arguments = ("create", "ci", "-n", "team-a", "--grant", "chat", "--dry-run")
    result = run(str(tmp_path / "there is no kubeconfig"), *arguments)
    text, manifest = result.stderr.removesuffix("\n"), yaml.safe_load(result.stdout)
    assert FORM.fullmatch(text)
    assert manifest["kind"] == "LLMKey"
    assert manifest["spec"]["hashes"] == [{"sha256": sha256(text)}]
    assert text not in result.stdout
    assert json.loads(run("none", *arguments, "-o", "json").stdout)["kind"] == "LLMKey"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name what the key may use: --grant NAME"),
        (("--grant", ""), "--grant takes NAME, NAMESPACE/NAME"),
        (("--grant", "/chat"), "--grant takes NAME, NAMESPACE/NAME"),
        (("--grant", "a/b/c"), "--grant takes NAME, NAMESPACE/NAME"),
        (("--grant-label", "tier"), "--grant-label takes KEY=VALUE"),
        (("--grant-label", "=gold"), "--grant-label takes KEY=VALUE"),
        (("--grant", "a") * 65, "at most 64 grants"),
        (("--grant-label", "a=b") * 17, "at most 16 labels"),
        (("--all", "--expires", "soon"), "--expires takes a number and s, m, h or d"),
        (("--all", "--expires", "3651d"), "at most 3650d"),
        (("--all", "--expires", "0d"), "--expires must be more than 0"),
    ],
)
def test_a_key_that_makes_no_sense_is_not_made(
    cluster: ApiServer, config: str, arguments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(BadUsage, match=re.escape(said)):
        run(config, "create", "ci", *arguments)
    assert cluster.asked == []


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (
            (409, status_text("already exists")),
            Refused,
            "exists already; take another name, or make a new key",
        ),
        ((422, status_text("spec.grants[0].name: no")), Refused, "spec.grants[0].name: no"),
        ((403, status_text("no")), NoAccess, "LLMKey team-a/ci: no"),
        ((404, "404 page not found"), NotFound, "this cluster has no LLMKeys"),
    ],
)
def test_no_key_is_printed_that_the_cluster_did_not_take(
    server: ApiServer, config: str, capsys: Any, answer: tuple[int, Any], error: type[CliError], said: str
) -> None:
    server.answer = answer
    with pytest.raises(error, match=re.escape(said)):
        run(config, "create", "ci", "--all")
    assert not FORM.search("".join(capsys.readouterr()))


def test_a_grant_without_effect_is_warned_of(cluster: ApiServer, config: str) -> None:
    assert (
        "Warning: LLMEndpoint team-a/chat does not exist yet" in run(config, "create", "ci", "--all").stderr
    )
    cluster.answers["/llmendpoints/"] = (403, status_text("no"))
    assert "Warning" not in run(config, "create", "ci", "--all").stderr


@pytest.mark.parametrize(
    ("namespace", "access", "said"),
    [
        ("team-a", None, None),
        ("team-b", None, "team-b/chat does not allow keys of namespace team-a yet"),
        ("team-b", {}, "its spec.access.namespaces must have team-a"),
        ("team-b", {"namespaces": ["team-c"]}, "does not allow keys"),
        ("team-b", {"namespaces": ["team-c", "team-a"]}, None),
        ("team-b", {"namespaces": ["*"]}, None),
    ],
)
def test_a_key_of_another_namespace_needs_the_endpoints_access_too(
    namespace: str, access: Json | None, said: str | None
) -> None:
    spec = {"access": access} if access is not None else {}
    endpoint = {"metadata": {"name": "chat", "namespace": namespace}, "spec": spec}
    found = unusable(key(), {"namespace": namespace, "name": "chat"}, endpoint)
    assert found is None if said is None else said in str(found)


def test_a_list_shows_what_keys_are_for_and_whether_they_are_accepted(server: ApiServer, config: str) -> None:
    server.answer = (200, {"items": [key(grants=[{}, {"namespace": "b", "matchLabels": {"tier": "gold"}}])]})
    header, row = run(config, "list").stdout.splitlines()
    assert header.split() == ["KEY", "ID", "GRANTS", "PRIORITY", "EXPIRES", "STATE"]
    assert row.split() == ["team-a/ci", ID, "*,", "b/tier=gold", "Normal", "never", "Active"]
    [found] = json.loads(run(config, "list", "-A", "-o", "json").stdout)
    assert found["grants"] == ["*", "b/tier=gold"]
    assert [path for _, path, _, _ in server.asked][-1] == ("/apis/llmendpoint.io/v1alpha1/llmkeys")
    server.answer = (200, {"items": []})
    assert "no LLMKey in namespace team-a" in run(config, "list").stderr


def before(hours: float) -> str:
    return (NOW - timedelta(hours=hours)).isoformat()


@pytest.mark.parametrize(
    ("found", "state", "old_until"),
    [
        (key(), "Active", None),
        (key(disabled=True, expires=before(1)), "Disabled", None),
        (key(expires=before(0)), "Expired", None),
        (key(expires=before(-1)), "Active", None),
        (key({"sha256": "a", "expires": before(1)}), "Expired", None),
        (key({"sha256": "a"}, {"sha256": "b", "expires": before(-2)}), "Active", before(-2)),
        (key({"sha256": "a"}, {"sha256": "b", "expires": before(2)}), "Active", None),
        (key(expires="soon"), "Expired", None),
    ],
)
def test_the_state_of_a_key_is_by_its_times(found: Json, state: str, old_until: str | None) -> None:
    view = view_of(found, NOW)
    assert (view.state, view.old_until) == (state, old_until)


def test_a_rotation_keeps_the_old_key_for_a_while_and_the_id(cluster: ApiServer, config: str) -> None:
    began = datetime.now(UTC).replace(microsecond=0)
    result = run(config, "rotate", "ci")
    text = result.stdout.removesuffix("\n")
    assert (found := FORM.fullmatch(text))
    assert found[1] == ID
    [(verb, path, patch)] = writes(cluster)
    assert (verb, path) == ("PATCH", f"{KEYS}/ci?fieldManager=kubectl-llm")
    new, old = patch["spec"]["hashes"]
    assert new == {"sha256": sha256(text)}
    assert old["sha256"] == "0" * 64
    assert began + DAY <= datetime.fromisoformat(old["expires"]) <= datetime.now(UTC) + DAY
    assert patch["metadata"] == {"resourceVersion": "7"}, "a change in between is not lost"
    assert patch["spec"].keys() == {"hashes"}


def test_a_rotation_drops_what_has_expired_and_lengthens_nothing() -> None:
    found = key(
        {"sha256": "a"}, {"sha256": "b", "expires": before(-2)}, {"sha256": "c", "expires": before(1)}
    )
    assert rotated(found, "text", NOW, DAY) == [
        {"sha256": sha256("text")},
        {"sha256": "a", "expires": "2026-11-27T12:00:00Z"},
        {"sha256": "b", "expires": "2026-11-26T14:00:00Z"},
    ]
    assert rotated(found, "text", NOW, 0 * DAY) == [{"sha256": sha256("text")}]


def test_a_rotation_does_not_lengthen_a_time_that_it_cannot_read() -> None:
    assert len(rotated(key({"sha256": "a"}, {"sha256": "b", "expires": "soon"}), "text", NOW, DAY)) == 2


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 60)), max_size=12))
def test_an_old_key_is_accepted_for_as_long_as_was_said_and_no_longer(turns: list[tuple[int, int]]) -> None:
    """Minutes until a rotation, and minutes for which it keeps the key of before. A later rotation may only shorten what was
    said before it, and one that would need a fifth hash changes nothing."""
    now, current, said = NOW, "first", dict[str, datetime]()
    found = key({"sha256": sha256(current)})
    for number, (wait, keep) in enumerate(turns):
        now += timedelta(minutes=wait)
        text, end = f"text {number}", now + timedelta(minutes=keep)
        try:
            found = key(*rotated(found, text, now, timedelta(minutes=keep)))
        except Refused:
            continue
        said = {old: min(until, end) for old, until in {**said, current: end}.items()}
        current = text
        assert found["spec"]["hashes"][0] == {"sha256": sha256(current)}
        kept = {e["sha256"]: datetime.fromisoformat(e["expires"]) for e in found["spec"]["hashes"][1:]}
        assert kept == {sha256(old): until for old, until in said.items() if until > now}
        assert len(kept) < 4


def test_a_key_keeps_no_more_hashes_than_it_may_have() -> None:
    older = [
        {"sha256": letter, "expires": before(-hours)} for letter, hours in (("b", 2), ("c", 1), ("d", 3))
    ]
    with pytest.raises(Refused, match=r"wait until 2026-11-26T13:00:00Z, or use --keep 0"):
        rotated(key({"sha256": "a"}, *older), "text", NOW, DAY)
    assert len(rotated(key({"sha256": "a"}, *older), "text", NOW, 0 * DAY)) == 1


def test_a_rotation_for_git_writes_nothing(cluster: ApiServer, config: str) -> None:
    result = run(config, "rotate", "ci", "--dry-run", "--keep", "0")
    manifest = yaml.safe_load(result.stdout)
    assert manifest["metadata"] == {"name": "ci", "namespace": "team-a"}
    assert manifest["spec"]["hashes"] == [{"sha256": sha256(result.stderr.strip())}]
    assert manifest["spec"]["grants"] == [{"name": "chat"}]
    assert writes(cluster) == []


@pytest.mark.parametrize("command", [("rotate",), ("revoke",)])
def test_who_applies_a_manifest_of_a_key_is_named(
    cluster: ApiServer, config: str, command: tuple[str, ...]
) -> None:
    applied = key(disabled=True)
    applied["metadata"]["managedFields"] = [{"manager": "argocd-controller", "operation": "Apply"}]
    cluster.answers["/llmkeys"] = (200, applied)
    said = run(config, *command, "ci").stderr
    assert "Warning: argocd-controller applies a manifest of this LLMKey" in said
    assert ("is disabled" in said) == (command == ("rotate",))
    applied["metadata"] = {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}
    assert appliers(applied) == ["kubectl apply"]


def test_a_revoked_key_is_disabled_or_deleted(cluster: ApiServer, config: str) -> None:
    assert "disabled; gateways refuse it within two seconds" in run(config, "revoke", "ci").stdout
    assert "deleted" in run(config, "revoke", "ci", "--delete").stdout
    patched, deleted = writes(cluster)
    assert patched[2]["spec"] == {"disabled": True}
    assert deleted[:2] == ("DELETE", f"{KEYS}/ci?fieldManager=kubectl-llm")
    found = json.loads(run(config, "revoke", "ci", "-o", "json").stdout)
    assert found == {"namespace": "team-a", "name": "ci", "state": "Disabled"}


@pytest.mark.parametrize("command", ["rotate", "revoke"])
def test_a_key_that_does_not_exist_is_not_found(server: ApiServer, config: str, command: str) -> None:
    server.answer = (404, status_text('llmkeys.llmendpoint.io "ci" not found'))
    with pytest.raises(NotFound, match="LLMKey team-a/ci not found"):
        run(config, command, "ci")


def test_a_key_that_always_changes_is_given_up(cluster: ApiServer, config: str, monkeypatch: Any) -> None:
    answered = cluster.answers["/llmkeys"]
    monkeypatch.setattr("llmendpoint_cli.key_store.KeyStore.get", lambda *_: answered[1])
    cluster.answers["/llmkeys"] = (409, status_text("the object has been modified"))
    with pytest.raises(Conflict, match="changed 10 times"):
        run(config, "rotate", "ci")


def test_grants_are_written_as_they_were_asked_for() -> None:
    assert make_grants(["chat", "b/x", "b/*"], ["tier=gold", "lang=de"], everything=True) == [
        {"name": "chat"},
        {"namespace": "b", "name": "x"},
        {"namespace": "b"},
        {"matchLabels": {"tier": "gold", "lang": "de"}},
        {},
    ]
    asked = ["chat", "b/x", "b/*"]
    assert list(grant_texts(make_grants(asked, (), everything=True))) == [*asked, "*"]


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("90s", 90), ("5m", 300), ("12h", 43_200), ("3650d", 315_360_000)])  # fmt: skip
def test_a_duration_has_a_unit(text: str, seconds: int) -> None:
    assert parse_duration(text, "--keep").total_seconds() == seconds
