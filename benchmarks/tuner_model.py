"""The tuner's rule and GA3C's on models of a run, with a simulated clock.

    python benchmarks/tuner_model.py [--seeds 60] [--set key=value ...]

The model: two counts from 1 to 8, a smooth rate with one optimum (100), windows with normal noise.
The last lines use rates that `tuner.py --workload predictors` measured. GA3C takes steps of 20 s
and, in a row of its own, steps as short as the tuner's. It needs no quiet machine. Prints one JSON
line for each noise, start and rule, as means over the seeds:

* `second_half`: the mean rate in the second half of the time, in % of the optimum.
* `final`: the rate of the counts kept at the end, in % of the optimum.
* `final_lowest_tenth`: what nine seeds of ten reach.
* `final_ge_95`: the share of seeds that end within 5 % of the optimum.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tuner_rules import Ga3cRule

from aclearn.config import TunerConfig
from aclearn.control.tuner.tuner import Tuner

MOST = 8
NAMES = ("predictors", "trainers")
#: Seconds of GA3C's DYNAMIC_SETTINGS_STEP_WAIT.
GA3C_STEP_S = 20.0
_HEARTBEAT_S = 0.5
#: Rates that `tuner.py --workload predictors` measured on two cores, in % of the best: a row for
#: each NP, a column for each NT, both from 1.
MEASURED = {
    (np, nt): share
    for np, row in enumerate(
        ((83, 100, 79, 90), (93, 98, 94, 95), (88, 95, 92, 92), (85, 90, 85, 82)), start=1
    )
    for nt, share in enumerate(row, start=1)
}


@dataclass
class Workload:
    """A rate over two counts with one optimum of 100, and noise of windows.

    The rate falls with the square of the distance in logarithms: too few workers starve another
    role, too many compete for the cores.

    Attributes:
        noise: standard deviation of a window of `noise_window_s`, as a share of the rate; shorter
            windows have more, by the square root.
        rates: counts → % of the optimum, where they were measured; instead of the formula.
    """

    best: tuple[int, int]
    noise: float
    noise_window_s: float
    rng: random.Random
    sharpness: float = 0.6
    rates: Mapping[tuple[int, int], float] | None = None
    now: float = 0.0
    counter: float = 0.0
    produced: list[tuple[float, float]] = field(default_factory=list)

    def rate(self, counts: tuple[int, int]) -> float:
        """The true rate, in % of the optimum."""
        if self.rates is not None:
            return self.rates[counts]
        far = sum(math.log(c / b) ** 2 for c, b in zip(counts, self.best, strict=True))
        return 100.0 * math.exp(-self.sharpness * far)

    def run(self, counts: tuple[int, int], seconds: float) -> None:
        """Advance the clock by `seconds` with these counts."""
        mean = self.rate(counts)
        sd = self.noise * math.sqrt(self.noise_window_s / seconds)
        self.now += seconds
        self.counter += max(0.0, mean * seconds * (1.0 + self.rng.gauss(0.0, sd)))
        self.produced.append((self.now, mean * seconds))

    def share(self, since_s: float) -> float:
        """True mean rate since then, in % of the optimum."""
        parts = [amount for at, amount in self.produced if at > since_s]
        return sum(parts) / (self.now - since_s)


@dataclass(frozen=True)
class Result:
    """Rates of a rule in % of the optimum; seconds until it kept ≥ 95 % for good."""

    second_half: float
    final: float
    good_after_s: float


def simulate(rule: Tuner | Ga3cRule, load: Workload, total_s: float) -> Result:
    """Result of a rule on a workload."""

    def kept_share() -> float:
        return load.rate((rule.kept["predictors"], rule.kept["trainers"]))

    good_since = math.inf
    while load.now < total_s:
        wanted = rule.propose()
        load.run((wanted["predictors"], wanted["trainers"]), _HEARTBEAT_S)
        rule.observe(load.now, round(load.counter * 1000), wanted)
        good_since = min(good_since, load.now) if kept_share() >= 95.0 else math.inf
    return Result(load.share(total_s / 2), kept_share(), good_since)


def run_tuner(
    load: Workload,
    start: tuple[int, int],
    total_s: float,
    config: TunerConfig,
    seed: int,
    *,
    most: int = MOST,
) -> Result:
    """Result of the tuner's rule."""
    counts = dict(zip(NAMES, start, strict=True))
    tuner = Tuner(counts, dict.fromkeys(NAMES, most), config, random.Random(seed))
    return simulate(tuner, load, total_s)


