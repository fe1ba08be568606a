"""Rates of Tag with several agents, by number of environments and of agents, beside NumPy.

    python benchmarks/many_agents.py [envs] [agents] [policy] [numpy] [--device cpu] [--threads 2]
        [--seconds 2] [--csv FILE]
    python benchmarks/many_agents.py --table FILE

Prints one JSON line a figure: `steps_per_s`, steps of environments by the clock, and
`agent_steps_per_s`; on a CPU also `steps_per_cpu_s`, by the CPU seconds of all threads, which bears
other programs on the machine. Actions are uniform and nothing is recorded, but for `policy`. The
form is that of figures 12 to 14 of Lan et al. (2021). `--table` prints FILE in Markdown.

* envs: by number of environments: gridworld and continuous Tag with 5 agents, and continuous Tag
  with 1000 agents that observe the 10 nearest, gridworld with 1000 that observe one.
* agents: by number of agents, so many environments that there are 20 000 agents, on a GPU 10
  million: both games with partial observations, gridworld also with full ones.
* policy: both, with the actions of one network for all agents and steps recorded, as training
  does it: 32×32 units in gridworld, 64×64 in continuous Tag.
* numpy: the same rules in NumPy (tests/support), on one core.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from resident_peers import rate

from aclearn.policies import build_architecture
from aclearn.policies.cuda_stream import CudaStream, captured
from aclearn.policies.network import PolicyNetwork
from aclearn.resident import copies_of, find_env, make
from aclearn.resident.policy_rollout import PolicyRollout

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.tag_continuous_numpy import TagContinuous
from tests.support.tag_parallel import TagGridworld

COLUMNS = (
    "what",
    "env",
    "agents",
    "observes",
    "envs",
    "threads",
    "steps_per_s",
    "agent_steps_per_s",
    "steps_per_cpu_s",
)
#: Steps of a launch.
STEPS = 20
#: Environments on a GPU; the paper has 2000.
ON_GPU = (2000, 20_000, 100_000, 1_000_000)
#: Units of a policy's hidden layers, as in the shipped configurations.
HIDDEN = {"tag_gridworld": (32, 32), "tag_continuous": (64, 64)}
ROWS: list[dict[str, Any]] = []


def rules(env: str, agents: int, near: int | None) -> dict[str, Any]:
    """A game of so many agents; one of eleven is a tagger, as in WarpDrive's configuration.

    Args:
        near: how many others an agent of continuous Tag observes; None: all.
    """
    if env == "tag_gridworld":
        return {"num_taggers": agents - 1, "use_full_observation": near is None}
    taggers = max(1, agents // 11)
    return {
        "num_taggers": taggers,
        "num_runners": agents - taggers,
        "grid_length": 20.0,
        "episode_length": 500,
        "max_acceleration": 0.1,
        "min_acceleration": -0.1,
        "max_turn": 2.356,
        "min_turn": -2.356,
        "num_acceleration_levels": 20,
        "num_turn_levels": 20,
        "tagging_distance": 0.02,
        "runner_exits_game_after_tagged": False,  # all play all the time
        "use_full_observation": near is None,
        "num_other_agents_observed": near or 1,
    }


def resident_rate(
    env: str, agents: int, near: int | None, envs: int, args: argparse.Namespace
) -> None:
    """Print the rate of a resident world."""
    worlds = make(
        env,
        envs=envs,
        device=args.device,
        threads=args.threads,
        seed=1,
        **rules(env, agents, near),
    )
    worlds.reset()
    rollout = worlds.uniform_rollout(recorded=False)

    def steps() -> None:
        worlds.slices.run(partial(rollout.run_slice, count=STEPS, row=0))

    # on a GPU a CUDA graph, as in training
    stream = None if worlds.device.type == "cpu" else CudaStream(worlds.device)
    with nullcontext() if stream is None else stream.scope():
        run = captured(stream, steps, what="steps of Tag")

        def work() -> int:
            run()
            worlds.advance(STEPS)
            if stream is not None:
                stream.wait()
            return STEPS * envs

        found = rate(work, args.seconds)
    worlds.close()
    say("resident", env, agents, near, envs, args.threads, found)


def policy_rate(
    env: str, agents: int, near: int | None, envs: int, args: argparse.Namespace
) -> None:
    """Print the rate of a resident world whose agents have one policy."""
    settings = rules(env, agents, near)
    worlds = copies_of(
        find_env(env, settings),
        envs=envs,
        device=args.device,
        threads=args.threads,
        seed=1,
        steps=STEPS,
        config=settings,
    )
    (rows,) = worlds.kinds
    architecture = build_architecture(
        "mlp", rows.spec.observation, rows.spec.action, hidden=HIDDEN[env], activation="relu"
    )
    network = PolicyNetwork(architecture, seed=1).to(worlds.device)
    # on a GPU the steps in torch are a CUDA graph, as in training
    stream = None if worlds.device.type == "cpu" else CudaStream(worlds.device)
    rollout = PolicyRollout(worlds, architecture, stream=stream)
    worlds.reset()

    def work() -> int:
        rollout.run()
        if stream is not None:
            stream.wait()
        return STEPS * envs

    with nullcontext() if stream is None else stream.scope():
        rollout.refresh(dict(network.named_parameters()))
        found = rate(work, args.seconds)
    worlds.close()
    say("policy", env, agents, near, envs, args.threads, found)


def numpy_rate(agents: int, near: int | None, envs: int, seconds: float) -> None:
    """Print the rate of continuous Tag in NumPy."""
    settings = rules("tag_continuous", agents, near)
    taggers, runners = settings.pop("num_taggers"), settings.pop("num_runners")
    game = TagContinuous((1,) * taggers + (0,) * runners, **settings)
    rng = np.random.default_rng(1)

    def begun() -> dict[str, Any]:
        places = (rng.uniform(0, 20, (envs, agents)) for _ in range(3))
        return game.begin(*places)

    state = begun()

    def work() -> int:
        nonlocal state
        reached = game.step(state, rng.integers(0, 21, (envs, agents, 2)))
        state = begun() if reached.truncated.any() else reached.state
        return envs

    say("numpy", "tag_continuous", agents, near, envs, 1, rate(work, seconds))


def parallel_rate(agents: int, near: int | None, seconds: float) -> None:
    """Print the rate of one gridworld in NumPy, on PettingZoo's API."""
    game = TagGridworld(**rules("tag_gridworld", agents, near))
    rng = np.random.default_rng(1)
    game.reset()

    def work() -> int:
        actions = rng.integers(0, 5, agents)
        _, _, terminated, truncated, _ = game.step(dict(zip(game.agents, actions, strict=True)))
        if not game.agents or any(terminated.values()) or any(truncated.values()):
            game.reset()
        return 1

    say("numpy", "tag_gridworld", agents, near, 1, 1, rate(work, seconds))


