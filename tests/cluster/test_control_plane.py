"""docs/decisions/a-real-kubernetes-for-tests.md: the control plane decides as a real one does, and keeps to itself."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.cluster import Cluster, lifecycle, start_control_plane, wait_for
from tests.cluster import instance as instances
from tests.cluster.errors import CommandFailed
from tests.cluster.sockets import listening_addresses

pytestmark = pytest.mark.integration

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": "default"}}


def test_objects_are_stored_and_read_back(control_plane: Cluster) -> None:
    control_plane.apply({**CONFIG_MAP, "data": {"colour": "green"}})
    assert control_plane.get("configmap", "kept")["data"] == {"colour": "green"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("configmap", "read"), ("cm", "-l", "read=yes"), ("configmaps", "-A"), ("namespace", "default"), ("clusterroles",),
        ("configmaps,services", "-n", "default"), ("services", "--field-selector=metadata.name=kubernetes"),
    ],
)  # fmt: skip
def test_what_is_read_without_kubectl_is_what_kubectl_reads(
    control_plane: Cluster, arguments: tuple[str, ...]
) -> None:
    def items(found: Any) -> list[Any]:
        return sorted(found.get("items", [found]), key=lambda item: json.dumps(item, sort_keys=True))

    labels = {"name": "read", "namespace": "default", "labels": {"read": "yes"}}
    control_plane.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": labels})
    by_kubectl = json.loads(control_plane.kubectl("get", *arguments, "-o", "json"))
    assert items(control_plane.get(*arguments)) == items(by_kubectl)


def test_an_identity_without_a_role_is_refused(control_plane: Cluster) -> None:
    with pytest.raises(CommandFailed, match="forbidden"):
        control_plane.kubectl("get", "secrets", "--as=system:serviceaccount:default:default")


def test_components_are_not_administrators(control_plane: Cluster) -> None:
    scheduler = control_plane.own.kubeconfig("scheduler")
    with pytest.raises(CommandFailed, match="forbidden"):
        control_plane.kubectl("--kubeconfig", str(scheduler), "create", "namespace", "mine")


def test_anybody_who_makes_an_object_names_its_owner_as_in_most_clusters(control_plane: Cluster) -> None:
    """OwnerReferencesPermissionEnforcement is off, so that the API server hides no takeover by an owner reference."""
    control_plane.kubectl("create", "namespace", "owners")
    control_plane.kubectl("create", "role", "maps", "-n", "owners", "--verb=*", "--resource=configmaps")
    control_plane.kubectl("create", "rolebinding", "maps", "-n", "owners", "--role=maps", "--user=writer")
    control_plane.kubectl("create", "secret", "generic", "owner", "-n", "owners")
    owner = control_plane.get("secret", "owner", "-n", "owners")
    reference = {
        "apiVersion": "v1",
        "kind": "Secret",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": True,
    }
    metadata = {"name": "owned", "namespace": "owners", "ownerReferences": [reference]}
    manifest = json.dumps({**CONFIG_MAP, "metadata": metadata})
    control_plane.kubectl("create", "--as=writer", "-f", "-", stdin=manifest)
    assert control_plane.get("configmap", "owned", "-n", "owners")["metadata"]["ownerReferences"] == [
        reference
    ]


def test_it_listens_on_the_loopback_address_alone(control_plane: Cluster) -> None:
    processes = control_plane.own.processes.all()
    assert set(listening_addresses(p.pid for p in processes)) == {"127.0.0.1"}


def test_another_one_runs_beside_it(control_plane: Cluster) -> None:
    other = start_control_plane(f"test-beside-{os.getpid()}")
    try:
        other.kubectl("create", "namespace", "only-here")
        assert "only-here" not in control_plane.kubectl("get", "namespaces")
    finally:
        other.stop()


@pytest.mark.usefixtures("control_plane")
def test_one_whose_program_was_killed_is_swept_away_by_the_next_start() -> None:
    name = f"test-orphan-{os.getpid()}"
    # The programs are built already, so that this prints nothing before it dies.
    code = (
        "import os, signal; from tests.cluster import start_control_plane;"
        f"start_control_plane({name!r}); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False, timeout=120)
    orphan = instances.load(name)
    assert any(process.alive for process in orphan.processes.all())
    lifecycle.sweep()
    assert name not in [instance.name for instance in instances.load_all()]
    wait_for("its processes end", lambda: not any(p.alive for p in orphan.processes.all()))
