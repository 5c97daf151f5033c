"""docs/benchmarks.md: what a figure of `make bench-verdicts` is made of: streams with the stated rates, and rules that decide as their sources say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.bench.verdicts import rollouts, tables
from tests.bench.verdicts.__main__ import main
from tests.bench.verdicts.product import spec_of
from tests.bench.verdicts.rollouts import RULES, End, Outcome, run, simulate
from tests.bench.verdicts.rules import Answer, ArgoCounts, CumulativeShare, OmeLimit, Rule, quantile
from tests.bench.verdicts.settings import DEGRADED, HEALTHY, Drift, Fault, Limits, Setting, Traffic
from tests.bench.verdicts.streams import EDGES, Ints, Rollout, Track, clumps, draw

MOMENTS = np.arange(20_000)


def drawn(traffic: Traffic, fault: Fault | None = None) -> Track:
    return draw(traffic, MOMENTS, np.random.default_rng(1), fault=fault)


def share(track: Track, start: int = 0, end: int = -1) -> float:
    tally = track.between(start, end)
    return tally.failed / tally.requests


def table_of(within: dict[float, int], count: int) -> Ints:
    """How many of `count` came within each edge, where these many did from this edge on."""
    return np.array([max([0, *(n for edge, n in within.items() if edge <= e)]) for e in EDGES[:-1]] + [count])


def told(failed: list[int], each: int = 10) -> Track:
    """`each` requests a second, of which so many failed; first tokens of the others within 0.1 s."""
    ended = np.concatenate(([0], np.cumsum([each] * len(failed))))
    lost = np.concatenate(([0], np.cumsum(failed)))
    ttft = np.where(np.array(EDGES) >= 0.1, (ended - lost)[:, None], 0)
    return Track(ended, lost, ttft)


def ask(rule: Rule, green: Track, before: Track | None = None) -> tuple[Answer, int]:
    """The answer, and after how many seconds."""
    rule.before(before or told([0] * 60))
    rule.begin()
    for at in range(2, green.seconds + 1, 2):
        if (answer := rule.look(at, green, told([0] * green.seconds, 0))) is not Answer.WAIT:
            return answer, at
    return Answer.WAIT, green.seconds


@pytest.mark.parametrize(("rate", "errors"), [(10.0, 0.005), (1.0, 0.02), (20.0, 0.0)])
def test_a_stream_has_the_rate_and_the_errors_of_its_setting(rate: float, errors: float) -> None:
    track = drawn(Traffic(rate=rate, errors=errors))
    assert track.requests[-1] / track.seconds == pytest.approx(rate, rel=0.03)
    assert share(track) == pytest.approx(errors, rel=0.2)
    assert track.ttft[-1][-1] == track.requests[-1] - track.failed[-1]


@pytest.mark.parametrize("sigma", [0.5, 1.0])
def test_the_95th_percentile_is_the_stated_one_and_grows_with_a_fault(sigma: float) -> None:
    healthy = drawn(Traffic(sigma=sigma, p95=0.5)).between(0, -1)
    slow = drawn(Traffic(sigma=sigma, p95=0.5), Fault(slower=1.3)).between(0, -1)
    at = EDGES.index(0.5)
    assert healthy.ttft[at] / healthy.ttft[-1] == pytest.approx(0.95, abs=0.002)
    assert slow.ttft[at] / slow.ttft[-1] < 0.94


def test_failures_in_clumps_come_ten_in_a_row_and_are_as_many() -> None:
    failed = clumps(400_000, 0.005, 10, np.random.default_rng(2))
    assert failed.mean() == pytest.approx(0.005, rel=0.1)
    changes = np.flatnonzero(np.diff(failed.astype(int)))
    lengths = np.diff(changes)[0 if failed[changes[0] + 1] else 1 :: 2]
    assert set(lengths % 10) == {0}
    assert share(drawn(Traffic(clump=10))) == pytest.approx(0.005, rel=0.25)


def test_a_drifting_day_swings_around_its_middle() -> None:
    track = drawn(Traffic(drift=Drift(period_s=20_000, rate=0.6, errors=0.8)))
    up, down = track.between(0, 10_000), track.between(10_000, 20_000)
    assert up.requests > 1.8 * down.requests
    assert up.failed > 3 * down.failed
    assert (up.requests + down.requests) / 20_000 == pytest.approx(10, rel=0.03)


def test_a_fault_begins_when_its_setting_says() -> None:
    track = drawn(Traffic(errors=0.0), Fault(errors=1.0, starts=60))
    assert (share(track, 0, 60), share(track, 60, 200)) == (0.0, 1.0)


def test_every_rule_sees_the_same_requests_and_another_number_is_another_rollout() -> None:
    setting = HEALTHY[2]
    one, again, other = Rollout(setting, 1), Rollout(setting, 1), Rollout(setting, 2)
    assert np.array_equal(one.window(0)[0].ttft, again.window(0)[0].ttft)
    assert not np.array_equal(one.window(0)[0].ttft, other.window(0)[0].ttft)


def test_a_canary_divides_the_requests_between_both_revisions() -> None:
    rollout = Rollout(Setting("steps", weights=(25, 100)), 0)
    (green, blue), (last, nothing) = rollout.window(0), rollout.window(1)
    assert green.requests[-1] / (green.requests[-1] + blue.requests[-1]) == pytest.approx(0.25, abs=0.03)
    assert last.requests[-1] > 5000
    assert nothing.requests[-1] == 0


def test_a_quantile_is_that_of_prometheus() -> None:
    assert quantile(0.95, table_of({0.44: 90, 0.5: 100}, 100)) == pytest.approx(0.44 + 0.06 * 5 / 10)
    assert quantile(0.95, table_of({0.44: 90}, 100)) == 100.0
    assert quantile(0.95, table_of({}, 0)) is None


def test_the_cumulative_share_breaks_at_the_first_look_above_its_limit() -> None:
    assert ask(CumulativeShare(Limits()), told([0] * 100)) == (Answer.GOOD, 60)
    assert ask(CumulativeShare(Limits()), told([1] + [0] * 99)) == (Answer.BAD, 2)
    assert ask(CumulativeShare(Limits()), told([0] * 20 + [5] + [0] * 40)) == (Answer.BAD, 22)
    assert ask(CumulativeShare(Limits()), told([0] * 100, 0)) == (Answer.WAIT, 100)
    assert ask(CumulativeShare(Limits(increase=0.005)), told([0] * 30 + [3] + [0] * 69)) == (Answer.BAD, 32)


def test_argo_rollouts_fails_when_more_measurements_failed_than_its_limit() -> None:
    good, bad = [0] * 60, [1] * 60
    assert ask(ArgoCounts(Limits()), told(good * 5)) == (Answer.GOOD, 300)
    assert ask(ArgoCounts(Limits()), told(good + bad + good * 3)) == (Answer.BAD, 120)
    assert ask(ArgoCounts(Limits(), failure_limit=1), told(good + bad + good * 3)) == (Answer.GOOD, 300)
    assert ask(ArgoCounts(Limits(), failure_limit=1), told(bad + good + bad + good * 2)) == (Answer.BAD, 180)
    assert ask(ArgoCounts(Limits()), told([0] * 300, 0)) == (Answer.BAD, 60), "NaN meets no condition"


def test_ome_rolls_back_at_its_limit_and_a_pass_does_not_set_the_count_back() -> None:
    short = {"range": 60}
    good, bad = [0] * 60, [1] * 60
    assert ask(OmeLimit(Limits()), told(good * 10)) == (Answer.GOOD, 600)
    assert ask(OmeLimit(Limits()), told(bad * 10)) == (Answer.BAD, 240)
    assert ask(OmeLimit(Limits(), **short), told(good + bad * 2 + good + bad + good * 5)) == (Answer.BAD, 300)
    assert ask(OmeLimit(Limits(), **short), told(good + bad * 2 + good * 7)) == (Answer.GOOD, 600)
    assert ask(OmeLimit(Limits()), told([0] * 600, 0)) == (Answer.WAIT, 600), "no data holds"


def test_a_limit_relative_to_the_old_revision_compares_percentiles() -> None:
    limits, blue, green = Limits(ttft_ratio=1.1), told([0] * 60), told([0] * 60)
    slow = Track(green.requests, green.failed, np.where(np.array(EDGES) >= 0.25, green.requests[:, None], 0))
    for rule in (CumulativeShare, ArgoCounts):
        assert ask(rule(limits), green, blue)[0] is not Answer.BAD
        assert ask(rule(limits), slow, blue)[0] is Answer.BAD


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_sees_a_total_failure_and_lets_a_faultless_revision_pass(rule: str) -> None:
    failing, faultless = DEGRADED[6], HEALTHY[0]
    assert simulate(Rollout(failing, 0), RULES[rule](failing)).end is End.BAD
    assert simulate(Rollout(faultless, 0), RULES[rule](faultless)).end is End.GOOD


def test_the_product_passes_through_the_windows_of_a_canary() -> None:
    setting = Setting("steps", Traffic(errors=0.0), weights=(10, 50, 100))
    outcome = simulate(Rollout(setting, 0), RULES["this product"](setting))
    assert outcome.end is End.GOOD
    assert outcome.seconds >= 180
    assert spec_of(setting.limits, setting.weights).rollout.canary is not None


def test_seconds_count_from_the_begin_of_a_fault() -> None:
    setting = Setting("late", Traffic(errors=0.0), Limits(duration=300), fault=Fault(errors=1.0, starts=60))
    outcome = simulate(Rollout(setting, 0), CumulativeShare(setting.limits))
    assert 0 < outcome.seconds <= 6
    assert 0 < outcome.requests <= 80
    assert tables.seen_in([outcome, Outcome(End.BAD, -10, 0), Outcome(End.GOOD, 240, 9)]) == [outcome]


def test_the_bound_is_the_exact_one_of_a_binomial() -> None:
    assert tables.at_most(0, 1000) == pytest.approx(1 - 0.05 ** (1 / 1000), rel=1e-6)
    assert tables.at_most(10, 1000) == pytest.approx(0.01689, abs=1e-4)
    assert tables.at_most(980, 1000) == pytest.approx(0.98671, abs=1e-4)
    assert tables.at_most(5, 5) == 1.0
    assert tables.at_least(1000, 1000) == pytest.approx(0.05 ** (1 / 1000), rel=1e-6)


def test_healthy_settings_have_names_of_their_own() -> None:
    names = [setting.name for setting in (*HEALTHY, *DEGRADED)]
    assert len(HEALTHY) == 16
    assert len(set(names)) == len(names)


def test_two_processes_find_what_one_finds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rollouts, "CHUNK", 1)
    assert run([DEGRADED[6]], 2, 0, workers=2) == run([DEGRADED[6]], 2, 0, workers=1)
    assert "total failure: 2 of 2" in capsys.readouterr().err


def test_the_command_prints_its_tables_and_leaves_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.bench.results.RESULTS", tmp_path / "build" / "bench")
    main(["--rollouts", "2", "--workers", "1", "--only", "errors 0.1 %", "--only", "errors 10 %"])
    said = capsys.readouterr().out
    assert "| errors 0.1 % | OME " in said
    assert "| errors 10 % | Argo Rollouts " in said
    left = json.loads((tmp_path / "build" / "bench" / "verdicts.json").read_text())
    assert [row["metric"].split(":")[0] for row in left][:2] == [
        "healthy, errors 0.1 %",
        "degraded, errors 10 %",
    ]
    with pytest.raises(SystemExit):
        main(["--only", "no such setting"])
    assert "errors 0.1 %; " in capsys.readouterr().err
