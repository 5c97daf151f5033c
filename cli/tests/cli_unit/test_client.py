"""docs/reference/cli.md: the kubeconfig is read as kubectl reads it, expired credentials are loaded again, failures have their errors.

A small HTTP server plays the API server.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import certifi
import pytest
from typer.testing import CliRunner

from llmendpoint_cli import follow, kubeconfig
from llmendpoint_cli.__main__ import app
from llmendpoint_cli.client import Client
from llmendpoint_cli.errors import CliError, Conflict, NoAccess, NotFound, Refused, TimedOut, Unreachable
from llmendpoint_cli.follow import readings

from .api_server import ApiServer, status_text, write_config
from .samples import Json, serving


def client_of(server: ApiServer, folder: Path, user: Json | None = None) -> Client:
    path = write_config(folder / "config", server.url + "/base/", user)
    return Client(lambda: kubeconfig.load(path))


def test_one_endpoint_is_read_below_the_servers_path_with_the_token(
    server: ApiServer, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("secret\n")
    assert client_of(server, tmp_path, {"tokenFile": "token"}).endpoint("team-a", "chat") == serving()
    method, path, headers, _ = server.asked[0]
    assert (method, path) == ("GET", "/base/apis/llmendpoint.io/v1alpha1/namespaces/team-a/llmendpoints/chat")
    assert headers["Authorization"] == "Bearer secret"


def test_the_request_is_a_merge_patch_under_our_own_manager(server: ApiServer, tmp_path: Path) -> None:
    client_of(server, tmp_path).patch_endpoint("team-a", "chat", {"metadata": {}})
    method, path, headers, body = server.asked[0]
    assert method == "PATCH"
    assert path.endswith("/llmendpoints/chat?fieldManager=kubectl-llm")
    assert (headers["Content-Type"], body) == ("application/merge-patch+json", {"metadata": {}})


def test_lists_ask_for_what_belongs_to_the_endpoint(server: ApiServer, tmp_path: Path) -> None:
    client = client_of(server, tmp_path)
    server.answer = (200, {"items": [1]})
    assert (
        client.pods("team-a", "chat")
        == client.pods(None)
        == client.records("team-a", "chat")
        == client.endpoints(None)
        == [1]
    )
    assert [path for _, path, _, _ in server.asked] == [
        "/base/api/v1/namespaces/team-a/pods?resourceVersion=0&labelSelector=llmendpoint.io%2Fendpoint%3Dchat%2Cllmendpoint.io%2Frevision",
        "/base/api/v1/pods?resourceVersion=0&labelSelector=llmendpoint.io%2Fendpoint%2Cllmendpoint.io%2Frevision",
        "/base/apis/apps/v1/namespaces/team-a/controllerrevisions?labelSelector=llmendpoint.io%2Fendpoint%3Dchat",
        "/base/apis/llmendpoint.io/v1alpha1/llmendpoints?resourceVersion=0",
    ]


def test_status_judges_the_operator_by_its_lease_and_the_servers_clock(
    server: ApiServer, tmp_path: Path
) -> None:
    """The server of this test lives now, so a Lease of 2001 is stale whatever this machine's clock says."""
    old = {"metadata": {"name": "llmendpoint-operator", "namespace": "llm"},
           "spec": {"holderIdentity": "a", "renewTime": "2001-01-01T00:00:00.000000Z"}}  # fmt: skip
    server.answers = {"/leases": (200, {"items": [old]}), "/pods": (200, {"items": []})}
    path = write_config(tmp_path / "config", server.url)
    done = CliRunner().invoke(app, ["status", "chat", "-n", "team-a", "--kubeconfig", str(path)])
    assert "NoOperator" in done.output
    assert "no operator runs" in done.output
    assert [p for _, p, _, _ in server.asked if "/leases" in p] == [
        "/apis/coordination.k8s.io/v1/leases?resourceVersion=0&fieldSelector=metadata.name%3Dllmendpoint-operator"
    ]


