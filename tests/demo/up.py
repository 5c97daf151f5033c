"""From nothing to a streamed answer, step by step, saying what each took."""

import json
import socket
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from tests.bench import results
from tests.bench.results import Result
from tests.cluster import Cluster, cache, lifecycle, node, packages, progress, start_node, together
from tests.cluster import images as image_builds
from tests.cluster import instance as instances
from tests.cluster.errors import ClusterError, CommandFailed
from tests.demo import chat, clusters, product, watch
from tests.demo.product import NAMESPACE, ROOT, Images, Values

FOLDER = ROOT / "build" / "demo"
RECORD = FOLDER / "foreign.json"
EXAMPLE = ROOT / "examples" / "demo.yaml"
MODEL = "default/demo"
ACCELERATOR = "nvidia.com/gpu"
_PLATFORM_LIMIT_S, _ENDPOINT_LIMIT_S = 180.0, 600.0


class Clock:
    """How long the whole took so far, and each named step."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.steps: list[tuple[str, float]] = []

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.steps.append((what, time.monotonic() - began))

    def table(self) -> str:
        rows = [*self.steps, ("all together", time.monotonic() - self.started)]
        return "\n".join(f"  {what:<52} {seconds:7.1f} s" for what, seconds in rows)


def run() -> None:
    """The demo on the embedded cluster, or on the one of DEMO_KUBECONFIG."""
    clock = Clock()
    kubeconfig = clusters.foreign_kubeconfig()
    embedded = clusters.embedded_of(kubeconfig) if kubeconfig else lifecycle.find_running(clusters.NAME)
    if kubeconfig and not embedded:
        cluster, images = clusters.foreign_cluster(kubeconfig, FOLDER), clusters.published_images()
        _announce_foreign(cluster, images)
        _show(cluster, images, clock)
        return
    kind = _kind(embedded)
    _announce(embedded)
    with _taken_away_when_stopped(embedded):
        _show(*_build_and_start(embedded, clock), clock)
    _keep_figure(kind, clock)


@contextmanager
def _taken_away_when_stopped(embedded: Cluster | None) -> Iterator[None]:
    """Ctrl-C and SIGTERM remove the cluster that this run has started; one that ran before stays."""
    try:
        yield
    except KeyboardInterrupt:
        started = [] if embedded else [i for i in instances.load_all() if i.name == clusters.NAME]
        for instance in started:
            with progress.step("removing the cluster, which is not complete"):
                lifecycle.down(instance)
        raise


def _show(cluster: Cluster, images: Images, clock: Clock) -> None:
    """Chart, endpoint, answer."""
    port = None if cluster.instance is None else _gateway_port(cluster)
    known: dict[str, str] = {}
    viewer = watch.Viewer(str(cluster.kubeconfig))
    with clock.step("chart installed, operator and gateway ready"):
        _install(cluster, images)
        if port is not None:
            product.balance(cluster, port)
        watch.follow(watch.platform(viewer, NAMESPACE), _PLATFORM_LIMIT_S, clock.started, known)
    with clock.step("endpoint demo: scheduled, loaded, warmed up, Ready"):
        _apply_example(cluster, viewer, images)
        looks = (watch.platform(viewer, NAMESPACE), watch.endpoint(viewer, "default", "demo"))
        watch.follow(
            lambda: [seen for look in looks for seen in look()], _ENDPOINT_LIMIT_S, clock.started, known
        )
    if watch.runs_other_image(viewer, "default", "demo", images.server):
        progress.say(
            f"the server's image is new ({images.server}); a revision keeps the image that it was made with, so"
        )
        progress.say(
            f"the pods stay as they are: kubectl delete llmendpoint demo && {clusters.typed('demo')} takes the new one"
        )
    with clock.step("chat completion through the gateway"):
        _chat(cluster, port)
    print(f"\nWhat took how long:\n{clock.table()}\n")
    print(_what_next(cluster, port))


def _kind(embedded: Cluster | None) -> str:
    """What this run has to do before the chart is installed."""
    if embedded:
        return "on the cluster that ran already"
    return "cluster started from the cache" if (cache.root() / "bin-kube").exists() else "everything built"


def _keep_figure(kind: str, clock: Clock) -> None:
    """The whole time, for docs/benchmarks.md, beside the last ones of the other kinds."""
    goal = "<= 900 s" if kind == "everything built" else "<= 60 s"
    mine = Result(f"make demo, {kind}", time.monotonic() - clock.started, "s", goal=goal)
    before = results.read("demo") if (results.RESULTS / "demo.json").exists() else []
    results.save("demo", [*(other for other in before if other.metric != mine.metric), mine])


def _announce(embedded: Cluster | None) -> None:
    print("This demo runs the whole product on this machine.")
    if embedded:
        _paragraph(
            f"It uses the cluster {embedded.name!r}, which runs already, builds the images and installs the chart."
        )
        return
    builders = packages.missing(packages.IMAGE_PACKAGES)
    extra = f"installs the Debian packages {', '.join(builders)}, " if builders else ""
    _paragraph(node.announcement())
    _paragraph(f"For the images it {extra}makes a Debian base image and builds the three Dockerfiles on it.")
    _paragraph(
        f"What it builds stays in {cache.root()} and in .venv, so that the next time takes seconds. It needs 15 GB of"
        " disk in all; 6 GB of them are for .venv."
    )
    _paragraph(
        "The gateway listens on 127.0.0.1 only. `make demo-down` removes the cluster and all that runs in it."
    )


def _paragraph(text: str) -> None:
    print(
        textwrap.fill(text, 110, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False),
        flush=True,
    )


def _announce_foreign(cluster: Cluster, images: Images) -> None:
    print(f"This demo uses the cluster of DEMO_KUBECONFIG={cluster.kubeconfig}:")
    progress.say(
        f"It installs the chart with Helm into namespace {NAMESPACE} (images like {images.operator}),"
    )
    progress.say("the custom resource definitions, and the LLMEndpoint default/demo.")
    progress.say(f"`{clusters.typed('demo-down')}` removes what was not there before.")
    print(flush=True)


def _build_and_start(embedded: Cluster | None, clock: Clock) -> tuple[Cluster, Images]:
    """The compiler and the image builder work side by side; the cluster starts as soon as its programs are there."""
    began = time.monotonic()

    def timed(what: str, call: Callable[[], Any]) -> Any:
        result = call()
        clock.steps.append((what, time.monotonic() - began))
        return result

    built, folder, cluster = together.run_together(
        lambda: timed("images built", image_builds.build_images),
        lambda: timed("the server's libraries installed", image_builds.site_packages),
        lambda: timed("cluster built and started", lambda: embedded or _start()),
    )
    with clock.step("images loaded into the node"):
        return cluster, product.load(cluster, built, folder)


def _start() -> Cluster:
    with progress.step("the embedded Kubernetes"):
        return start_node(clusters.NAME, owned=False)


def _gateway_port(cluster: Cluster) -> int:
    """The port of an earlier demo on this cluster, else the first free one."""
    return product.balanced_port(cluster) or _free_port()


def _free_port() -> int:
    """The first port of 127.0.0.1 from 8080 on that nobody listens on."""
    return next(candidate for candidate in range(8080, 8180) if _is_free(candidate))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _install(cluster: Cluster, images: Images) -> None:
    if not clusters.is_the_demos(cluster):
        _remember(cluster)
    if images.site_packages:
        cluster.apply(*images.volume("default"))
    values = product.merged(images.values(), {"gateway": {"drainSeconds": 5}})
    if values == product.installed_values(cluster) and _same_chart(cluster):
        progress.say("the chart is installed with these images already")
        return
    with progress.step("helm upgrade --install llmendpoint charts/llmendpoint"):
        product.install(cluster, values, FOLDER)
    cluster.apply(_chart_stamp())


def _chart_stamp() -> Values:
    digest = cache.tree_digest(product.CHART)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "demo-chart", "namespace": NAMESPACE},
        "data": {"digest": digest},
    }


def _same_chart(cluster: Cluster) -> bool:
    try:
        return cluster.get("configmap", "demo-chart", "-n", NAMESPACE)["data"] == _chart_stamp()["data"]
    except CommandFailed:
        return False


def _remember(cluster: Cluster) -> None:
    """What somebody's cluster had before, so that `down` takes away only the rest. The first record counts."""
    if recorded(cluster):
        return
    if product.installed_values(cluster) is not None:
        raise ClusterError(
            f"{cluster.kubeconfig} has a release {product.RELEASE!r} in {NAMESPACE} already, and the demo would change it;"
            f" apply {EXAMPLE.relative_to(ROOT)} yourself"
        )
    names = {"namespace": NAMESPACE, "crd": product.DEFINITION}
    there = {kind: name in cluster.kubectl("get", kind, "-o", "name") for kind, name in names.items()}
    record = {
        "kubeconfig": str(cluster.kubeconfig),
        "cluster": product.identity(cluster),
        "there": there,
        "endpoints": product.endpoints(cluster),
    }
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record))


