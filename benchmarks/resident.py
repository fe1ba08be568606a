"""Rates of resident environments beside gymnasium's, and their parity with it.

    python benchmarks/resident.py [random] [policy] [sampler] [learning] [scaling] [training]
        [parity] [--device cpu] [--envs N …] [--seconds 2] [--peers-python PYTHON] [--csv FILE]

Prints one JSON line a figure: `steps_per_s` by the clock, and `steps_per_cpu_s` by the CPU seconds
of all threads, which bears other programs on the machine. Steps that reset an environment do not
count. On a GPU only the clock counts, and few environments leave it idle: without `--envs` the
first four parts take 10 000, 100 000 and 1 000 000 there. PYTHON has envpool and Stable-Baselines3
(`python -m venv DIR; DIR/bin/pip install envpool stable-baselines3`).

* random: uniform actions, recorded or not, one thread; CartPole also by gymnasium's sync and
  vectorised environments, and by envpool.
* policy: CartPole with a 32×32 network, in torch between steps and inside the kernel; gymnasium's
  vectorised environment with the same network.
* sampler: two actions from logits, beside `torch.multinomial`.
* learning: rollout and update of A2C of CartPole (Sha & Lan 2024, algorithm 1), beside runs of
  actors and Stable-Baselines3.
* scaling: uniform actions of 10 to 100 000 environments, every environment, recorded.
* training: the same numbers of environments with updates: A2C of CartPole and Acrobot, HDDPG of
  Pendulum, by the shipped configurations.
* parity: 1000 environments, every step of whole episodes against gymnasium's own.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from resident_learning import learning_rows, trained
from resident_peers import peer_row
from resident_peers import rate as best_rate

from aclearn.config import load_config
from aclearn.config.resident import RESIDENT_ENVS
from aclearn.policies import build_architecture
from aclearn.policies.architecture import POLICY
from aclearn.policies.cuda_stream import CudaStream
from aclearn.policies.network import PolicyNetwork
from aclearn.resident import (
    ENVIRONMENTS,
    ActionSampler,
    GymnasiumReference,
    ResidentEnvs,
    check_resident,
)
from aclearn.resident.policy_rollout import PolicyRollout

COLUMNS = ("what", "env", "envs", "by", "recorded", "threads", "steps_per_s", "steps_per_cpu_s")
#: Recorded steps of a launch.
STEPS = 32
#: Environments on a GPU.
ON_GPU = [10_000, 100_000, 1_000_000]
#: Environments of the curves over their number.
COUNTS = (10, 100, 1000, 10_000, 100_000)
#: Configurations of the published algorithms (Sha & Lan 2024), by environment.
PUBLISHED = {
    "CartPole": "resident/cartpole_ha2c",
    "Acrobot": "resident/acrobot_ha2c",
    "Pendulum": "resident/pendulum_hddpg",
}
#: Environments of gymnasium side by side.
MOST_PEERS = 10_000
FIELDS = {
    "CartPole": ("x", "x_dot", "theta", "theta_dot"),
    "Acrobot": ("theta1", "theta2", "velocity1", "velocity2"),
    "Pendulum": ("theta", "theta_dot"),
    "MountainCar": ("position", "velocity"),
    "MountainCarContinuous": ("position", "velocity"),
}
#: Of float32 against float64, 1e-6 where none is given; as in tests/support/resident.py.
TOLERANCES: dict[str, Any] = {
    "Acrobot": 1e-5,
    "Pendulum": {"theta": 1e-5, "theta_dot": 1e-5, "observation": 1e-5, "reward": 1e-4},
    "MountainCarContinuous": {
        **dict.fromkeys(FIELDS["MountainCarContinuous"], 1e-6),
        "reward": 1e-5,
    },
}
CARTPOLE = ENVIRONMENTS["CartPole"]


def rate(work: Callable[[], int], seconds: float, device: str) -> dict[str, float]:
    """As `resident_peers.rate`, on a device."""

    def done() -> int:
        steps = work()
        if device != "cpu":
            torch.cuda.synchronize()
        return steps

    return best_rate(done, seconds)


#: Rows that were printed.
ROWS: list[dict[str, Any]] = []


def say(what: str, **fields: Any) -> None:
    """Print one line."""
    ROWS.append({"what": what, **fields})
    print(json.dumps(ROWS[-1]), flush=True)


def write_rates(table: Path) -> None:
    """The rows with a rate as CSV."""
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in ROWS if "steps_per_s" in row)


def resident(envs: ResidentEnvs, run: Callable[[], None]) -> Callable[[], int]:
    """Work of `run`, STEPS of every environment."""

    def work() -> int:
        run()
        return STEPS * envs.num_envs - envs.take_sums().resets

    return work


def made(name: str, envs: int, device: str, threads: int | None) -> ResidentEnvs:
    """Environments that have begun."""
    env = ENVIRONMENTS[name]
    result = ResidentEnvs(env, envs=envs, device=device, seed=1, steps=STEPS, threads=threads)
    result.reset()
    return result


def random(args: argparse.Namespace, count: int) -> None:
    """Uniform actions."""
    for name in ENVIRONMENTS:
        for recorded in (False, True):
            envs = made(name, count, args.device, threads=1)
            rollout = envs.uniform_rollout(recorded=recorded)
            work = resident(envs, partial(rollout.run, STEPS))
            found = rate(work, args.seconds, args.device)
            say("random", env=name, envs=count, recorded=recorded, by="resident", **found)
    for mode in ("sync", "vector_entry_point") if count <= MOST_PEERS else ():
        group: Any = gymnasium.make_vec("CartPole-v1", count, vectorization_mode=mode)
        group.reset(seed=1)
        actions = np.random.default_rng(1).integers(2, size=count)

        def stepped(group: Any = group, actions: Any = actions) -> int:
            group.step(actions)
            return count

        say(
            "random",
            env="CartPole",
            envs=count,
            by=f"gymnasium {mode}",
            **rate(stepped, args.seconds, "cpu"),
        )
        group.close()
    if args.peers_python is not None:
        say(**peer_row(args.peers_python, "envpool", envs=count, seconds=args.seconds))


def policy(args: argparse.Namespace, count: int) -> None:
    """CartPole with a 32×32 network."""
    spec = CARTPOLE.spec()
    architecture = build_architecture("mlp", spec.observation, spec.action, hidden=(32, 32))
    network = PolicyNetwork(architecture, seed=1).to(args.device)
    for in_kernel in (False, True):
        envs = made("CartPole", count, args.device, args.threads)
        # on a GPU the steps in torch are a CUDA graph, as in training
        stream = None if envs.device.type == "cpu" else CudaStream(envs.device)
        rollout = PolicyRollout(envs, architecture, in_kernel=in_kernel, stream=stream)
        if stream is not None:
            torch.cuda.synchronize()
        with nullcontext() if stream is None else stream.scope():
            rollout.refresh(dict(network.named_parameters()))
            found = rate(resident(envs, rollout.run), args.seconds, args.device)
        by = "resident, in the kernel" if in_kernel else "resident, in torch"
        say("policy", env="CartPole", envs=count, by=by, threads=len(envs.slices.all), **found)
        envs.close()
    group: Any = gymnasium.make_vec("CartPole-v1", count, vectorization_mode="vector_entry_point")
    seen, _ = group.reset(seed=1)

    @torch.inference_mode()
    def stepped() -> int:
        nonlocal seen
        logits = network.outputs(torch.from_numpy(seen).to(args.device))[POLICY]
        seen = group.step(torch.multinomial(logits.softmax(-1), 1)[:, 0].cpu().numpy())[0]
        return count

    for threads in sorted({1, args.threads or len(os.sched_getaffinity(0))}):
        torch.set_num_threads(threads)
        found = rate(stepped, args.seconds, args.device)
        by = "gymnasium vectorised, torch"
        say("policy", env="CartPole", envs=count, by=by, threads=threads, **found)
    torch.set_num_threads(1)


def sampler(args: argparse.Namespace, count: int) -> None:
    """Choices of two, by one thread."""
    device = torch.device(args.device)
    sampling = ActionSampler(CARTPOLE.spec().action, envs=count, device=device, threads=1)
    sampling.parameters.normal_()

    def ours() -> int:
        sampling.sample(1)
        return count

    @torch.inference_mode()
    def torchs() -> int:
        log_probs = sampling.parameters.log_softmax(-1)
        taken = torch.multinomial(log_probs.exp(), 1)
        log_probs.gather(1, taken)
        return count

    for by, work in (("resident", ours), ("torch.multinomial", torchs)):
        say("sampler", envs=count, by=by, **rate(work, args.seconds, args.device))


def learning(args: argparse.Namespace, count: int) -> None:
    """A2C of CartPole, rollout and update."""
    for row in learning_rows(
        args.device,
        envs=count,
        threads=args.threads,
        seconds=args.seconds,
        peers_python=args.peers_python,
    ):
        say(**row)


def scaling(args: argparse.Namespace) -> None:
    """Uniform actions, recorded, by number of environments."""
    for name in ENVIRONMENTS:
        for count in COUNTS:
            envs = made(name, count, args.device, args.threads)
            rollout = envs.uniform_rollout()
            work = resident(envs, partial(rollout.run, STEPS))
            found = rate(work, args.seconds / 2, args.device)
            say("scaling", env=name, envs=count, threads=len(envs.slices.all), **found)
            envs.close()


def training(args: argparse.Namespace) -> None:
    """Rollout and update, by number of environments."""
    for name, shipped in PUBLISHED.items():
        for count in COUNTS:
            given = [f"resident.envs={count}", f"resident.device={args.device}"]
            found = trained(load_config(shipped, given), args.threads, args.seconds)
            say("training", env=name, envs=count, by=shipped, **found)


def parity(args: argparse.Namespace) -> None:
    """Every step of 1000 environments over whole episodes."""
    for name, env in ENVIRONMENTS.items():
        periods = {"theta1": 2 * math.pi, "theta2": 2 * math.pi} if name == "Acrobot" else {}
        report = check_resident(
            env,
            GymnasiumReference(RESIDENT_ENVS[name], FIELDS[name]),
            tolerance=TOLERANCES.get(name, 1e-6),
            periods=periods,
            device=args.device,
        )
        largest = max(report.largest, key=lambda field: report.largest[field])
        say(
            "parity",
            env=name,
            steps=report.steps,
            episodes=report.episodes,
            excluded=report.excluded,
            tolerance=TOLERANCES.get(name, 1e-6),
            largest={largest: report.largest[largest]},
        )


#: Parts that take `--envs`, and their default on a CPU.
SIZED: dict[Callable[..., None], int] = {
    random: 4096,
    policy: 10_000,
    sampler: 4096,
    learning: 10_000,
}
PARTS: dict[str, Callable[..., None]] = {
    part.__name__: part for part in (*SIZED, scaling, training, parity)
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the named parts, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="of random, policy, sampler, …; default all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--envs", type=int, nargs="+", help="environments, one or more numbers")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--peers-python", help="with envpool and stable-baselines3 installed")
    parser.add_argument("--csv", type=Path, help="file for the rows with a rate")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the environments' threads are ours
    for part in map(PARTS.__getitem__, args.parts or PARTS):
        if part not in SIZED:
            part(args)
            continue
        default = [SIZED[part]] if args.device == "cpu" else ON_GPU
        for count in args.envs or default:
            part(args, count)
    if args.csv is not None:
        write_rates(args.csv)


if __name__ == "__main__":
    main()
