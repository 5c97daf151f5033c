"""docs/concepts/autoscaling.md: a real HorizontalPodAutoscaler follows the recommendation, and KEDA is told UNAVAILABLE, never 0."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from llmendpoint_operator.kube.resources import AUTOSCALERS, SCALED_OBJECTS
from llmendpoint_operator.settings import Keda
from tests.cluster import Cluster
from tests.cluster.certificates import Identity, write_pki
from tests.cluster.errors import CommandFailed
from tests.integration import metrics_adapter
from tests.integration.mortal_operator import Operator
from tests.integration.namespace import Namespace
from tests.integration.operator_process import OperatorProcess
from tests.integration.played_load import tell
from tests.integration.rollout_players import NAME
from tests.integration.rollout_stage import Stage, Stages
from tests.ports import free_port

pytestmark = pytest.mark.integration

QUICK = {"scaleDown": {"stabilizationWindowSeconds": 0}}


async def set_by(stage: Stage, provider: str, **autoscaling: Any) -> None:
    await stage.edit(1, autoscaling={"provider": provider, "maxReplicas": 5, **autoscaling})


async def wait_spec(stage: Stage, count: int) -> None:
    """Until spec.replicas, which the scaler writes, is so, and the status follows."""

    def reached() -> bool:
        return stage.endpoint["spec"].get("replicas") == count and stage.status.get("readyReplicas") == count

    await stage.until(f"{count} replicas", reached)


async def test_a_real_horizontal_pod_autoscaler_follows_the_recommendation_up_and_down_and_not_into_the_blue(
    stages: Stages, tmp_path: Path
) -> None:
    async with stages.stage() as stage:
        operator = await Operator(stage).start()
        async with metrics_adapter.serving(stage.cluster, operator.metrics.registry, tmp_path):
            tell(stage)
            await set_by(stage, "hpa", behavior=QUICK)
            await stage.at_rest()
            await stage.until("the scaler", lambda: stage.condition("Scaling").get("reason") == "ScaledByHpa")
            tell(stage, waiting=8)
            await wait_spec(stage, 5)
            assert stage.status.get("autoscaling") is None, (
                "there is one writer, and it is not the builtin one"
            )

            for gateway in stage.gateways.values():
                gateway.hush()
            await stage.until("no metric", lambda: stage.condition("Scaling")["reason"] == "HpaNotActive")
            assert stage.endpoint["spec"]["replicas"] == 5
            for gateway in stage.gateways.values():
                gateway.mute = False
            tell(stage)
            await wait_spec(stage, 1)

            await set_by(stage, "none")
            await stage.until("no scaler", lambda: not stage.condition("Scaling"))
            assert (await stage.api.list(AUTOSCALERS, stage.namespace))["items"] == []


SCALED_OBJECT_KIND = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "scaledobjects.keda.sh"},
    "spec": {
        "group": "keda.sh", "scope": "Namespaced",
        "names": {"kind": "ScaledObject", "plural": "scaledobjects"},
        "versions": [{
            "name": "v1alpha1", "served": True, "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }],
    },
}  # fmt: skip
"""As much of KEDA's own as is needed to store one."""


async def test_without_keda_the_condition_says_so_and_once_it_is_there_its_object_is_made(
    stages: Stages,
) -> None:
    async with stages.stage() as stage:
        await Operator(stage, keda=Keda("operator:8083", "operator", 0, Path())).start()
        await set_by(stage, "keda", minReplicas=0)
        await stage.at_rest()
        await stage.until("the condition", lambda: stage.condition("Scaling").get("reason") == "KedaMissing")
        stage.cluster.apply(SCALED_OBJECT_KIND)
        try:
            await stage.until(
                "the condition", lambda: stage.condition("Scaling").get("reason") == "ScalerStarting"
            )
            [made] = (await stage.api.list(SCALED_OBJECTS, stage.namespace))["items"]
            assert made["metadata"]["ownerReferences"][0]["name"] == NAME
            assert made["spec"]["scaleTargetRef"]["kind"] == "LLMEndpoint"
            await set_by(stage, "builtin")
            await stage.until("the builtin scaler", lambda: "autoscaling" in stage.status)
            assert (await stage.api.list(SCALED_OBJECTS, stage.namespace))["items"] == []
        finally:
            stage.cluster.kubectl("delete", "crd", "scaledobjects.keda.sh")


@pytest.fixture
def standby(
    operator: OperatorProcess, prepared: Cluster, tmp_path: Path
) -> Iterator[tuple[OperatorProcess, int]]:
    """A second operator, which waits for the lease and serves KEDA."""
    write_pki(tmp_path, [Identity("tls", "operator", names=("localhost",)), Identity("keda", "keda")])
    port = free_port()
    process = OperatorProcess(
        prepared, "--keda-address", f"localhost:{port}", "--keda-port", str(port), "--keda-tls", str(tmp_path),
    )  # fmt: skip
    with process.start("standby"):
        yield process, port


def test_an_operator_without_the_lease_answers_keda_and_says_unknown_where_no_gateway_tells(
    standby: tuple[OperatorProcess, int], namespace: Namespace, tmp_path: Path
) -> None:
    process, port = standby
    namespace.apply(autoscaling={"provider": "keda", "maxReplicas": 2})
    credentials = grpc.ssl_channel_credentials(
        *((tmp_path / name).read_bytes() for name in ("ca.crt", "keda.key", "keda.crt"))
    )

    def asked(name: str) -> str:
        reference = b"".join(
            bytes([tag, len(text)]) + text for tag, text in ((0x0A, name.encode()), (0x12, namespace.name.encode()))
        )  # fmt: skip
        with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
            try:
                channel.unary_unary("/externalscaler.ExternalScaler/IsActive")(reference, timeout=20)
            except grpc.RpcError as error:
                return str(error.code().name)
        return "OK"

    namespace.cluster.wait_for("the endpoint to be known", lambda: asked("chat") == "UNAVAILABLE" or None, 30)
    assert asked("other") == "NOT_FOUND"
    assert process.page("/readyz") == {"status": "standby"}
    namespace.apply(autoscaling={"provider": "none", "maxReplicas": 2})
    namespace.cluster.wait_for("it to be KEDA's no more", lambda: asked("chat") == "NOT_FOUND" or None, 30)


@pytest.mark.parametrize(
    ("autoscaling", "part"),
    [
        ({"provider": "hpa", "minReplicas": 0}, "autoscaling.minReplicas to 1 or more"),
        ({"provider": "hpa", "fallback": {"replicas": 1}}, "leave idleReplicas and fallback out"),
        ({"provider": "keda", "minReplicas": 3, "idleReplicas": 1}, "idleReplicas can only be 0"),
        ({"provider": "keda", "schedules": [{"name": "a", "start": "0 8 * * *", "end": "0 9 * * *", "minReplicas": 1}]}, "need provider: builtin"),
        ({"provider": "knative"}, "autoscaling.provider"),
    ],
)  # fmt: skip
def test_what_a_provider_cannot_do_is_refused(
    namespace: Namespace, autoscaling: dict[str, Any], part: str
) -> None:
    with pytest.raises(CommandFailed) as refused:
        namespace.apply(autoscaling={"maxReplicas": 5, **autoscaling})
    assert part in refused.value.output
