"""Trainings of several policies, and games that their checkpoints play afterwards.

    python benchmarks/many_agents_learning.py tag|covid|simple_tag --out DIR [--resume]
        [--seeds 1 2 3] [--only tag_gridworld-a2c …] [--csv FILE]
    python benchmarks/many_agents_learning.py draw-tag|draw-covid FILE PICTURE.png
    python benchmarks/many_agents_learning.py table FILE
    python benchmarks/many_agents_learning.py covid-levels

Each training is `aclearn train` with the overrides that it prints, one thread for the resident
ones. Its folder is DIR/NAME-SEED. Afterwards its checkpoints play against each other, and each
gives FILE (DIR/tag.csv and so on) a row; `--resume` leaves out what has its rows. Points are over
steps, not over the clock, so that other programs may run. `table` prints the first and the last
point of each training, means over its seeds, and the range of the last one. `covid-levels` prints
the figures of states that keep one level without subsidies.

* tag: gridworld and continuous Tag by A2C and PPO: `taggers` learn against runners that stay as
  they began, at random; `runners` against the taggers of that run; or `both`.
* covid: the COVID-19 economy; health and economy are the planner's marginal indices, mean a day.
* simple_tag: mpe2's environment on PettingZoo with actor processes. After training each policy
  plays against opponents whose actions are uniform, and so does what it began as.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from many_agents_curves import draw_covid, draw_tag, read, table_lines
from numpy.typing import NDArray

ROOT = Path(__file__).parents[1]
#: Percents of a run after which a checkpoint plays.
PERCENTS = (0, 5, 10, 20, 30, 45, 60, 80, 100)
#: Games of a checkpoint: of Tag, of the economy, of PettingZoo's Tag.
TAG_GAMES, COVID_GAMES, SIMPLE_TAG_GAMES = 200, 20, 1000
#: Of the games; no seed of a training.
GAMES_SEED = 1_000_003
_WITHIN_S = 3600.0


class Training(NamedTuple):
    """A run of `aclearn train`.

    Attributes:
        name: of the training; the run's is NAME-SEED.
        needs: name of the training whose taggers it has.
    """

    name: str
    config: str
    overrides: tuple[str, ...]
    needs: str | None = None


_BY = {
    ("tag_gridworld", "a2c"): (),
    ("tag_gridworld", "ppo"): (
        "loss.kind=ppo",
        "loss.entropy_cost=0.01",
        "actors.unroll_length=20",
        "trainer.epochs=4",
        "trainer.minibatches=4",
    ),
    ("tag_continuous", "ppo"): (),
    ("tag_continuous", "a2c"): (
        "loss.kind=a2c",
        "loss.entropy_cost=0.005",
        "loss.normalise_advantages=true",
        "actors.unroll_length=5",
        "trainer.epochs=1",
        "trainer.minibatches=1",
        "optimiser.learning_rate=2e-3",
        "optimiser.max_grad_norm=0.5",
    ),
}
#: Agent steps of the policies that learn, in millions: taggers, runners, both.
_STEPS = {
    ("tag_gridworld", "a2c"): (6, 2, 8),
    ("tag_gridworld", "ppo"): (3, 2, 8),
    ("tag_continuous", "ppo"): (4, 6, 8),
    ("tag_continuous", "a2c"): (6, 6, 8),
}


def tag_trainings() -> Iterator[Training]:
    """Both games by both algorithms."""
    for (env, algorithm), overrides in _BY.items():
        name = f"{env}-{algorithm}"
        taggers, runners, both = (
            (*overrides, f"run.max_env_steps={steps}_000_000") for steps in _STEPS[env, algorithm]
        )
        config = f"resident/{env}"
        fixed = f"{name}-taggers"
        yield Training(fixed, config, (*taggers, "policies.runner.learns=false"))
        yield Training(f"{name}-both", config, both)
        opponents = ("policies.tagger.learns=false",)
        yield Training(f"{name}-runners", config, (*runners, *opponents), needs=fixed)


def covid_trainings() -> Iterator[Training]:
    """As shipped."""
    yield Training("covid", "resident/covid", ())


SIMPLE_TAG = """\
env: {id: "mpe2.simple_tag_v3:parallel_env"}
run: {max_env_steps: 1_000_000}
actors: {processes: 2, envs_per_group: 16, unroll_length: 25}
policy: {architecture: mlp, hidden: [64, 64], normalise_observations: true}
loss: {kind: ppo, entropy_cost: 0.01, discount: 0.95, normalise_returns: true}
trainer: {amp: "off", unrolls_per_batch: 4, epochs: 4, minibatches: 4}
policies:
  tagger: {agents: "adversary_*"}
  runner: {agents: "agent_0"}
