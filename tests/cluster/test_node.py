"""docs/contribute/test-bed.md: the node runs pods as a real one does, and nothing gets out of the machine or in from outside."""

import json
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster, machine, progress
from tests.cluster.api import client_context
from tests.cluster.balancer import answer_on_loopback
from tests.cluster.baseimage import obtain_base
from tests.cluster.configuration import NODE_ADDRESS
from tests.cluster.errors import CommandFailed
from tests.cluster.outside import OUTSIDE_ADDRESS, PORT, outside_host
from tests.cluster.pods import CONNECT, FETCH, HTTP_PORT, service, web_pod
from tests.cluster.sockets import listening_addresses
from tests.ports import free_port

pytestmark = pytest.mark.e2e

HOST_PORT = free_port()


@pytest.fixture(scope="module")
def pods(node: Cluster) -> Iterator[Cluster]:
    """The node with two pods that serve their names, a Service before each."""
    node.import_image(obtain_base())
    node.apply(web_pod("first", accelerators=1, host_port=HOST_PORT), service("first"))
    node.apply(web_pod("second", accelerators=1), service("second"))
    for pod in ("first", "second"):
        node.wait_ready(pod)
    yield node
    everything = ["pod/first", "pod/second", "service/first", "service/second"]
    node.kubectl("delete", *everything, "-n", "default", "--ignore-not-found")


def test_what_a_container_prints_is_in_its_logs(pods: Cluster) -> None:
    assert "serving" in pods.logs("first")


def test_pods_get_processor_time_before_single_processes_of_the_machine(pods: Cluster) -> None:
    pods_own = [Path(folder) for folder in machine.cgroups() if Path(folder).name == machine.CGROUP]
    weights = [folder / name for folder in pods_own for name in machine.CPU_WEIGHTS]
    found = {file.name: int(file.read_text()) for file in weights if file.exists()}
    assert len(found) == 1, "the machine has no cpu controller, or two"
    assert found.items() <= machine.CPU_WEIGHTS.items()


def test_a_command_runs_in_a_container(pods: Cluster) -> None:
    assert pods.execute("first", "cat", "/tmp/name").strip() == "first"


@pytest.mark.parametrize("caller", ["first", "second"])
def test_a_service_is_reached_by_its_name_from_any_pod_and_its_own(pods: Cluster, caller: str) -> None:
    pods.wait_for(
        "the Service answers",
        lambda: _fetch(pods, caller, "http://second.default.svc.cluster.local/name").strip() == "second",
    )


def test_the_api_server_is_reached_from_a_pod_by_its_service(pods: Cluster) -> None:
    address = _connect(pods, "first", "kubernetes.default.svc", 443)
    assert address == "0"


def test_a_name_outside_the_cluster_is_refused_at_once(pods: Cluster) -> None:
    with pytest.raises(CommandFailed, match=r"Name or service not known|No address associated"):
        _fetch(pods, "first", "http://example.com/")


def test_a_host_port_answers_on_the_loopback_address(pods: Cluster) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{HOST_PORT}/name", timeout=5) as answer:
        assert answer.read().decode().strip() == "first"


def test_a_load_balancer_on_the_loopback_address_reaches_each_pod_and_outlives_one(pods: Cluster) -> None:
    """Both pods are on one node, where a host port has room for one of them."""
    labels, port = {"balanced": "yes"}, free_port()
    for pod in ("first", "second"):
        pods.kubectl("label", "pod", pod, "-n", "default", "balanced=yes")
    answer_on_loopback(pods, "balanced", "default", labels, port=port, target=HTTP_PORT)

    def answering() -> set[str]:
        """Who answers eight connections; none while kube-proxy has not heard of the Service yet."""
        seen = set()
        for _ in range(8):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/name", timeout=5) as answer:
                    seen.add(answer.read().decode().strip())
            except OSError:
                return set()
        return seen

    try:
        pods.wait_for("both pods answer", lambda: answering() == {"first", "second"})
        pods.kubectl("label", "pod", "second", "-n", "default", "balanced-")
        pods.wait_for("the first answers alone", lambda: answering() == {"first"})
    finally:
        pods.kubectl("delete", "service", "balanced", "-n", "default")


def test_pods_get_distinct_accelerators(pods: Cluster) -> None:
    ids = {pods.execute(pod, "printenv", "NVIDIA_VISIBLE_DEVICES").strip() for pod in ("first", "second")}
    assert len(ids) == 2
    assert ids < {str(number) for number in range(pods.own.gpus or 0)}


def test_a_pod_that_wants_one_accelerator_too_many_waits_and_says_so(pods: Cluster) -> None:
    pods.apply(web_pod("third", accelerators=(pods.own.gpus or 0) + 1))
    try:
        message = pods.wait_for("the scheduler's verdict", lambda: _unschedulable(pods, "third"))
        assert "Insufficient nvidia.com/gpu" in message
    finally:
        pods.kubectl("delete", "pod", "third", "-n", "default")


def test_the_kubelet_obeys_rbac(node: Cluster) -> None:
    instance = node.own
    url = f"https://{NODE_ADDRESS}:{instance.ports.kubelet}/pods"
    assert _status(url, client_context(instance.pki, "apiserver-kubelet-client")) == 200
    assert _status(url, client_context(instance.pki, "coredns")) == 403
    assert _status(url, ssl.create_default_context(cafile=str(instance.pki / "ca.crt"))) == 401


def test_the_kubelet_may_not_change_another_node(node: Cluster) -> None:
    manifest = json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node2"}})
    kubeconfig = str(node.own.kubeconfig("kubelet"))
    with pytest.raises(CommandFailed, match="forbidden"):
        node.kubectl("--kubeconfig", kubeconfig, "create", "-f", "-", stdin=manifest)


def test_it_listens_on_the_loopback_and_its_own_address_alone(node: Cluster) -> None:
    processes = [process for process in node.own.processes.all() if process.alive]
    assert set(listening_addresses(p.pid for p in processes)) == {"127.0.0.1", NODE_ADDRESS}


def test_nothing_gets_out_of_the_pods_and_nothing_in_from_outside(pods: Cluster) -> None:
    address = pods.get("pod", "first", "-n", "default")["status"]["podIP"]
    with outside_host() as enter:
        from_machine = progress.run([sys.executable, "-c", CONNECT, OUTSIDE_ADDRESS, str(PORT)])
        assert from_machine.strip() == "0", "the outside host is not reached at all, so this shows nothing"
        assert _connect(pods, "first", OUTSIDE_ADDRESS, PORT) != "0"
        for host, port in ((address, HTTP_PORT), (NODE_ADDRESS, pods.port)):
            assert progress.run([*enter, "python3", "-c", CONNECT, host, str(port)]).strip() != "0"


def _fetch(cluster: Cluster, pod: str, url: str) -> str:
    return cluster.execute(pod, "python3", "-c", FETCH, url)


def _connect(cluster: Cluster, pod: str, host: str, port: int) -> str:
    """The error number of a TCP connection from a pod, "0" for success."""
    return cluster.execute(pod, "python3", "-c", CONNECT, host, str(port)).strip()


def _unschedulable(cluster: Cluster, pod: str) -> str:
    conditions = cluster.get("pod", pod, "-n", "default")["status"].get("conditions", [])
    return next(
        (c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), ""
    )


def _status(url: str, context: ssl.SSLContext) -> int:
    try:
        with urllib.request.urlopen(url, context=context, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
