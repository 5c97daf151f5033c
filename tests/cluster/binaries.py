"""The test bed's programs, built from Go sources that go.sum pins: Kubernetes, etcd, CoreDNS, Helm, pause; and what only
a test or a benchmark needs, kstatus, kwok, promtool and KEDA.

They are packages of one Go module, so that all are made from the same versions: what Kubernetes compiled, the others
take from Go's build cache. KEDA and promtool have modules of their own.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import cache, progress
from tests.cluster.toolchain import Go, find_go

KUBERNETES_VERSION = "v1.36.3"
SOURCES = Path(__file__).parent / "go"
KEDA_MODULE = "github.com/kedacore/keda/v2"
KEDA_VERSION = "2.21.0"
KEDA_SOURCES = Path(__file__).parent / "go-keda"
PROMETHEUS_SOURCES = Path(__file__).parent / "go-prometheus"
PROMETHEUS_OPERATOR_MODULE = "github.com/prometheus-operator/prometheus-operator"
PROMETHEUS_OPERATOR_SOURCES = Path(__file__).parent / "go-prometheus-operator"

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
class Program:
    """What one `go build` makes: a package of the module in the folder `sources`, or of a module that it requires."""

    name: str
    package: str
    ldflags: str = "-s -w"
    cold: str = ""
    sources: Path = SOURCES
    tags: tuple[str, ...] = ()


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


HELM = Program("helm", "helm.sh/helm/v4/cmd/helm", cold="about a minute the first time")
PROGRAMS = (
    Program("kube", "./kube", _kubernetes_ldflags(), cold="about 6 minutes the first time on 2 cores"),
    Program("coredns", "./coredns", cold="about half a minute the first time"),
    HELM,
    Program("pause", "./pause"),
)
KSTATUS = Program("kstatus", "./kstatus", cold="about half a minute the first time")
KWOK = Program("kwok", "sigs.k8s.io/kwok/cmd/kwok", cold="about half a minute the first time")
_KEDA_LDFLAGS = f"-s -w -X {KEDA_MODULE}/version.Version={KEDA_VERSION}"
PROMTOOL = Program(
    "promtool",
    "github.com/prometheus/prometheus/cmd/promtool",
    cold="about two minutes the first time on 2 cores",
    sources=PROMETHEUS_SOURCES,
    tags=("remove_all_sd",),  # no discovery of scrape targets, which is most of Prometheus
)
KEDA_OPERATOR = Program(
    "keda-operator", f"{KEDA_MODULE}/cmd/operator", _KEDA_LDFLAGS, "some minutes the first time", KEDA_SOURCES
)
KEDA_ADAPTER = Program(
    "keda-adapter", f"{KEDA_MODULE}/cmd/adapter", _KEDA_LDFLAGS, "about a minute the first time", KEDA_SOURCES
)


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
    """Every program of the cluster, built where the cache has it not. One after the other: each build uses all cores."""
    go = find_go()
    return Binaries(*(_build(go, program) for program in PROGRAMS))


def build_kstatus() -> Path:
    """The program that says what the kstatus library makes of an object."""
    return _build(find_go(), KSTATUS)


def build_kwok() -> Path:
    """The program that plays the kubelet of many nodes."""
    return _build(find_go(), KWOK)


def build_helm() -> Path:
    """The program alone, for tests that need no cluster."""
    return _build(find_go(), HELM)


def build_promtool() -> Path:
    """The program that runs the unit tests of Prometheus' rules."""
    return _build(find_go(), PROMTOOL)


@dataclass(frozen=True)
class Keda:
    """KEDA's two programs, and the folder of its module's manifests: definitions and roles."""

    operator: Path
    adapter: Path
    config: Path


def build_keda() -> Keda:
    """KEDA as its own module has it. Only the extended test asks for it: it takes minutes and a quarter of a gigabyte."""
    go = find_go()
    operator, adapter = (_build(go, program) for program in (KEDA_OPERATOR, KEDA_ADAPTER))
    return Keda(operator, adapter, _files_of(go, KEDA_MODULE, KEDA_SOURCES) / "config")


def monitoring_definitions() -> Path:
    """The folder of the Prometheus operator's definitions, one file each. Nothing is built."""
    return (
        _files_of(find_go(), PROMETHEUS_OPERATOR_MODULE, PROMETHEUS_OPERATOR_SOURCES)
        / "example"
        / "prometheus-operator-crd"
    )


def _files_of(go: Go, module: str, sources: Path) -> Path:
    """The folder of a module in the version that the go.mod in `sources` pins."""
    argv = [str(go.binary), "mod", "download", "-json", module]
    return Path(json.loads(progress.download(argv, cwd=sources, env=go.environment()))["Dir"])


def _build(go: Go, program: Program) -> Path:
    flags = ["-gcflags=all=-dwarf=false", "-ldflags", program.ldflags]  # no debugger: an eighth of the time
    flags += [f"-tags={','.join(program.tags)}"] if program.tags else []

    def make(folder: Path) -> None:
        note = f" ({program.cold})" if program.cold else ""
        with progress.step(f"building {program.name} from its Go sources{note}"):
            argv = [str(go.binary), "build", *flags, "-o", str(folder / program.name), program.package]
            progress.download(argv, cwd=program.sources, env=go.environment())

    pins = (program.sources / "go.mod", program.sources / "go.sum")
    own = (
        cache.tree_digest(program.sources / program.package, (".go",))
        if program.package.startswith("./")
        else ""
    )
    key = cache.digest_of(go.version, program.package, *flags, own, *pins)
    folder = cache.obtain(f"bin-{program.name}", key, make)
    cache.forget_older(f"bin-{program.name}", keep=folder)
    return folder / program.name
