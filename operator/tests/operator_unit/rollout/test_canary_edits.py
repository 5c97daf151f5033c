"""docs/concepts/rollouts.md: a canary whose steps are edited goes on at the same place; a promotion takes it at any step."""

from __future__ import annotations

from typing import Any

import pytest

from llmendpoint_operator.core.rollout.wanted import find_wanted

from ..rollout_stage import GOOD, WATCHED, Rollout


def canary(*weights: int, **rollout: Any) -> Rollout:
    """Steps of 60 s each."""
    it = Rollout(strategy="Canary", canary={"steps": steps(*weights)}, **rollout)
    it.cluster.figures = {}
    return it


def steps(*weights: int) -> list[dict[str, int]]:
    return [{"weight": weight, "duration": 60} for weight in weights]


def at_second_step(*weights: int) -> tuple[Rollout, str]:
    """100 s into it, with figures that are good."""
    it = canary(*weights, observe={**WATCHED, "maxDuration": 3600})
    green = it.switched()
    it.cluster.figures = {green: GOOD}
    it.work(61)
    it.cluster.follow()
    it.work()
    it.cluster.figures = {}
    assert (it.work(100), it.cluster.weights()[green]) == ("Observing", weights[1])
    return it, green


@pytest.mark.parametrize(("edited", "weight"), [([10], 100), ([5, 40], 40), ([1, 2, 5], 2)])
def test_canary_steps_that_are_edited_in_mid_step_are_observed_from_the_start(
    edited: list[int], weight: int
) -> None:
    it, green = at_second_step(10, 25, 50)
    assert it.cluster.status["rollout"]["weight"] == 25
    window = find_wanted(it.cluster.snapshot())
    it.rollout["canary"] = {"steps": steps(*edited)}
    it.cluster.edit(it.spec(2))
    assert it.work() == "Switching"
    assert it.cluster.weights()[green] == weight
    assert it.cluster.status["rollout"]["weight"] == weight
    assert any(line.startswith("ShareChanged") for line in it.told)
    it.cluster.follow()
    assert it.work() == "Observing"
    after = find_wanted(it.cluster.snapshot())
    assert window is not None
    assert after is not None
    assert after.window != window.window, "figures are counted anew"
    it.cluster.figures = {green: GOOD}
    assert it.work(55) == "Observing"
    assert it.cluster.replicas()[it.blue] == 2
    it.work(10)
    assert it.cluster.state in ("Switching", "Idle")


def test_later_steps_that_are_edited_change_nothing_now() -> None:
    it, green = at_second_step(10, 25, 50)
    before = it.cluster.status["rollout"]
    it.rollout["canary"] = {"steps": steps(10, 25, 75, 90)}
    it.cluster.edit(it.spec(2))
    assert it.work() == "Observing"
    assert it.cluster.status["rollout"] == before
    assert it.cluster.weights()[green] == 25


def test_a_canary_from_before_its_weight_was_recorded_goes_on() -> None:
    it, green = at_second_step(10, 25)
    del it.cluster.status["rollout"]["weight"]
    assert it.work() == "Observing"
    it.cluster.figures = {green: GOOD}
    assert it.work(1) == "Switching"
    assert it.cluster.status["rollout"]["weight"] == 100


def test_a_promotion_that_was_accepted_holds_though_a_pod_is_unready_at_that_moment() -> None:
    it = Rollout(promotion="Manual")
    green = it.edit()
    it.cluster.make_ready(green)
    assert it.work() == "AwaitingPromotion"
    it.cluster.pods[green][0]["status"]["conditions"][0]["status"] = "False"
    assert it.ask("promote", green)["outcome"] == "Accepted"
    assert it.cluster.state == "Warming"
    assert it.cluster.weights() == {it.blue: 100}
    it.cluster.make_ready(green)
    assert it.work(5) == "Switching"
    assert it.cluster.weights() == {green: 100}


def test_a_promotion_takes_a_canary_for_good_at_whichever_step() -> None:
    it = canary(10, 25, observe=WATCHED)
    green = it.switched()
    assert it.cluster.weights() == {it.blue: 90, green: 10}
    answer = it.ask("promote", green)
    assert answer["outcome"] == "Accepted"
    assert "without further observation" in answer["message"]
    assert it.cluster.state == "Draining"
    assert it.cluster.weights() == {green: 100}
    assert it.cluster.replicas() == {it.blue: 2, green: 2}
    it.cluster.follow()
    assert it.work(11) == "Idle"
    assert it.cluster.active == green


def test_a_promotion_is_not_lost_to_an_edit_of_the_steps() -> None:
    it, green = at_second_step(10, 25)
    it.rollout["canary"] = {"steps": steps(10, 40)}
    it.cluster.edit(it.spec(2))
    it.ask("promote", green)
    assert it.cluster.weights() == {green: 100}
    assert it.cluster.state == "Draining"


def test_a_promotion_to_requests_is_not_one_for_good() -> None:
    it = Rollout(promotion="Manual", observe=WATCHED)
    it.cluster.gateways = {}
    green = it.edit()
    it.cluster.make_ready(green)
    it.work()
    it.ask("promote", green)
    assert it.cluster.state == "Observing", "without a gateway nobody has to acknowledge"