"""


def simple_tag_trainings() -> Iterator[Training]:
    """Both sides learn."""
    yield Training("simple_tag", "simple_tag.yaml", ())


def run_training(training: Training, seed: int, out: Path) -> Path:
    """The run's folder, of a run that was trained to its end."""
    folder = out / f"{training.name}-{seed}"
    if (folder / "summary.json").exists():
        return folder
    config = ROOT / "configs" / f"{training.config}.yaml"
    given = [*training.overrides, f"run.seed={seed}"]
    if training.config == "simple_tag.yaml":
        config = out / training.config
        config.write_text(SIMPLE_TAG)
    else:
        given += ["resident.threads=1", "resident.device=cpu"]
    if training.needs is not None:
        given.append(f"policies.tagger.init_from={out / training.needs}-{seed}")
    given += [f"run.dir={out}", f"run.name={folder.name}", "run.stop_at_target=false"]
    given += ["run.checkpoint_every_s=2", "run.checkpoints_kept=1000"]
    command = [sys.executable, "-m", "aclearn", "train", str(config), "--overwrite", *given]
    print(" ".join(command), file=sys.stderr, flush=True)
    with (out / f"{folder.name}.log").open("w") as log:
        subprocess.run(
            command,
            stdout=log,
            stderr=log,
            check=True,
            timeout=_WITHIN_S,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    return folder


class Player:
    """A policy of a checkpoint that acts in many games at once."""

    def __init__(self, saved: Any) -> None:
        from services.api.policy import Policy

        self._policy = Policy(saved, seed=GAMES_SEED)

    def __call__(self, observations: Any, masks: Any = None) -> NDArray[Any]:
        """Actions `[N, A, …]` for observations `[N, A, D]`."""
        rows = np.asarray(observations, np.float32)
        N, A = rows.shape[:2]
        mask = None if masks is None else np.asarray(masks).reshape(N * A, -1)
        actions: NDArray[Any] = self._policy.act(rows.reshape(N * A, -1), mask=mask)
        return actions.reshape(N, A, *actions.shape[1:])


def checkpoints(folder: Path) -> Iterator[tuple[int, Any]]:
    """Percents of a run and the saved run nearest to each, each once."""
    from services.evaluator.saved_policy import load_run

    before = None
    for percent in PERCENTS:
        saved = load_run(folder, at=f"{percent}%")
        if saved.checkpoint.path != before:
            before = saved.checkpoint.path
            yield percent, saved


def steps_of(saved: Any) -> int:
    """Agent steps of the policies that learn, until the checkpoint."""
    return int(saved.checkpoint.state["account"]["env_steps"])


def tag_games(env: str, rules: Mapping[str, Any], tagger: Any, runner: Any) -> dict[str, float]:
    """Figures of one episode of each of many worlds.

    Returns:
        `caught`, the share of the runners; `time_in_game`, steps until a runner is caught, or the
        time limit; the mean return of an agent of each side; `caught_error`, the standard error of
        the first over the worlds.
    """
    import torch

    from aclearn.resident import make

    N = TAG_GAMES
    worlds: Any = make(env, envs=N, device="cpu", seed=GAMES_SEED, threads=1, **rules)
    seen, n = worlds.reset(), int(rules["num_taggers"])
    returns = np.zeros(seen.shape[:2])
    caught = np.zeros((N, seen.shape[1] - n), bool)
    time, running = np.zeros(caught.shape), np.ones(N, bool)
    while running.any():
        time += running[:, None] & ~caught
        actions = np.concatenate([tagger(seen[:, :n]), runner(seen[:, n:])], 1)
        step = worlds.step(torch.from_numpy(actions).long())
        seen = step.observations
        returns += np.asarray(step.rewards) * running[:, None]
        # a game that ends by a tag has no runner left
        left = ~np.asarray(step.in_game)[:, n:] | np.asarray(step.terminated)[:, None]
        caught |= running[:, None] & left
        running &= ~np.asarray(step.terminated | step.truncated)
    worlds.close()
    share = caught.mean(1)
    return {
        "caught": share.mean(),
        "caught_error": share.std(ddof=1) / np.sqrt(N),
        "time_in_game": time.mean(),
        "tagger_return": returns[:, :n].mean(),
        "runner_return": returns[:, n:].mean(),
    }


def tag_rows(training: Training, folder: Path) -> Iterator[dict[str, Any]]:
    """A row a checkpoint."""
    env, algorithm, learns = training.name.split("-")
    for percent, saved in checkpoints(folder):
        players = [Player(saved.policies[name]) for name in ("tagger", "runner")]
        figures = tag_games(env, saved.config.env.kwargs, *players)
        about = {"env": env, "algorithm": algorithm, "learns": learns, "percent": percent}
        yield {**about, "env_steps": steps_of(saved), **figures}


def covid_game(rules: Mapping[str, Any], states: Any, planner: Any) -> dict[str, float]:
    """Figures of one episode of each of some countries, means over them.

    Returns:
        `health` and `economy`, the planner's marginal indices, 0 to 1 by the calibration, means a
        day; returns of the planner and of a state; `deaths`, `output` (dollars, without
        subsidies) and `subsidies` of the country over the episode.
    """
    import torch

    from aclearn.resident import make
    from aclearn.resident.environments.covid_rules import YEAR, CovidRules, calibration

    fitted, given = calibration(), CovidRules(**rules)
    worlds: Any = make("covid", envs=COVID_GAMES, device="cpu", seed=GAMES_SEED, threads=1, **rules)
    seen, d = worlds.reset(), worlds.data
    largest = float((fitted.open_workers * fitted.daily_output).sum()) * YEAR
    people = float(fitted.population.sum())

    def scaled(x: Any, kind: str) -> Any:
        least, most = fitted.least[kind][-1], fitted.most[kind][-1]
        return (x - least) / (most - least + 1e-10)

    sums = dict.fromkeys(("health", "economy", "output", "subsidies", "planner", "state"), 0.0)
    before = d["deaths"][:, :-1].sum(1).numpy()
    for _ in range(given.episode_length):
        masks = worlds.masks()
        actions = {
            kind: torch.from_numpy(player(seen[kind], masks[kind])).long()
            for kind, player in (("state", states), ("planner", planner))
        }
        step = worlds.step(actions)
        seen = step.observations
        deaths = d["deaths"][:, :-1].sum(1).numpy()
        output = d["output"][:, :-1].sum(1).numpy()
        level = d["subsidy_level"][:, -1].numpy() / given.num_subsidy_levels
        paid = level * people * given.max_annual_subsidy_per_person / YEAR
        annual = np.clip((output + paid - (1 + fitted.interest) * paid) / largest * YEAR, 0.1, 3.0)
        utility = (1 + (annual ** (1 - fitted.eta) - 1) / (1 - fitted.eta)) / YEAR
        loss = (before - deaths) * fitted.value_of_life / largest
        before = deaths
        sums["health"] += scaled(loss, "health").mean() / given.episode_length
        sums["economy"] += scaled(utility, "economy").mean() / given.episode_length
        sums["output"] += output.mean()
        sums["subsidies"] += paid.mean()
        sums["planner"] += float(step.rewards["planner"].mean())
        sums["state"] += float(step.rewards["state"].mean())
    worlds.close()
    returns = {f"{name}_return": sums.pop(name) for name in ("planner", "state")}
    return {**sums, "deaths": deaths.mean(), **returns}


def covid_rows(training: Training, folder: Path) -> Iterator[dict[str, Any]]:
    """A row a checkpoint."""
    for percent, saved in checkpoints(folder):
        players = [Player(saved.policies[name]) for name in ("state", "planner")]
        figures = covid_game(saved.config.env.kwargs, *players)
        yield {"percent": percent, "env_steps": steps_of(saved), **figures}


def covid_levels() -> None:
    """Print a line for each level that all states keep."""

    def always(action: int) -> Callable[[Any, Any], NDArray[Any]]:
        return lambda _, masks: np.where(np.asarray(masks)[..., action], action, 0)

    for level in range(11):
        found = covid_game({}, always(level), always(0))
        figures = ", ".join(f"{name} {value:.4g}" for name, value in found.items())
        print(f"level {level or 'as before'}: {figures}", flush=True)


def simple_tag_returns(players: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Mean return of an agent of each side, by game.

    Args:
        players: side → its policy; None: uniform actions.
    """
    from mpe2 import simple_tag_v3

    env = simple_tag_v3.parallel_env()
    rng = np.random.default_rng(GAMES_SEED)
    found = []
    for game in range(SIMPLE_TAG_GAMES):
        seen, _ = env.reset(seed=GAMES_SEED + game)
        returns = dict.fromkeys(seen, 0.0)
        while env.agents:
            actions: dict[str, int] = {}
            for side in ("tagger", "runner"):
                mine = [a for a in env.agents if a.startswith("adversary") == (side == "tagger")]
                player = players[side]
                if player is None:
                    chosen: Any = rng.integers(0, 5, len(mine))
                else:
                    chosen = player(np.stack([seen[a] for a in mine])[None])[0]
                actions |= {a: int(c) for a, c in zip(mine, chosen, strict=True)}
            seen, rewards, *_ = env.step(actions)
            for agent, reward in rewards.items():
                returns[agent] += reward
        found.append(returns)
    env.close()
    return {
        side: np.array(
            [np.mean([r for a, r in each.items() if a.startswith(of)]) for each in found]
        )
        for side, of in (("tagger", "adversary"), ("runner", "agent"))
    }


def simple_tag_rows(training: Training, folder: Path) -> Iterator[dict[str, Any]]:
    """A row for each side, untrained and trained, against uniform opponents."""
    from services.evaluator.saved_policy import load_run

    for percent in (0, 100):
        saved = load_run(folder, at=f"{percent}%")
        for side in ("tagger", "runner"):
            players: dict[str, Any] = dict.fromkeys(("tagger", "runner"))
            players[side] = Player(saved.policies[side])
            returns = simple_tag_returns(players)[side]
            error = returns.std(ddof=1) / np.sqrt(len(returns))
            yield {
                "policy": side,
                "percent": percent,
                "env_steps": steps_of(saved),
                "games": len(returns),
                "return": returns.mean(),
                "low": returns.mean() - 1.96 * error,
                "high": returns.mean() + 1.96 * error,
            }


Rows = Callable[[Training, Path], Iterator[dict[str, Any]]]
PARTS: dict[str, tuple[Callable[[], Iterator[Training]], Rows]] = {
    "tag": (tag_trainings, tag_rows),
    "covid": (covid_trainings, covid_rows),
    "simple_tag": (simple_tag_trainings, simple_tag_rows),
}


def learn(
    part: str, out: Path, table: Path, only: Sequence[str], seeds: Sequence[int], resume: bool
) -> None:
    """Train and play, and append the rows to `table`."""
    out.mkdir(parents=True, exist_ok=True)
    trainings, rows_of = PARTS[part]
    have = {(row["run"], row["seed"]) for row in read(table)} if table.exists() else set()
    if have and not resume:
        sys.exit(f"{table}: it has rows; give --resume, or another --csv")
    for seed in seeds:
        for training in trainings():
            chosen = any(part in training.name for part in only)
            if not chosen or (training.name, str(seed)) in have:
                continue
            folder = run_training(training, seed, out)
            rows = [
                {
                    "run": training.name,
                    "seed": seed,
                    **{k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()},
                }
                for row in rows_of(training, folder)
            ]
            with table.open("a", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
                if file.tell() == 0:
                    writer.writeheader()
                writer.writerows(rows)
            print(training.name, seed, rows[-1], file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, or draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for part in PARTS:
        each = commands.add_parser(part)
        each.add_argument("--out", type=Path, required=True, help="folder of the runs")
        each.add_argument("--csv", type=Path, help="table; default: in the folder of the runs")
        each.add_argument("--only", nargs="+", default=[""], help="parts of trainings' names")
        each.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
        each.add_argument("--resume", action="store_true", help="go on with the same table")
    for name in ("draw-tag", "draw-covid"):
        each = commands.add_parser(name)
        each.add_argument("table", type=Path)
        each.add_argument("picture", type=Path)
    commands.add_parser("covid-levels")
    commands.add_parser("table").add_argument("table", type=Path)
    args = parser.parse_args(arguments)
    if args.command == "covid-levels":
        covid_levels()
    elif args.command == "table":
        print("\n".join(table_lines(read(args.table))))
    elif args.command in PARTS:
        out = args.out.resolve()
        table = args.csv or out / f"{args.command}.csv"
        learn(args.command, out, table, args.only, args.seeds, args.resume)
    else:
        {"draw-tag": draw_tag, "draw-covid": draw_covid}[args.command](args.table, args.picture)


if __name__ == "__main__":
    main()
