"""Wall time to the same score by the policy that actors run (AcceRL Figures 8 to 12).

    python benchmarks/training_time.py --game breakout --setting paper --seeds 1 2 3 --out DIR

Whole trainings, one after another on all cores. The variants of a seed are fp32 in eager torch,
fp32 in ONNX Runtime (`--onnx`) and the compressed policy of `--chain`. Prints one JSON line a run
and one with the ratios; run folders stay in DIR for `aclearn plot`.

`--setting paper` has eight actors of one environment and batches of 160 steps, as AcceRL's Table 5;
`batched` has two actors of eight. Unroll length, learning rate, entropy and value cost of both are
those of `configs/` (20, 6e-4, 0.01, 0.5), not of Table 5 (5, 3e-4, 0.02, 0.25). `table5` has all
of Table 5's, from `configs/accerl/original.yaml`, with two actors of sixteen environments.

With `--turn-s` the variants take turns, since a machine's speed drifts by the hour. The same
`--out` resumes an interrupted comparison and keeps finished runs.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from turns import seconds, train

from aclearn.runs import read_metrics

_ROOT = Path(__file__).resolve().parent.parent
SETTINGS = {
    # `nice`: eight actors must not keep the trainer from its core.
    "paper": (
        "actors.processes=8",
        "actors.envs_per_group=1",
        "actors.nice=15",
        "trainer.unrolls_per_batch=8",
        "trainer.minibatches=1",
        "trainer.epochs=1",
    ),
    "batched": (
        "actors.processes=2",
        "actors.envs_per_group=8",
        "trainer.unrolls_per_batch=1",
        "trainer.minibatches=1",
        "trainer.epochs=1",
    ),
    "table5": (
        "actors.processes=2",
        "actors.envs_per_group=16",
        "trainer.unrolls_per_batch=2",
    ),
}
GAMES = {"breakout": 20.0, "pong": 18.0}
_CONFIGS = {"breakout": "breakout.yaml", "pong": "pong_vtrace.yaml"}
_ENVS = {"breakout": "ALE/Breakout-v5", "pong": "ALE/Pong-v5"}


def base_of(game: str, setting: str) -> tuple[Path, tuple[str, ...]]:
    """The configuration of a comparison, and its overrides."""
    if setting == "table5":
        path, own = "accerl/original.yaml", f"env.id={_ENVS[game]}"
    else:
        path, own = _CONFIGS[game], "policy.architecture=accerl-original"
    return _ROOT / "configs" / path, (own, *SETTINGS[setting])


def variants(chain: str, *, onnx: bool) -> dict[str, tuple[str, ...]]:
    """Overrides by name; the first is the base of the comparison."""
    found: dict[str, tuple[str, ...]] = {"fp32 eager": ("actors.runtime=torch",)}
    if onnx:
        found["fp32 ONNX"] = ("actors.runtime=onnx",)
    found[chain] = (f"compressor.chain=[{chain}]",)
    return found


def is_over(folder: Path, limit_s: float) -> bool:
    """Whether a run has reached its score or its time."""
    summary = folder / "summary.json"
    if not summary.exists():
        return False
    found = json.loads(summary.read_text())
    return found["reached_target_at_s"] is not None or found["wall_s"] >= limit_s


def figures(folder: Path) -> dict[str, Any]:
    """Time, steps, return, speed, lag and KL of a run."""
    summary = json.loads((folder / "summary.json").read_text())
    lines = [line for line in read_metrics(folder / "metrics.jsonl") if line["learned_steps"]]
    kl = [line["compressor_kl_mean"] for line in lines if "compressor_kl_mean" in line]
    return {
        "reached_at_s": summary["reached_target_at_s"],
        "steps": summary["learned_steps"],
        "return": summary["return_mean_100"],
        "steps_per_s": round(lines[-1]["learned_steps"] / lines[-1]["time_s"], 1),
        "lag_mean": round(statistics.fmean(line["lag_mean"] for line in lines), 2),
        "kl_mean": round(statistics.fmean(kl), 5) if kl else None,
        "dropped": summary["dropped_steps"],
    }


def return_at(folder: Path, steps: int) -> float | None:
    """The mean return after so many learned steps."""
    lines = read_metrics(folder / "metrics.jsonl")
    before = [line for line in lines if line["learned_steps"] <= steps]
    return before[-1]["return_mean_100"] if before else None


def main() -> None:
    """Train what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--game", choices=sorted(GAMES), default="breakout")
    parser.add_argument("--setting", choices=sorted(SETTINGS), default="paper")
    parser.add_argument("--target", type=float, default=None, help="mean return that ends a run")
    parser.add_argument("--chain", default="int8,onnx")
    parser.add_argument("--onnx", action="store_true", help="also fp32 in ONNX Runtime")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--limit-s", type=float, default=3600.0, help="longest training")
    parser.add_argument("--turn-s", type=float, default=None, help="length of a turn")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    config, base = base_of(options.game, options.setting)
    target = GAMES[options.game] if options.target is None else options.target
    ends = (f"run.target_return={target}", "run.stop_at_target=true")
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in options.seeds:
        folders: dict[str, Path] = {}
        waiting: list[tuple[Path, tuple[str, ...]]] = []
        for name, overrides in variants(options.chain, onnx=options.onnx).items():
            label = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")
            run = f"{options.game}-{target:g}-{options.setting}-{label}-{seed}"
            together = (*base, *overrides, *ends, f"run.seed={seed}")
            folders[name] = options.out.resolve() / run
            waiting.append((folders[name], together))
        # the run with the least time is next, also after an interruption within a turn
        while waiting := [job for job in waiting if not is_over(job[0], options.limit_s)]:
            folder, together = min(waiting, key=lambda job: seconds(job[0]))
            until_s = seconds(folder) + (options.turn_s or options.limit_s)
            train(config, together, folder, min(until_s, options.limit_s))
        common = min(figures(folder)["steps"] for folder in folders.values())
        for name, folder in folders.items():
            line = {"variant": name, "seed": seed, **figures(folder)}
            line["return_at_common_steps"] = return_at(folder, common)
            found.setdefault(name, []).append(line)
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
    first, *others = found
    for name in others:
        shares = [
            1 - mine["reached_at_s"] / base["reached_at_s"]
            for mine, base in zip(found[name], found[first], strict=True)
            if mine["reached_at_s"] and base["reached_at_s"]
        ]
        line = {"variant": name, "less_time_than": first, "by_seed": shares}
        line["median"] = statistics.median(shares) if shares else None
        sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