def run_ga3c(
    load: Workload,
    start: tuple[int, int],
    total_s: float,
    seed: int,
    *,
    step_s: float = GA3C_STEP_S,
) -> Result:
    """Result of GA3C's rule: 20 s a step, unless `step_s` gives it as many steps as another."""
    counts, most = dict(zip(NAMES, start, strict=True)), dict.fromkeys(NAMES, MOST)
    config = TunerConfig(every_s=step_s)
    rule = Ga3cRule(counts, most, config, random.Random(seed))
    return simulate(rule, load, total_s)


def models(
    noise: float, seeds: int
) -> Iterator[tuple[int, Callable[[], Workload], tuple[int, int]]]:
    """Seed, maker of its workload, start; the optimum differs from seed to seed."""
    for seed in range(seeds):
        chosen = random.Random(1000 + seed)
        best = (chosen.randint(2, 7), chosen.randint(2, 7))

        def make(seed: int = seed, best: tuple[int, int] = best) -> Workload:
            return Workload(best, noise, GA3C_STEP_S, random.Random(seed))

        yield seed, make, (2, 2)


def hill_results(
    start: tuple[int, int], noise: float, seeds: int, config: TunerConfig, total_s: float = 300.0
) -> list[Result]:
    """The tuner's rule on hills over 8 × 8 settings, once a seed."""
    return [
        run_tuner(make(), start, total_s, config, seed) for seed, make, _ in models(noise, seeds)
    ]


def measured_results(
    start: tuple[int, int], noise: float, seeds: int, config: TunerConfig, total_s: float = 300.0
) -> list[Result]:
    """The tuner's rule on the measured rates, once a seed; `noise` is that of a window."""
    return [
        run_tuner(
            Workload((1, 2), noise, config.every_s, random.Random(seed), rates=MEASURED),
            start,
            total_s,
            config,
            seed,
            most=4,
        )
        for seed in range(seeds)
    ]


def compare(
    noise: float, seeds: int, total_s: float, config: TunerConfig
) -> dict[str, list[Result]]:
    """Results of both rules for every seed."""
    results: dict[str, list[Result]] = {"tuner": [], "ga3c": []}
    for seed, make, start in models(noise, seeds):
        results["tuner"].append(run_tuner(make(), start, total_s, config, seed))
        results["ga3c"].append(run_ga3c(make(), start, total_s, seed))
    return results


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="key=value", help="keys of the section `tuner`"
    )
    arguments = parser.parse_args()
    pairs = (text.split("=", 1) for text in arguments.set)
    config = TunerConfig.model_validate({key: float(value) for key, value in pairs})
    for noise in (0.0, 0.02, 0.05, 0.10):
        for rule, results in compare(noise, arguments.seeds, 2400.0, config).items():
            _print("from (2, 2) for 40 minutes", rule, noise, results)
    for noise in (0.0, 0.02, 0.05, 0.10):
        for start in ((1, 1), (2, 2), (4, 4), (8, 8)):
            found = hill_results(start, noise, arguments.seeds, config)
            _print(f"from {start} for 5 minutes", "tuner", noise, found)
    quick = config.model_copy(update={"every_s": 3.0, "settle_s": 1.0})
    for noise in (0.0, 0.02, 0.05, 0.10):
        for start in ((1, 1), (4, 4)):
            for rule in ("tuner", "ga3c", "ga3c, steps of 4 s"):
                results = []
                for seed in range(arguments.seeds):
                    best = ((3, 2), (2, 1), (1, 3), (2, 4))[seed % 4]
                    load = Workload(best, noise, quick.every_s, random.Random(seed))
                    step_s = GA3C_STEP_S if rule == "ga3c" else quick.every_s + quick.settle_s
                    results.append(
                        run_tuner(load, start, 300.0, quick, seed)
                        if rule == "tuner"
                        else run_ga3c(load, start, 300.0, seed, step_s=step_s)
                    )
                _print(f"from {start} for 5 minutes, windows of 3 s", rule, noise, results)

    for noise in (0.05, 0.10):
        for start in ((1, 1), (4, 4)):
            steady = config.model_copy(update={"every_s": 10.0, "settle_s": 1.0})
            found = measured_results(start, noise, arguments.seeds, steady)
            _print(f"measured rates from {start} for 5 minutes", "tuner", noise, found)


def _print(model: str, rule: str, noise: float, results: list[Result]) -> None:
    line = {
        "model": model,
        "rule": rule,
        "noise": noise,
        "second_half": round(statistics.fmean(r.second_half for r in results), 1),
        "final": round(statistics.fmean(r.final for r in results), 1),
        "final_lowest_tenth": round(sorted(r.final for r in results)[len(results) // 10], 1),
        "final_ge_95": round(statistics.fmean(r.final >= 95.0 for r in results), 2),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