def say(
    what: str,
    env: str,
    agents: int,
    near: int | None,
    envs: int,
    threads: int,
    found: dict[str, float],
) -> None:
    """Print one line."""
    row = {
        "what": what,
        "env": env,
        "agents": agents,
        "observes": "all" if near is None else near,
        "envs": envs,
        "threads": threads,
        **found,
        "agent_steps_per_s": round(agents * found["steps_per_s"]),
    }
    ROWS.append(row)
    print(json.dumps(row), flush=True)


def by_envs(args: argparse.Namespace) -> None:
    """Figures 12 and 14, left."""
    for count in (10, 100, 1000, 10_000, 100_000) if args.device == "cpu" else ON_GPU:
        resident_rate("tag_gridworld", 5, None, count, args)
        resident_rate("tag_gridworld", 5, 1, count, args)
        resident_rate("tag_continuous", 5, 2, count, args)
    for count in (2, 20, 200) if args.device == "cpu" else (200, 2000):
        resident_rate("tag_continuous", 1000, 10, count, args)
        resident_rate("tag_gridworld", 1000, 1, count, args)


def by_agents(args: argparse.Namespace) -> None:
    """Figures 13 and 14, right."""
    for agents in (5, 20, 100, 500, 1000):
        envs = (20_000 if args.device == "cpu" else 10_000_000) // agents
        resident_rate("tag_gridworld", agents, 1, envs, args)
        if agents <= 100:  # each sees all others
            resident_rate("tag_gridworld", agents, None, envs, args)
        resident_rate("tag_continuous", agents, min(10, agents - 1), envs, args)


def by_policy(args: argparse.Namespace) -> None:
    """Figures 12 to 14 with the actions of a network."""
    for count in (10, 100, 1000, 10_000) if args.device == "cpu" else ON_GPU[:3]:
        policy_rate("tag_gridworld", 5, None, count, args)
        policy_rate("tag_continuous", 5, 2, count, args)
    for agents in (20, 100, 1000):
        envs = (20_000 if args.device == "cpu" else 1_000_000) // agents
        policy_rate("tag_gridworld", agents, 1, envs, args)
        policy_rate("tag_continuous", agents, 10, envs, args)


def in_numpy(args: argparse.Namespace) -> None:
    """One environment, as WarpDrive's CPU class steps it, and many at once."""
    for agents in (5, 100):
        parallel_rate(agents, None, args.seconds)
    for agents, envs in ((5, 1), (5, 1000), (100, 1), (1000, 1)):
        numpy_rate(agents, min(10, agents - 3), envs, args.seconds)


def table_lines(file: Path) -> Iterator[str]:
    """Tables in Markdown: by number of environments with 5 agents, and by number of agents."""
    with file.open(newline="") as table:
        rows = list(csv.DictReader(table))
    # a figure of two parts is shown once
    cells = {
        (row["what"], row["env"], row["observes"], int(row["agents"]), int(row["envs"])): int(
            row["steps_per_s"]
        )
        for row in rows
    }
    for few in (True, False):
        mine = {key: rate for key, rate in cells.items() if (key[3] == 5) == few}
        columns = dict.fromkeys((*key[:3],) for key in mine)
        yield "| agents | environments | " + " | ".join(map(_title, columns)) + " |"
        yield "|---" * (2 + len(columns)) + "|"
        for agents, envs in sorted({key[3:] for key in mine}):
            shown = (mine.get((*column, agents, envs)) for column in columns)
            rates = ("" if rate is None else f"{rate:,}".replace(",", " ") for rate in shown)
            yield f"| {agents} | {envs} | " + " | ".join(rates) + " |"
        yield ""


def _title(column: tuple[str, str, str]) -> str:
    what, env, observes = column
    return f"{what}: {env.removeprefix('tag_')}, observes {observes}"


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "envs": by_envs,
    "agents": by_agents,
    "policy": by_policy,
    "numpy": in_numpy,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of the parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="of the CPU")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each figure")
    parser.add_argument("--csv", type=Path, help="file for the rates")
    parser.add_argument("--table", type=Path, help="print the rows of this file")
    args = parser.parse_args(arguments)
    if args.table:
        print("\n".join(table_lines(args.table)))
        return
    torch.set_num_threads(1)  # each slice of the worlds has a thread of its own
    for name in args.parts or PARTS:
        PARTS[name](args)
    if args.csv:
        with args.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(ROWS)


if __name__ == "__main__":
    main()
