"""docs/contribute/contracts.md: the picker's kubeconfig has a token, a token file or a client certificate; plugins are not run."""

import json
from pathlib import Path
from typing import Any

import pytest

from llmendpoint_gateway.access import from_kubeconfig, in_cluster
from llmendpoint_gateway.errors import NoAccess


def kubeconfig(folder: Path, user: dict[str, Any], server: str = "http://127.0.0.1:1/") -> Path:
    path = folder / "config"
    document = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(document))
    return path


def test_a_token_goes_into_the_header(tmp_path: Path) -> None:
    access = from_kubeconfig(kubeconfig(tmp_path, {"token": "t"}))
    assert access.server == "http://127.0.0.1:1"
    assert access.headers()["Authorization"] == "Bearer t"
    assert "Authorization" not in from_kubeconfig(kubeconfig(tmp_path, {})).headers()


def test_a_token_file_is_read_again_because_tokens_change(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    access = from_kubeconfig(kubeconfig(tmp_path, {"tokenFile": "token"}))
    assert access.headers()["Authorization"] == "Bearer one"
    (tmp_path / "token").write_text("two\n")
    assert access.headers()["Authorization"] == "Bearer two"


def test_a_credentials_plugin_is_refused_with_what_to_use_instead(tmp_path: Path) -> None:
    with pytest.raises(NoAccess, match="client certificate"):
        from_kubeconfig(kubeconfig(tmp_path, {"exec": {"command": "x"}}))


@pytest.mark.parametrize("text", ["", "[]", "{", "current-context: x\ncontexts: []\n"])
def test_what_is_not_a_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(NoAccess, match="config is not a kubeconfig"):
        from_kubeconfig(tmp_path / "config")


def test_outside_a_cluster_the_way_out_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoAccess, match="--kubeconfig"):
        in_cluster({}, tmp_path)
