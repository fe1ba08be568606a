"""The strategy `bandit`: on a run whose best rung changes, against the theoretical bound."""

from __future__ import annotations

import math
import random

import pytest

from aclearn.control.strategies.bandit import Bandit
from tests.support.simulated_compression import SimulatedRun

PLAYS, CHANGE, WINDOW, EXPLORATION = 600, 300, 100, 0.6
EVERY_S, DWELL_S = 10.0, 1.0


class Learning:
    """The return grows by the rung's rate, with noise; the best rung changes once."""

    def __init__(self, seed: int, means: tuple[list[float], list[float]]) -> None:
        self.random, self.means = random.Random(seed), means
        self.value, self.time_s, self.changed_at = 0.0, 0.0, float("inf")

    def __call__(self, time_s, rung, share):
        means = self.means[time_s >= self.changed_at]
        elapsed, self.time_s = time_s - self.time_s, time_s
        self.value += elapsed * (means[rung] + self.random.uniform(-0.2, 0.2))
        return {"return_mean_100": self.value}


def played(tmp_path, seed: int) -> list[tuple[int, int]]:
    """The play's number and its rung; the best rung is 2 and, from the middle on, 0."""
    world = Learning(seed, ([0.0, 0.1, 0.9], [0.9, 0.1, 0.0]))
    run = SimulatedRun(
        tmp_path,
        lambda: Bandit(every_s=EVERY_S, window=WINDOW, exploration=EXPLORATION),
        world,
        rungs=3,
        dwell_s=DWELL_S,
    )
    rungs: list[int] = []
    rung = 0
    while len(rungs) < PLAYS:
        before = run.path.stat().st_size
        run.go_on(0.5)
        if run.path.stat().st_size > before:  # a line for each play
            rungs.append(rung)
            rung = int(run.plugin.setting)
            if len(rungs) == CHANGE:
                world.changed_at = run.now
    return list(enumerate(rungs))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_wrong_plays_stay_within_the_bound_of_sliding_window_ucb(tmp_path, seed) -> None:
    rungs = played(tmp_path, seed)
    # Garivier and Moulines (2011) bound the expected plays of each rung while it is not the best;
    # the smallest gap to the best is 0.8, and a play's growth lies between -0.2 and 1.1
    tau, total, breaks, spread, gap, xi = WINDOW, PLAYS, 1, 1.3, 0.8, EXPLORATION
    c = 4 * spread**2 * xi / gap**2 * math.ceil(total / tau) / (total / tau)
    steps = math.log(tau) / math.log(1 + 4 * math.sqrt(1 - 1 / (2 * xi)))
    c += 2 / math.log(tau) * math.ceil(steps)
    bound = c * total * math.log(tau) / tau + tau * breaks + math.log(tau) ** 2
    assert bound < PLAYS  # it says something
    for rung in range(3):
        wrong = [r for play, r in rungs if r == rung != (2 if play < CHANGE else 0)]
        assert len(wrong) <= bound
    # at the end of each half almost only the best rung is played
    assert sum(rung == 2 for play, rung in rungs if 200 <= play < 300) >= 80
    assert sum(rung == 0 for play, rung in rungs if play >= 500) >= 80
    # a bandit that forgets nothing needs half of these to notice the change
    assert sum(rung == 0 for play, rung in rungs if CHANGE <= play < CHANGE + 50) >= 40


def test_the_growth_is_that_of_equation_6(tmp_path) -> None:
    # the return grows by 0.5/s on rung 0 and by 0.25/s on rung 1, with no noise
    world = Learning(1, ([0.5, 0.25], [0.5, 0.25]))
    world.random.uniform = lambda low, high: 0.0  # type: ignore[method-assign]
    run = SimulatedRun(tmp_path, lambda: Bandit(every_s=20.0), world, dwell_s=5.0)
    run.go_on(60.0)
    first, second = run.log()[:2]
    assert first["time_s"] == 25.0  # a dwell of 5 s, then 20 s
    assert first["cause"] == {"growth_per_s": pytest.approx(0.5), "bound_0": pytest.approx(0.5)}
    assert first["rung"] == 1  # not yet played
    assert second["time_s"] == 50.0
    spread = 0.25 * math.sqrt(0.6 * math.log(2) / 1)
    assert second["cause"] == {
        "growth_per_s": pytest.approx(0.25),
        "bound_0": pytest.approx(0.5 + spread),
        "bound_1": pytest.approx(0.25 + spread),
    }
    assert second["rung"] == 0
    gauges = run.plugin.gauges()
    assert gauges["strategy_growth_0"] == pytest.approx(0.5)


def test_of_equal_rungs_the_most_compressed_one_is_played(tmp_path) -> None:
    run = SimulatedRun(
        tmp_path, lambda: Bandit(every_s=10.0), lambda *_: {"return_mean_100": 3.0}, rungs=3
    )
    run.go_on(300.0)
    assert [line["rung"] for line in run.log()] == [1, 2] + [0] * (len(run.log()) - 2)


def test_its_plays_survive_the_monitor(tmp_path) -> None:
    world = Learning(1, ([0.1, 0.8], [0.1, 0.8]))
    run = SimulatedRun(tmp_path, lambda: Bandit(every_s=EVERY_S, window=20), world)
    run.go_on(400.0)
    lines = len(run.log())
    before = run.log()[-1]
    run.start_monitor()
    assert run.plugin.setting == before["rung"]
    run.go_on(2 * EVERY_S + 12.0)
    after = run.log()[lines:]
    assert after[0]["state"]["plays"][:-1] == before["state"]["plays"][-19:]


def test_a_play_begins_with_the_first_artifact_of_its_rung(tmp_path) -> None:
    # an artifact of rung 1 takes 40 s, in which actors play as on rung 0; only it grows
    begun = {0: 0.0}
    grown = {"time_s": 0.0, "value": 0.0}

    def world(time_s, rung, share):
        begun.setdefault(rung, time_s)
        if rung == 0:
            begun.pop(1, None)
        acts = rung == 0 or time_s - begun[1] >= 40.0
        grown["value"] += (time_s - grown["time_s"]) * (0.0 if rung and acts else 1.0)
        grown["time_s"] = time_s
        return {"return_mean_100": grown["value"], "compressor_compressed": float(acts)}

    run = SimulatedRun(tmp_path, lambda: Bandit(every_s=60.0), world, dwell_s=5.0)
    run.go_on(300.0)
    plays = run.log()[1]["state"]["plays"]
    assert plays == [[0, pytest.approx(1.0)], [1, pytest.approx(0.0)]]


def test_a_rung_without_an_artifact_is_left_after_a_while(tmp_path) -> None:
    run = SimulatedRun(
        tmp_path,
        lambda: Bandit(every_s=20.0),
        lambda time_s, rung, share: {
            "return_mean_100": time_s * (1 - rung),
            "compressor_compressed": 1.0 - rung,
        },
        dwell_s=5.0,
    )
    run.go_on(120.0)
    # a dwell of 5 s, 20 s in which none has come, and the play
    assert [line["time_s"] for line in run.log()[:2]] == [25.0, 70.0]
