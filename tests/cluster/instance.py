"""One cluster on this machine: its folder, its ports, what is written down about it."""

import contextlib
import json
import os
import random
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cluster.errors import NoSuchCluster
from tests.cluster.processes import ProcessTable, start_time
from tests.ports import is_free

NODE_NAME = "node1"
LOOPBACK = "127.0.0.1"
_PORT_NAMES = (
    "etcd", "etcd_peer", "api", "controller_manager", "scheduler",
    "kubelet", "kubelet_health", "proxy_health", "proxy_metrics", "dns", "dns_ready",
)  # fmt: skip
_PORT_RANGE = range(
    20000, 32000
)  # below what the kernel hands to outgoing connections, above the usual services


@dataclass(frozen=True)
class Ports:
    """TCP ports on 127.0.0.1 or on the cluster's own address."""

    etcd: int
    etcd_peer: int
    api: int
    controller_manager: int
    scheduler: int
    kubelet: int
    kubelet_health: int
    proxy_health: int
    proxy_metrics: int
    dns: int
    dns_ready: int


@dataclass(frozen=True)
class Instance:
    """A cluster's name and folder. `address` is what its API server listens on; `gpus` is None without a node.

    `owner` is (pid, start time) of the program that must outlive it, None for one that stays until `down`.
    """

    name: str
    folder: Path
    ports: Ports
    address: str
    gpus: int | None = None
    owner: tuple[int, int] | None = None

    @property
    def has_node(self) -> bool:
        return self.gpus is not None

    @property
    def api_url(self) -> str:
        return f"https://{self.address}:{self.ports.api}"

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    @property
    def config(self) -> Path:
        return self.folder / "config"

    @property
    def audit_log(self) -> Path:
        return self.folder / "audit.log"

    @property
    def containerd_socket(self) -> Path:
        return self.folder / "containerd.sock"

    @property
    def processes(self) -> ProcessTable:
        return ProcessTable(self.folder / "run", self.folder / "logs")

    def kubeconfig(self, identity: str = "admin") -> Path:
        return self.config / f"{identity}.kubeconfig"

    @property
    def orphaned(self) -> bool:
        """True when the program that this instance was made for is gone."""
        return self.owner is not None and start_time(self.owner[0]) != self.owner[1]

    def save(self) -> None:
        record = {**asdict(self), "folder": str(self.folder)}
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "cluster.new").write_text(json.dumps(record, indent=1))
        (self.folder / "cluster.new").replace(self.folder / "cluster.json")


def state_root() -> Path:
    """Where instances live: the system's place for root, the user's own otherwise."""
    if os.geteuid() == 0:
        return Path("/var/lib/llmendpoint-cluster")
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    return Path(base) / "llmendpoint-cluster"


def new_instance(name: str, address: str, gpus: int | None, *, owned: bool) -> Instance:
    """A fresh instance with ports of its own."""
    owner = (os.getpid(), start_time(os.getpid())) if owned else None
    return Instance(name, state_root() / name, _free_ports(address), address, gpus, owner)


def load(name: str) -> Instance:
    """The instance of that name, running or not."""
    found = _read(state_root() / name / "cluster.json")
    if found is None:
        known = ", ".join(instance.name for instance in load_all()) or "none"
        raise NoSuchCluster(f"there is no cluster {name!r} on this machine (known: {known})")
    return found


def load_all() -> list[Instance]:
    """Every instance that is written down."""
    read = map(_read, sorted(state_root().glob("*/cluster.json")))
    return [instance for instance in read if instance is not None]


def _read(path: Path) -> Instance | None:
    """None where there is none, or no more: another program may be removing it."""
    try:
        record = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    owner = record["owner"]
    return Instance(
        **{
            **record,
            "folder": Path(record["folder"]),
            "ports": Ports(**record["ports"]),
            "owner": tuple(owner) if owner else None,
        }
    )


def remove_folder(instance: Instance) -> None:
    """Forget an instance whose processes have ended."""
    shutil.rmtree(instance.folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # others are in it
        instance.folder.parent.rmdir()


def _free_ports(address: str) -> Ports:
    candidates = random.SystemRandom().sample(_PORT_RANGE, 200)
    taken = {port for instance in load_all() for port in asdict(instance.ports).values()}
    free = [
        port
        for port in candidates
        if port not in taken and all(is_free(port, at) for at in {LOOPBACK, address})
    ]
    return Ports(**dict(zip(_PORT_NAMES, free, strict=False)))
