"""Remove what the demo made, and nothing else."""

from collections.abc import Sequence
from typing import Any

from tests.cluster import Cluster, cache, lifecycle, progress
from tests.cluster import instance as instances
from tests.cluster.errors import ClusterError, NoSuchCluster
from tests.demo import clusters, product
from tests.demo.product import NAMESPACE
from tests.demo.up import EXAMPLE, FOLDER, MODEL, RECORD, recorded

_BESIDE_THE_RELEASE = (
    ("configmap", "demo-chart"),
    ("service", product.BALANCER),
    ("lease", "llmendpoint-operator"),
)


def run() -> None:
    """The embedded cluster as a whole; of any other, what was not there before."""
    kubeconfig = clusters.foreign_kubeconfig()
    if kubeconfig is None:
        _remove_embedded()
        return
    cluster = clusters.embedded_of(kubeconfig) or clusters.foreign_cluster(kubeconfig, FOLDER)
    record = {} if clusters.is_the_demos(cluster) else _record(cluster)
    _refuse_while_others_run(cluster, record.get("endpoints", []))
    _remove_from(cluster, record.get("there", {}))


def _remove_embedded() -> None:
    try:
        instance = instances.load(clusters.NAME)
    except NoSuchCluster:
        print("There is no demo cluster on this machine; nothing to remove.")
        return
    with progress.step("removing the demo's cluster and all that runs in it"):
        lifecycle.down(instance)
    print(
        f"Gone. What was built stays in {cache.root()} and in .venv for the next time;"
        " delete these folders to free their space."
    )


def _record(cluster: Cluster) -> dict[str, Any]:
    record = recorded(cluster)
    if not record:
        raise ClusterError(
            f"no demo was installed into {cluster.kubeconfig} from this checkout; nothing is removed"
        )
    return record


def _refuse_while_others_run(cluster: Cluster, before: Sequence[str]) -> None:
    """An endpoint's pods keep the libraries' claim, and without the operator nobody ends them."""
    others = set(product.endpoints(cluster)) - {MODEL, *before}
    if not others:
        return
    found: dict[str, list[str]] = {}
    for namespace, _, name in (full.partition("/") for full in sorted(others)):
        found.setdefault(namespace, []).append(name)
    commands = [f"kubectl delete llmendpoint -n {space} {' '.join(names)}" for space, names in found.items()]
    raise ClusterError(
        f"{', '.join(sorted(others))} still run; nothing is removed. Delete them first: {'; '.join(commands)};"
        f" then again: {clusters.typed('demo-down')}"
    )


def _remove_from(cluster: Cluster, there: dict[str, bool]) -> None:
    with progress.step("removing the endpoint, the release and what came with them"):
        cluster.kubectl("delete", "-f", str(EXAMPLE), "--ignore-not-found", timeout=180)
        if product.installed_values(cluster) is not None:
            cluster.helm("uninstall", product.RELEASE, "--namespace", NAMESPACE, "--wait", timeout=180)
        for kind, name in _BESIDE_THE_RELEASE:
            cluster.kubectl("delete", kind, name, "-n", NAMESPACE, "--ignore-not-found")
        _remove_libraries(cluster)
        if not there.get("crd"):
            cluster.kubectl("delete", "-f", str(product.CHART / "crds"), "--ignore-not-found", timeout=120)
        if not there.get("namespace"):
            cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", timeout=180)
    RECORD.unlink(missing_ok=True)


def _remove_libraries(cluster: Cluster) -> None:
    for claim in cluster.get("persistentvolumeclaims", "-n", "default")["items"]:
        if claim["metadata"]["name"].startswith(product.CLAIM_PREFIX):
            cluster.kubectl(
                "delete", "-n", "default", "persistentvolumeclaim", claim["metadata"]["name"], timeout=60
            )
            cluster.kubectl("delete", "persistentvolume", claim["spec"]["volumeName"], timeout=60)
