"""Remove what the demo made, and nothing else."""

import json

from tests.cluster import Cluster, cache, lifecycle, progress
from tests.cluster import instance as instances
from tests.cluster.errors import ClusterError, NoSuchCluster
from tests.demo import clusters, product
from tests.demo.product import NAMESPACE
from tests.demo.up import EXAMPLE, FOLDER, RECORD


def run() -> None:
    """The embedded cluster as a whole; of a foreign one, what was not there before."""
    kubeconfig = clusters.foreign_kubeconfig()
    if kubeconfig is None:
        _remove_embedded()
        return
    embedded = clusters.embedded_of(kubeconfig)
    cluster = embedded or clusters.foreign_cluster(kubeconfig, FOLDER)
    _remove_from(cluster, _there_before(cluster) if embedded is None else {})


def _remove_embedded() -> None:
    try:
        instance = instances.load(clusters.NAME)
    except NoSuchCluster:
        print("There is no demo cluster on this machine; nothing to remove.")
        return
    with progress.step("removing the demo's cluster and all that runs in it"):
        lifecycle.down(instance)
    print(
        f"Gone. What was built stays in {cache.root()} for the next time; delete that folder to free its space."
    )


def _there_before(cluster: Cluster) -> dict[str, bool]:
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if record.get("kubeconfig") != str(cluster.kubeconfig):
        raise ClusterError(
            f"no demo was installed into {cluster.kubeconfig} from this checkout; nothing is removed"
        )
    return record["there"]


def _remove_from(cluster: Cluster, there: dict[str, bool]) -> None:
    with progress.step("removing the endpoint, the release and what came with them"):
        cluster.kubectl("delete", "-f", str(EXAMPLE), "--ignore-not-found", timeout=180)
        if product.installed_values(cluster) is not None:
            cluster.helm("uninstall", product.RELEASE, "--namespace", NAMESPACE, "--wait", timeout=180)
        cluster.kubectl("delete", "configmap", "demo-chart", "-n", NAMESPACE, "--ignore-not-found")
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
