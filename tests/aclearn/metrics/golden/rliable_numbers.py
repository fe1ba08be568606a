"""Writes rliable.json beside this file with rliable's own numbers.

    pip install rliable==1.2.0 "pandas<3"
    python rliable_numbers.py

The tests do not need rliable: it brings arch, statsmodels, seaborn and an older pandas.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from rliable import library, metrics

RESAMPLES, SEED = 400, 7
STATISTICS = {"mean": metrics.aggregate_mean, "interquartile mean": metrics.aggregate_iqm}


def main() -> None:
    made = np.random.RandomState(1)
    cases = []
    for runs in (2, 3, 4, 5, 6, 7, 8, 10, 13):
        scores = np.round(made.normal(100.0, 30.0, (runs, 1)), 3)
        for name, statistic in STATISTICS.items():
            np.random.seed(SEED)  # rliable draws with numpy's global generator
            points, intervals = library.get_interval_estimates(
                {"ours": scores}, lambda x, f=statistic: np.array([f(x)]), reps=RESAMPLES
            )
            case = {
                "scores": scores[:, 0].tolist(),
                "statistic": name,
                "value": float(points["ours"][0]),
                "interval": intervals["ours"][:, 0].tolist(),
            }
            cases.append(case)
    text = json.dumps({"resamples": RESAMPLES, "seed": SEED, "cases": cases}, indent=1)
    Path(__file__).with_name("rliable.json").write_text(f"{text}\n")


if __name__ == "__main__":
    main()