def test_a_user_who_may_not_list_leases_sees_the_rest_and_is_asked_for_them_once(
    server: ApiServer, tmp_path: Path
) -> None:
    server.answers = {"/leases": (403, status_text("may not list leases")), "/pods": (200, {"items": []})}
    path = write_config(tmp_path / "config", server.url)
    done = CliRunner().invoke(
        app, ["status", "chat", "-n", "team-a", "-o", "json", "--kubeconfig", str(path)]
    )
    (found,) = json.loads(done.output)
    assert (found["phase"], found["operator"]) == ("Ready", "Unknown")
    client = Client(lambda: kubeconfig.load(str(path)))
    assert [client.operator_leases() for _ in range(3)] == [(None, None)] * 3
    assert len([p for _, p, _, _ in server.asked if "/leases" in p]) == 2


@pytest.fixture
def inside_a_pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", folder)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    (folder / "token").write_text("of-the-pod\n")
    (folder / "namespace").write_text("team-a")
    (folder / "ca.crt").write_text(Path(certifi.where()).read_text())
    return folder


def test_inside_a_pod_its_service_account_is_used_where_there_is_no_kubeconfig(inside_a_pod: Path) -> None:
    access = kubeconfig.load()
    assert (access.server, access.token, access.namespace) == (
        "https://[fd00::1]:6443",
        "of-the-pod",
        "team-a",
    )
    assert access.ssl is not None
    (inside_a_pod / "ca.crt").unlink()
    with pytest.raises(NoAccess, match=r"ca\.crt|cannot be used"):
        kubeconfig.load()


def test_a_kubeconfig_that_is_named_is_not_replaced_by_the_service_account(
    inside_a_pod: Path, tmp_path: Path
) -> None:
    with pytest.raises(NoAccess, match="no kubeconfig at"):
        kubeconfig.load(str(tmp_path / "none"))
    with pytest.raises(NoAccess, match="no kubeconfig at"):
        kubeconfig.load(context="staging")


@pytest.mark.parametrize(
    ("status", "message", "error", "part"),
    [
        (404, 'llmendpoints.llmendpoint.io "chat" not found', NotFound, "LLMEndpoint team-a/chat not found"),
        (404, "404 page not found", NotFound, "install the chart first"),
        (401, "Unauthorized", NoAccess, "Unauthorized"),
        (403, "user may not get", NoAccess, "may not get"),
        (409, "the object has been modified", Conflict, "modified"),
        (422, "annotations too long", Refused, "too long"),
        (503, "etcd is away", Unreachable, "etcd is away"),
        (418, "teapot", CliError, "teapot"),
    ],
)
def test_what_the_api_server_refuses_has_an_error_of_its_kind(
    server: ApiServer, tmp_path: Path, status: int, message: str, error: type[CliError], part: str
) -> None:
    server.answer = (status, status_text(message))
    with pytest.raises(error, match=part) as caught:
        client_of(server, tmp_path).endpoint("team-a", "chat")
    assert type(caught.value) is error


def test_an_answer_that_is_no_json_names_the_server(server: ApiServer, tmp_path: Path) -> None:
    server.answer = (200, "<html>login</html>")
    with pytest.raises(NoAccess, match=r"is no Kubernetes API server: it answered '<html>"):
        client_of(server, tmp_path).endpoint("team-a", "chat")


def test_a_connection_that_the_server_closed_is_made_again(server: ApiServer, tmp_path: Path) -> None:
    server.hang_up = True
    client = client_of(server, tmp_path)
    assert [client.endpoint("team-a", "chat") for _ in range(3)] == [serving()] * 3


def test_no_server_is_an_error_that_names_its_address(tmp_path: Path) -> None:
    path = write_config(tmp_path / "config")
    with pytest.raises(Unreachable, match=r"no answer from http://127\.0\.0\.1:1:"):
        Client(lambda: kubeconfig.load(path)).endpoint("team-a", "chat")


@pytest.mark.parametrize("user", [{"tokenFile": "token"}, {"exec": {
    "apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable,
    "args": ["-c", "import json, os; print(json.dumps({'status': {'token': open(os.environ['FROM']).read()}}))"],
}}])  # fmt: skip
def test_a_token_that_expires_is_got_again(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: Json
) -> None:
    monkeypatch.setenv("FROM", str(tmp_path / "token"))
    (tmp_path / "token").write_text("t-1")
    server.token = "t-1"
    client = client_of(server, tmp_path, user)
    client.endpoint("team-a", "chat")
    for server.token in ("t-2", "t-3"):
        (tmp_path / "token").write_text(server.token)
        assert client.patch_endpoint("team-a", "chat", {}) == serving()
    (tmp_path / "token").write_text("t-4")
    server.token, server.answer = "t-4", (200, '{"endpoints": {}}\n')
    assert client.demand({"metadata": {"namespace": "llm", "name": "gw"}}) == {}
    assert [headers["Authorization"][-1] for _, _, headers, _ in server.asked] == list("1122334")


