"""docs/contribute/test-bed.md: what decides whether a thing in the cache is trusted, is ours, or is to be removed."""

import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster import cache, lifecycle, machine
from tests.cluster import instance as instances
from tests.cluster.errors import AlreadyTaken, NoSuchCluster
from tests.cluster.network import our_chains, removal
from tests.cluster.processes import Process, ProcessTable, start_time


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


class Maker:
    """Makes an artifact of one file and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        (folder / "program").write_text("good")


@pytest.mark.usefixtures("cache_folder")
def test_an_intact_artifact_is_made_once() -> None:
    make = Maker()
    first, second = cache.obtain("tool", "key", make), cache.obtain("tool", "key", make)
    assert (first, make.calls) == (second, 1)


@pytest.mark.usefixtures("cache_folder")
@pytest.mark.parametrize("damage", ["changed", "removed", "added"])
def test_a_damaged_artifact_is_made_anew(damage: str) -> None:
    make = Maker()
    folder = cache.obtain("tool", "key", make)
    if damage == "changed":
        (folder / "program").write_text("evil")
    elif damage == "removed":
        (folder / "program").unlink()
    else:
        (folder / "other").write_text("evil")
    again = cache.obtain("tool", "key", make)
    assert make.calls == 2
    assert [path.name for path in again.iterdir() if not path.name.startswith(".")] == ["program"]
    assert (again / "program").read_text() == "good"


@pytest.mark.usefixtures("cache_folder")
def test_a_failed_making_leaves_no_artifact() -> None:
    def fail(folder: Path) -> None:
        (folder / "program").write_text("half")
        raise RuntimeError("no space")

    with pytest.raises(RuntimeError, match="no space"):
        cache.obtain("tool", "key", fail)
    make = Maker()
    cache.obtain("tool", "key", make)
    assert make.calls == 1


def test_the_hash_of_inputs_depends_on_where_one_part_ends() -> None:
    assert cache.digest_of("ab", "c") != cache.digest_of("a", "bc")


def test_a_pid_that_now_belongs_to_another_process_is_not_ours() -> None:
    ours = start_time(os.getpid())
    assert Process("self", os.getpid(), ours).alive
    assert not Process("earlier", os.getpid(), ours - 1).alive


def test_stopping_ends_the_process_that_was_started_and_no_other(tmp_path: Path) -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    table = ProcessTable(tmp_path / "run", tmp_path / "logs")
    with subprocess.Popen(sleeper) as stranger:
        (table.run).mkdir()
        (table.run / "stranger.json").write_text(f'{{"pid": {stranger.pid}, "started": 1}}')
        mine = table.start("mine", sleeper)
        table.stop("mine", "stranger")
        assert not mine.alive
        assert stranger.poll() is None
        stranger.kill()
    assert table.all() == []


SAVED = """*nat
:PREROUTING ACCEPT [0:0]
:DOCKER - [0:0]
:KUBE-SERVICES - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -j DOCKER
-A DOCKER -i docker0 -j RETURN
-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC
COMMIT"""


def test_only_our_chains_and_the_jumps_to_them_are_removed() -> None:
    lines = SAVED.splitlines()
    assert our_chains(lines) == ["KUBE-SERVICES", "CNI-HOSTPORT-DNAT"]
    assert removal("nat", lines).splitlines() == [
        "*nat",
        '-D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
        "-F KUBE-SERVICES",
        "-F CNI-HOSTPORT-DNAT",
        "-X KUBE-SERVICES",
        "-X CNI-HOSTPORT-DNAT",
        "COMMIT",
    ]


def test_a_table_without_our_chains_is_not_touched() -> None:
    assert (
        removal("nat", [line for line in SAVED.splitlines() if "KUBE" not in line and "CNI" not in line])
        == ""
    )


def test_a_machine_on_which_a_docker_daemon_answers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "docker.sock")
    monkeypatch.setattr(machine, "_SERVICES", {path: "a Docker daemon"})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(path)
        machine.require_free()  # a socket file that nobody answers on is only left over
        daemon.listen()
        with pytest.raises(AlreadyTaken, match="a Docker daemon runs on this machine"):
            machine.require_free()


@pytest.mark.usefixtures("cache_folder")
def test_two_starts_at_once_remove_an_orphan_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "state_root", lambda: tmp_path / "state")
    instances.new_instance("orphan", "127.0.0.1", None, owned=True).save()
    record = tmp_path / "state" / "orphan" / "cluster.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "owner": [os.getpid(), 0]}))
    removed: list[str] = []

    def down(instance: instances.Instance) -> None:
        removed.append(instance.name)
        time.sleep(0.2)
        instances.remove_folder(instance)

    monkeypatch.setattr(lifecycle, "down", down)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: lifecycle.sweep(), range(2)))
    assert removed == ["orphan"]


def test_an_instance_that_is_half_written_or_half_removed_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "state_root", lambda: tmp_path)
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "cluster.json").write_text('{"name": ')
    assert instances.load_all() == []
    with pytest.raises(NoSuchCluster, match="known: none"):
        instances.load("half")
