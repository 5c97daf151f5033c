"""Bring a cluster up and take it away, whatever state the last one was left in."""

import atexit
import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

from tests import ending
from tests.cluster import cache, control_plane, machine, network, node, progress, together
from tests.cluster import instance as instances
from tests.cluster.api import Cluster, client_context, describe, is_healthy
from tests.cluster.binaries import build_all
from tests.cluster.configuration import NODE_ADDRESS
from tests.cluster.errors import AlreadyTaken, NoSuchCluster, Stopped
from tests.cluster.instance import LOOPBACK, Instance


def start_control_plane(name: str = "control-plane", *, owned: bool = True) -> Cluster:
    """A control plane of that name, started anew unless it runs. Several can run side by side.

    An `owned` one ends with this program, also by SIGTERM or Ctrl-C; where this program is killed, the next start sweeps
    it away.
    """
    _prepare_to_own(owned)
    sweep()
    # Held until it is ready: to a second start, a half-started cluster looks like a broken one.
    with cache.exclusive(f"start-{name}"):
        running = find_running(name)
        if running:
            return running
        binaries = build_all()
        fresh = _new_instance(name, LOOPBACK, None, owned=owned)
        control_plane.write_files(fresh, binaries)
        with _ended_on_failure(fresh):
            control_plane.start(fresh)
        return describe(fresh)


def start_node(name: str = "node", *, gpus: int = 4, owned: bool = True) -> Cluster:
    """A whole cluster with one node and `gpus` fake accelerators; one at a time on a machine. Needs root.

    An `owned` one ends with this program, as a control plane does.
    """
    _prepare_to_own(owned)
    sweep()
    with cache.exclusive("start-of-a-node"):
        running = find_running(name)
        if running and running.has_node:
            return running
        _refuse_second_node(name)
        machine.require_free()
        pieces = node.prepare()
        network.require_free()
        fresh = _new_instance(name, NODE_ADDRESS, gpus, owned=owned)
        with _ended_on_failure(fresh):
            node.start(fresh, pieces)
        return describe(fresh)


@contextmanager
def _ended_on_failure(fresh: Instance) -> Iterator[None]:
    """A start that fails leaves its logs; one that somebody stops leaves nothing."""
    try:
        yield
    except (KeyboardInterrupt, Stopped):
        with together.apart():
            down(fresh)
        raise
    except BaseException:
        with together.apart():
            _end(fresh)
        progress.say(f"the start failed; logs are in {fresh.processes.logs} until the next start or `down`")
        raise


def _prepare_to_own(owned: bool) -> None:
    if owned:
        ending.end_on_signals()
        atexit.unregister(_down_own)
        atexit.register(_down_own)


def _down_own() -> None:
    """Take away what this program started and did not end. A copy of it by fork has another process id."""
    for instance in instances.load_all():
        if instance.owner is not None and instance.owner[0] == os.getpid() and not instance.orphaned:
            down(instance)


def _new_instance(name: str, address: str, gpus: int | None, *, owned: bool) -> Instance:
    """A fresh instance, written down before another start can choose the same ports."""
    with cache.exclusive("ports"):
        fresh = instances.new_instance(name, address, gpus, owned=owned)
        fresh.save()
    return fresh


def find_running(name: str) -> Cluster | None:
    """The cluster of that name if its API answers; what is left of a broken one is removed."""
    try:
        found = instances.load(name)
    except NoSuchCluster:
        return None
    if is_up(found):
        return describe(found)
    progress.say(f"removing what is left of the cluster {name!r}, which does not answer")
    down(found)
    return None


def is_up(instance: Instance) -> bool:
    """True when every process lives and the API answers."""
    expected = control_plane.COMPONENTS + (node.COMPONENTS if instance.has_node else ())
    living = {process.name for process in instance.processes.all() if process.alive}
    if not living.issuperset(expected):
        return False
    with contextlib.suppress(OSError):
        admin = client_context(instance.pki)
        return is_healthy(instance.address, instance.ports.api, "/readyz", admin)
    return False


def connect(name: str) -> Cluster:
    """The running cluster of that name."""
    found = instances.load(name)
    if not is_up(found):
        raise NoSuchCluster(f"the cluster {name!r} is written down but does not run; `up` starts it anew")
    return describe(found)


def down(instance: Instance) -> None:
    """End an instance and remove what it made, and only that. Works on the ruins of one too."""
    _end(instance)
    instances.remove_folder(instance)


def _end(instance: Instance) -> None:
    """End the processes and undo what was made outside the instance's folder; the folder with the logs stays."""
    if instance.has_node:
        node.stop(instance)
    control_plane.stop(instance)
    if instance.has_node:
        node.clean_up(instance)


def sweep() -> None:
    """Remove instances whose owners are gone. Of two starts at once the second finds them removed."""
    with cache.exclusive("sweep"):
        for instance in instances.load_all():
            if instance.orphaned:
                down(instance)


def _refuse_second_node(name: str) -> None:
    for other in instances.load_all():
        if other.has_node and other.name != name:
            if is_up(other):
                raise AlreadyTaken(
                    f"the node {other.name!r} runs on this machine, and there can be one: the kubelet's device plugin"
                    f" folder and the KUBE-* chains of iptables belong to the whole machine. Use it"
                    f" (LLMENDPOINT_CLUSTER={other.name}) or end it:"
                    f" python -m tests.cluster down --name {other.name}"
                )
            down(other)
