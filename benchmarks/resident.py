"""Rates of resident environments beside gymnasium's, and their parity with it.

    python benchmarks/resident.py [random] [policy] [sampler] [learning] [scaling] [parity]
        [--device cpu] [--envs 4096] [--seconds 2]

Prints one JSON line a figure: `steps_per_s` by the clock, and `steps_per_cpu_s` by the CPU seconds
of all threads, which bears other programs on the machine. Steps that reset an environment do not
count. On a GPU only the clock counts.

* random: uniform actions, recorded or not, one thread; CartPole also by gymnasium's sync and
  vectorised environments, and by envpool where it is installed.
* policy: CartPole with a 32×32 network, in torch between steps and inside the kernel; gymnasium's
  vectorised environment with the same network.
* sampler: two actions from logits, beside `torch.multinomial`.
* learning: rollout and update of A2C, 10 000 CartPoles (Sha & Lan 2024, algorithm 1).
* scaling: uniform actions of 10 to 100 000 environments, every environment, recorded.
* parity: 1000 environments, every step of whole episodes against gymnasium's own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch

from aclearn.config import config_from_yaml
from aclearn.policies import build_architecture
from aclearn.policies.architecture import POLICY
from aclearn.policies.network import PolicyNetwork
from aclearn.resident import (
    ENVIRONMENTS,
    ActionSampler,
    GymnasiumReference,
    ResidentEnvs,
    check_resident,
)
from aclearn.resident.policy_rollout import PolicyRollout

#: Recorded steps of a launch.
STEPS = 32
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
    """Steps per second of `work`, which returns its steps: the best third of `seconds` counts."""
    work()
    best = {"steps_per_s": 0.0, "steps_per_cpu_s": 0.0}
    for _ in range(3):
        steps, began, cpu = 0, time.perf_counter(), time.process_time()
        while (took := time.perf_counter() - began) < seconds / 3:
            steps += work()
            if device != "cpu":
                torch.cuda.synchronize()
        used = time.process_time() - cpu
        best["steps_per_s"] = max(best["steps_per_s"], steps / took)
        best["steps_per_cpu_s"] = max(best["steps_per_cpu_s"], steps / used)
    return {name: round(value) for name, value in best.items()}


def say(what: str, **fields: Any) -> None:
    """Print one line."""
    print(json.dumps({"what": what, **fields}), flush=True)


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


def random(args: argparse.Namespace) -> None:
    """Uniform actions."""
    for name in ENVIRONMENTS:
        for recorded in (False, True):
            envs = made(name, args.envs, args.device, threads=1)
            rollout = envs.uniform_rollout(recorded=recorded)
            work = resident(envs, partial(rollout.run, STEPS))
            found = rate(work, args.seconds, args.device)
            say("random", env=name, envs=args.envs, recorded=recorded, by="resident", **found)
    for mode in ("sync", "vector_entry_point"):
        group: Any = gymnasium.make_vec("CartPole-v1", args.envs, vectorization_mode=mode)
        group.reset(seed=1)
        actions = np.random.default_rng(1).integers(2, size=args.envs)

        def stepped(group: Any = group, actions: Any = actions) -> int:
            group.step(actions)
            return int(args.envs)

        say(
            "random",
            env="CartPole",
            envs=args.envs,
            by=f"gymnasium {mode}",
            **rate(stepped, args.seconds, "cpu"),
        )
        group.close()
    if importlib.util.find_spec("envpool"):
        import envpool

        pool = envpool.make_gymnasium("CartPole-v1", num_envs=args.envs, num_threads=1)
        pool.reset()
        actions = np.random.default_rng(1).integers(2, size=args.envs)

        def pooled() -> int:
            pool.step(actions)
            return int(args.envs)

        found = rate(pooled, args.seconds, "cpu")
        say("random", env="CartPole", envs=args.envs, by="envpool", **found)


def policy(args: argparse.Namespace) -> None:
    """CartPole with a 32×32 network."""
    spec = CARTPOLE.spec()
    architecture = build_architecture("mlp", spec.observation, spec.action, hidden=(32, 32))
    network = PolicyNetwork(architecture, seed=1).to(args.device)
    for in_kernel in (False, True):
        envs = made("CartPole", 10_000, args.device, args.threads)
        rollout = PolicyRollout(envs, architecture, in_kernel=in_kernel)
        rollout.refresh(dict(network.named_parameters()))
        found = rate(resident(envs, rollout.run), args.seconds, args.device)
        by = "resident, in the kernel" if in_kernel else "resident, in torch"
        say("policy", env="CartPole", envs=10_000, by=by, threads=len(envs.slices.all), **found)
        envs.close()
    group: Any = gymnasium.make_vec("CartPole-v1", 10_000, vectorization_mode="vector_entry_point")
    seen, _ = group.reset(seed=1)

    @torch.inference_mode()
    def stepped() -> int:
        nonlocal seen
        logits = network.outputs(torch.from_numpy(seen).to(args.device))[POLICY]
        seen = group.step(torch.multinomial(logits.softmax(-1), 1)[:, 0].cpu().numpy())[0]
        return 10_000

    found = rate(stepped, args.seconds, args.device)
    say("policy", env="CartPole", envs=10_000, by="gymnasium vectorised, torch", **found)


def sampler(args: argparse.Namespace) -> None:
    """Choices of two, by one thread."""
    device = torch.device(args.device)
    sampling = ActionSampler(CARTPOLE.spec().action, envs=args.envs, device=device, threads=1)
    sampling.parameters.normal_()

    def ours() -> int:
        sampling.sample(1)
        return int(args.envs)

    @torch.inference_mode()
    def torchs() -> int:
        log_probs = sampling.parameters.log_softmax(-1)
        taken = torch.multinomial(log_probs.exp(), 1)
        log_probs.gather(1, taken)
        return int(args.envs)

    for by, work in (("resident", ours), ("torch.multinomial", torchs)):
        say("sampler", envs=args.envs, by=by, **rate(work, args.seconds, args.device))


def learning(args: argparse.Namespace) -> None:
    """Rollout and update of 10 000 CartPoles, as `aclearn train` makes them."""
    from services.runtime.policy_factory import architecture_of
    from services.trainer.resident import ResidentTrainer

    config = config_from_yaml(
        "{env: {id: CartPole-v1}, policy: {architecture: mlp, hidden: [32, 32], activation: relu, "
        f"separate_value: false}}, resident: {{envs: 10000, device: {args.device}}}, "
        'actors: {unroll_length: 5}, trainer: {amp: "off"}}'
    )
    spec = CARTPOLE.spec()
    architecture = architecture_of(config, spec)
    trainer = ResidentTrainer(
        config, spec, architecture, incarnation="benchmark", threads=args.threads
    )

    def work() -> int:
        before = trainer.admission.learned_steps
        trainer.play_and_learn()
        return trainer.admission.learned_steps - before

    say("learning", env="CartPole", envs=10_000, **rate(work, args.seconds, args.device))


def scaling(args: argparse.Namespace) -> None:
    """Uniform actions, recorded, by number of environments."""
    for name in ENVIRONMENTS:
        for count in (10, 100, 1000, 10_000, 100_000):
            envs = made(name, count, args.device, args.threads)
            rollout = envs.uniform_rollout()
            work = resident(envs, partial(rollout.run, STEPS))
            found = rate(work, args.seconds / 2, args.device)
            say("scaling", env=name, envs=count, threads=len(envs.slices.all), **found)
            envs.close()


def parity(args: argparse.Namespace) -> None:
    """Every step of 1000 environments over whole episodes."""
    for name, env in ENVIRONMENTS.items():
        assert env.gymnasium_id is not None
        periods = {"theta1": 2 * math.pi, "theta2": 2 * math.pi} if name == "Acrobot" else {}
        report = check_resident(
            env,
            GymnasiumReference(env.gymnasium_id, FIELDS[name]),
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


PARTS = {part.__name__: part for part in (random, policy, sampler, learning, scaling, parity)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the named parts, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="of random, policy, sampler, …; default all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--envs", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=2.0)
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the environments' threads are ours
    for name in args.parts or PARTS:
        PARTS[name](args)


if __name__ == "__main__":
    main()