def recorded(cluster: Cluster) -> dict[str, Any]:
    """What `_remember` wrote about this cluster; empty if it wrote nothing, or of another cluster at the same address."""
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    known = record.get("kubeconfig") == str(cluster.kubeconfig)
    return record if known and record.get("cluster") == product.identity(cluster) else {}


def _apply_example(cluster: Cluster, viewer: watch.Viewer, images: Images) -> None:
    endpoint = yaml.safe_load(EXAMPLE.read_text())
    if not viewer.accelerators(ACCELERATOR):
        progress.say(f"no node offers {ACCELERATOR}, so the endpoint is applied without accelerators")
        del endpoint["spec"]["resources"]["accelerator"]
    progress.say(f"kubectl apply -f {EXAMPLE.relative_to(ROOT)}")
    cluster.apply(endpoint)


def _chat(cluster: Cluster, port: int | None) -> None:
    print(
        f"\nAsking through the gateway with the openai SDK (model {MODEL!r}): {chat.QUESTION}\n", flush=True
    )
    if port is not None:
        answer = chat.ask(f"http://127.0.0.1:{port}/v1", MODEL)
    else:
        with clusters.port_forward(cluster, "llmendpoint-gateway", NAMESPACE, 80) as url:
            answer = chat.ask(f"{url}/v1", MODEL)
    print(f"\n({answer.tokens} tokens from {answer.model})", flush=True)


def _what_next(cluster: Cluster, port: int | None) -> str:
    path = "" if cluster.instance is None else f" PATH={cluster.bin}:$PATH"
    lines = [f"export KUBECONFIG={cluster.kubeconfig}{path}"]
    if port is None:
        port = 8080
        lines.append(f"kubectl -n {NAMESPACE} port-forward service/llmendpoint-gateway {port}:80 &")
    body = json.dumps(
        {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "Who are you?"}]}
    )
    lines += [
        "kubectl get llmendpoints",
        "kubectl get pods -o wide",
        "kubectl scale llmendpoint demo --replicas=3",
        "kubectl explain llmendpoint.spec.model",
        "export PATH=$PWD/.venv/bin:$PATH; kubectl llm status",
        f"curl -N http://127.0.0.1:{port}/v1/chat/completions -H 'content-type: application/json' -d '{body}'",
        clusters.typed("demo-down"),
    ]
    return "The cluster is left running. To play on:\n\n" + "\n".join(f"  {line}" for line in lines)