def test_a_token_that_is_refused_twice_is_no_access(server: ApiServer, tmp_path: Path) -> None:
    server.token = "another"
    with pytest.raises(NoAccess, match="Unauthorized") as caught:
        client_of(server, tmp_path, {"token": "t-1"}).endpoint("team-a", "chat")
    assert (type(caught.value), len(server.asked)) == (NoAccess, 2)


def test_the_contexts_namespace_holds_and_another_context_can_be_named(tmp_path: Path) -> None:
    path = write_config(tmp_path / "config")
    assert kubeconfig.load(path).namespace == "team-a"
    assert kubeconfig.load(path, "two").namespace == "default"
    with pytest.raises(NoAccess, match="no context 'three'; it has: one, two"):
        kubeconfig.load(path, "three")


def test_of_several_kubeconfigs_the_first_that_has_a_name_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write_config(tmp_path / "a", "http://a")
    second = write_config(tmp_path / "b", "http://b")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{first}:{second}")
    assert kubeconfig.load().server == "http://a"


@pytest.mark.parametrize("text", ["[", "- a", "contexts: [{}]", ""])
def test_what_is_no_kubeconfig_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(NoAccess):
        kubeconfig.load(str(tmp_path / "config"))


def test_a_missing_kubeconfig_names_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(NoAccess, match=r"no kubeconfig at .*/none; name one with --kubeconfig"):
        kubeconfig.load(str(tmp_path / "none"))


PLUGIN = """
import json, os
about = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert about["spec"]["cluster"]["server"].startswith("http"), about
print(json.dumps({"kind": "ExecCredential", "status": {"token": os.environ["GIVEN"]}}))
"""


def plugin(**more: Any) -> Json:
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, **more}}


def test_an_exec_plugin_gives_the_token(tmp_path: Path) -> None:
    user = plugin(args=["-c", PLUGIN], env=[{"name": "GIVEN", "value": "t-1"}], provideClusterInfo=True)
    assert kubeconfig.load(write_config(tmp_path / "config", user=user)).token == "t-1"


@pytest.mark.parametrize(
    ("user", "part"),
    [
        (plugin(args=["-c", "raise SystemExit(3)"]), "gave no credentials"),
        (plugin(args=["-c", "print('hello')"]), "gave no credentials"),
        (
            {"exec": {"apiVersion": "v1", "command": "no-such-plugin", "installHint": "install it"}},
            "install it",
        ),
        ({"auth-provider": {"name": "gcp"}}, "dropped in 1.26"),
    ],
)
def test_credentials_that_cannot_be_had_say_why(tmp_path: Path, user: Json, part: str) -> None:
    with pytest.raises(NoAccess, match=part):
        kubeconfig.load(write_config(tmp_path / "config", user=user))


def test_following_survives_an_absence_but_not_a_wrong_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "INTERVAL_S", 0)
    script: list[int | None] = [1, None, None, 2]

    def read() -> int:
        found = script.pop(0)
        if found is None:
            raise Unreachable("away")
        return found

    found = readings(read, None, "it")
    assert [next(found), next(found)] == [1, 2]
    script[:] = [None]
    with pytest.raises(Unreachable):
        next(readings(read, None, "it"))


def test_following_ends_with_what_it_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "INTERVAL_S", 0.001)
    with pytest.raises(TimedOut, match=r"timed out after 0\.01 s, waiting for the verdict"):
        list(readings(lambda: 1, 0.01, "the verdict"))


def test_a_command_loads_neither_a_large_client_nor_rich_before_it_draws() -> None:
    code = "import sys, llmendpoint_cli.__main__; print(*sys.modules)"
    loaded = set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )
    assert "llmendpoint_cli.rollout" in loaded
    assert not loaded & {"kubernetes", "httpx", "aiohttp", "asyncio", "rich.console", "llmendpoint_operator"}
