"""The test bed's programs, built from Go modules that go.sum pins: Kubernetes, etcd, CoreDNS, Helm, pause; and one that
only a test needs, kstatus; what only a benchmark needs, kwok."""

from dataclasses import dataclass
from pathlib import Path

from tests.cluster import cache, progress
from tests.cluster.toolchain import Go, find_go

KUBERNETES_VERSION = "v1.36.3"
SOURCES = Path(__file__).parent / "go"

COMPONENTS = (
    "etcd",
    "fake-accelerators",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)


@dataclass(frozen=True)
class Module:
    """One Go module below `go/` and the program that it gives."""

    name: str
    package: str = "."
    ldflags: str = "-s -w"
    cold: str = ""

    @property
    def folder(self) -> Path:
        return SOURCES / self.name


def _kubernetes_ldflags() -> str:
    """Without these the API server calls itself v0.0.0, and clients that look at the version refuse it."""
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    stamps = {
        "gitVersion": KUBERNETES_VERSION,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "x",
        "buildDate": "2026-01-01T00:00:00Z",
    }
    return "-s -w " + " ".join(f"-X k8s.io/component-base/version.{k}={v}" for k, v in stamps.items())


MODULES = (
    Module("kube", ldflags=_kubernetes_ldflags(), cold="about 8 minutes the first time on 2 cores"),
    Module("coredns", cold="about a minute the first time"),
    Module("helm", package="helm.sh/helm/v4/cmd/helm", cold="about 2 minutes the first time"),
    Module("pause"),
)
KWOK = Module("kwok", package="sigs.k8s.io/kwok/cmd/kwok", cold="about a minute the first time")
KSTATUS = Module("kstatus", cold="about a minute on 2 cores where Helm was not built before")


@dataclass(frozen=True)
class Binaries:
    """Paths of the built programs."""

    kube: Path
    coredns: Path
    helm: Path
    pause: Path

    def link_into(self, folder: Path) -> None:
        """Make `folder` hold every program under the name it is called by."""
        folder.mkdir(parents=True, exist_ok=True)
        targets = dict.fromkeys(COMPONENTS, self.kube) | {"coredns": self.coredns, "helm": self.helm}
        for name, target in targets.items():
            link = folder / name
            link.unlink(missing_ok=True)
            link.symlink_to(target)


def build_all() -> Binaries:
    """Every program, built where the cache has it not. One after the other: each build uses all cores."""
    go = find_go()
    return Binaries(*(_build(go, module) for module in MODULES))


def build_kstatus() -> Path:
    """The program that says what the kstatus library makes of an object."""
    return _build(find_go(), KSTATUS)


def build_kwok() -> Path:
    """The program that plays the kubelet of fake nodes."""
    return _build(find_go(), KWOK)


def _build(go: Go, module: Module) -> Path:
    def make(folder: Path) -> None:
        note = f" ({module.cold})" if module.cold else ""
        with progress.step(f"building {module.name} from its Go module{note}"):
            argv = [
                str(go.binary),
                "build",
                "-ldflags",
                module.ldflags,
                "-o",
                str(folder / module.name),
                module.package,
            ]
            progress.run(argv, cwd=module.folder, env=go.environment())

    key = cache.digest_of(
        go.version, module.package, module.ldflags, cache.tree_digest(module.folder, (".go", ".mod", ".sum"))
    )
    folder = cache.obtain(f"bin-{module.name}", key, make)
    cache.forget_older(f"bin-{module.name}", keep=folder)
    return folder / module.name
