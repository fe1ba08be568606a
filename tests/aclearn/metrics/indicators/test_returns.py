"""The slope of the return and the gap between two policies, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.metrics.indicators import Episode, ReturnSlope, RewardGap, RunSample


def sample(time_s: float, episodes=(), env_steps: float | None = None) -> RunSample:
    steps = 100 * time_s if env_steps is None else env_steps
    return RunSample({"time_s": time_s, "env_steps": steps}, episodes)


def slopes(found) -> tuple:
    return found.get("return_slope_per_s"), found.get("return_slope_per_step")


def test_the_slope_is_that_of_least_squares_over_the_episodes_of_the_window() -> None:
    rng = np.random.default_rng(0)
    indicator = ReturnSlope(window_s=30.0)
    ended: list[tuple[float, float, float]] = []  # time, steps, return
    for k in range(200):
        time_s, steps = 0.5 * k, 1e9 + 40.0 * k**1.5
        returns = [float(0.3 * time_s + rng.normal()) for _ in range(rng.integers(0, 4))]
        found = indicator.observe(sample(time_s, [Episode(r) for r in returns], steps))
        ended += [(time_s, steps, value) for value in returns]
        x, s, y = np.array([e for e in ended if time_s - e[0] <= 30.0]).T
        if x[-1] - x[0] < 15.0:
            assert slopes(found) == (None, None)
            continue
        expected = [np.polyfit(at - at.mean(), y, 1)[0] for at in (x, s)]
        assert slopes(found) == pytest.approx(expected, rel=1e-9)


def test_there_is_no_slope_before_there_are_twenty_episodes_over_half_a_window() -> None:
    indicator = ReturnSlope(window_s=10.0)
    for second in range(19):  # long enough, too few
        found = indicator.observe(sample(float(second), [Episode(1.0)]))
        assert slopes(found) == (None, None)
    assert slopes(indicator.observe(sample(19.0, [Episode(1.0)]))) == pytest.approx((0.0, 0.0))
    at_once = ReturnSlope(window_s=10.0)  # enough, but the first to end are the shortest
    for second in range(5):
        assert slopes(at_once.observe(sample(float(second), [Episode(1.0)] * 9))) == (None, None)
    assert slopes(at_once.observe(sample(5.0, [Episode(1.0)]))) == pytest.approx((0.0, 0.0))


def test_a_window_with_few_episodes_grows_to_twenty_of_them() -> None:
    indicator = ReturnSlope(window_s=10.0)
    y = [float(k % 7) for k in range(60)]
    for k, value in enumerate(y):  # one each 30 s: three windows
        found = indicator.observe(sample(30.0 * k, [Episode(value)]))
    x = 30.0 * np.arange(40, 60)
    assert found["return_slope_per_s"] == pytest.approx(np.polyfit(x, y[40:], 1)[0])


def test_without_progress_of_the_clock_or_of_the_steps_a_slope_is_null() -> None:
    indicator = ReturnSlope(window_s=2.0)
    for second in range(3):
        found = indicator.observe(sample(float(second), [Episode(float(second))] * 9, 500.0))
    assert slopes(found) == pytest.approx((1.0, None))


def test_the_gap_is_of_the_means_over_one_window() -> None:
    rng, indicator = np.random.default_rng(1), RewardGap(window_s=20.0)
    ended: list[tuple[float, str, float]] = []
    for k in range(300):
        time_s = 0.5 * k
        policies = rng.choice(["original", "compressed", "mixed", ""], 3, p=[0.2, 0.5, 0.2, 0.1])
        # both learn alike, the original is better by 3
        episodes = [Episode(time_s + 3.0 * (p == "original") + rng.normal(), p) for p in policies]
        ended += [(time_s, e.policy, e.return_) for e in episodes]
        found = indicator.observe(sample(time_s, episodes))
        recent = [e for e in ended if time_s - e[0] <= 20.0]
        played = [[r for _, p, r in recent if p == q] for q in ("original", "compressed")]
        if min(map(len, played)) < 10:
            continue
        means = [float(np.mean(returns)) for returns in played]
        assert list(found.values()) == pytest.approx([*means, means[0] - means[1]], rel=1e-9)
    assert found["reward_gap"] == pytest.approx(3.0, abs=2.0)


def test_rare_originals_lengthen_the_window_of_both_so_that_learning_is_no_gap() -> None:
    indicator = RewardGap(window_s=10.0)
    for second in range(400):  # both return what the clock shows; 1 in 20 is the original's
        policy = "compressed" if second % 20 else "original"
        found = indicator.observe(sample(float(second), [Episode(float(second), policy)]))
    # the last ten originals are those of 200 to 380; the others since then have a mean of 301
    originals = np.arange(200, 400, 20)
    others = [s for s in range(200, 400) if s % 20]
    expected = originals.mean() - np.mean(others)
    assert found["reward_gap"] == pytest.approx(expected)
    assert abs(expected) < 15.0  # beside some 100 if the others' window were 10 s


def test_without_originals_there_is_no_gap_and_the_other_mean_is_that_of_the_window() -> None:
    indicator = RewardGap(window_s=10.0)
    for second in range(100):
        found = indicator.observe(sample(float(second), [Episode(float(second), "compressed")]))
    assert found["return_mean_original"] is None and found["reward_gap"] is None
    assert found["return_mean_compressed"] == pytest.approx(np.mean(range(89, 100)))


def test_where_one_policy_has_stopped_playing_the_gap_is_null_and_learning_is_no_gap() -> None:
    indicator, gaps = RewardGap(window_s=60.0), {}
    for second in range(2000):  # both return 0.1 a second; the compressed one plays in two parts
        policy = "compressed" if second < 120 or second >= 1500 else "original"
        played = [Episode(0.1 * second, p) for p in {policy, "original"}]
        gaps[second] = indicator.observe(sample(float(second), played))["reward_gap"]
    assert gaps[119] == pytest.approx(0.0)
    assert {gaps[second] for second in range(190, 1500)} == {None}
    assert max(abs(gap) for gap in gaps.values() if gap is not None) < 0.1 * 60.0
    assert gaps[1999] == pytest.approx(0.0)


def test_the_window_begins_again_with_the_first_artifact_of_another_rung() -> None:
    def look(second: int, rung: int, compressed: float, return_: float) -> float | None:
        line = {"compressor_rung": float(rung), "compressor_compressed": compressed}
        played = [Episode(20.0, "original"), Episode(return_, "compressed")]
        found = indicator.observe(
            RunSample({"time_s": float(second), "env_steps": 100 * second} | line, played)
        )
        return found.get("reward_gap")

    indicator = RewardGap(window_s=60.0)
    assert [look(second, 0, 1.0, 5.0) for second in range(20)][-1] == pytest.approx(15.0)
    # actors keep the old artifact until the new rung has one
    assert {look(20 + second, 1, 0.0, 5.0) for second in range(20)} == {None}
    after = [look(40 + second, 1, 1.0, 19.0) for second in range(20)]
    assert after[:9] == [None] * 9 and after[9:] == pytest.approx([1.0] * 11)
    # an artifact beyond its bound, replaced for a while, neither begins it again nor enters it
    assert look(60, 1, 0.0, 20.0) == pytest.approx(1.0)
    assert look(61, 1, 1.0, 19.0) == pytest.approx(1.0)
    gaps = [look(62 + second, 1, 0.0, 20.0) for second in range(130)]
    assert gaps[0] == pytest.approx(1.0) and set(gaps[1:]) == {gaps[0], None} and gaps[-1] is None
