"""What a rollout may conclude from what it sees, and from what it does not."""

from __future__ import annotations

from llmendpoint_operator.core.evidence import Figures

from .test_rollout_states import Rollout


def test_gateways_that_are_all_unready_for_a_moment_confirm_nothing() -> None:
    it = Rollout()
    green = it.switched()
    it.cluster.figures = {green: Figures(requests=15, errors=15, seconds=5)}
    gateways, it.cluster.gateways = it.cluster.gateways, {}
    it.cluster.gateways_known = False
    assert it.work(5) == "Observing"
    assert it.cluster.replicas()[it.blue] == 2
    it.cluster.gateways, it.cluster.gateways_known = gateways, True
    it.cluster.figures = {green: Figures(requests=20, errors=20, seconds=7)}
    assert it.work(2) == "RollingBack"
