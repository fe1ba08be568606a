"""Cost of an agent step in one part of a run: emulator, inference or training.

    python benchmarks/parts.py emulator|inference|training CONFIG SECONDS [key=value ...]

The part runs in its own process, with its role's allocator and one compute thread. Prints one JSON
object: seconds of CPU and wall time for an agent step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from aclearn.config import Config, load_config
from aclearn.distributions import distribution_of
from aclearn.envs import VectorEnv, make_vector_env
from aclearn.launch.resources import keep_freed_memory
from aclearn.policies import Architecture
from aclearn.rollout import UnrollBuilder, UnrollCounter
from aclearn.types import OBSERVATION, ActionBatch, PolicyVersion
from services.policy.factory import architecture_of, make_runtime, unroll_spec_of

if TYPE_CHECKING:
    from aclearn.types import Unroll

PARTS = ("emulator", "inference", "training")

#: Warm-up, as a share of the measured time.
_WARM_UP_SHARE = 0.2
#: Steps before the measured observations, past the games' first screens.
_STEPS_INTO_THE_GAME = 40
#: Seconds that a part may take to start, beyond the time measured; a busy machine is slow.
_START_WITHIN_S = 300.0


@dataclass(frozen=True)
class Cost:
    """Cost of one agent step in one part.

    Attributes:
        cpu_s: CPU time of all threads, in seconds; other programs change it little.
        wall_s: wall time in seconds.
        detail: conditions of the measurement.
    """

    cpu_s: float
    wall_s: float
    detail: dict[str, str]


def measure_part(part: str, config: Path, overrides: Sequence[str], seconds: float) -> Cost:
    """The cost of one part, measured in its own process.

    Raises:
        subprocess.CalledProcessError: the process failed; its traceback is on stderr.
    """
    done = subprocess.run(
        [sys.executable, __file__, part, str(config), str(seconds), *overrides],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=_START_WITHIN_S + 4 * seconds,
        check=True,
    )
    return Cost(**json.loads(done.stdout))


def emulator_cost(config: Config, seconds: float) -> Cost:
    """Steps of one group of environments with random actions, one emulator thread."""
    env = make_env(config)
    rng = np.random.default_rng(0)
    count, width = env.spec.action.counts[0], env.num_envs
    actions = rng.integers(count, size=(1024, width))
    env.reset()

    def run(times: int) -> None:
        for i in range(times):
            env.send(actions[i % len(actions)])
            env.recv()

    cost = _cost_of(run, steps_each=width, seconds=seconds)
    env.close()
    return cost


def inference_cost(config: Config, seconds: float) -> Cost:
    """The policy on one group's observations, actions sampled."""
    env = make_env(config)
    env.reset()
    rng = np.random.default_rng(0)
    for _ in range(_STEPS_INTO_THE_GAME):
        env.send(rng.integers(env.spec.action.counts[0], size=env.num_envs))
        observations = env.recv().observations[OBSERVATION]
    local = config.actors.inference == "local"
    kind = config.actors.runtime if local else config.predictor.runtime
    device = "auto" if local else config.predictor.device
    architecture = architecture_of(config, env.spec)
    runtime = make_runtime(architecture, kind, threads=1, device=device, max_batch=env.num_envs)
    policy = runtime.load(random_weights(architecture))
    distribution = distribution_of(architecture.action_spec)

    def run(times: int) -> None:
        for _ in range(times):
            distribution.sample(policy.step({OBSERVATION: observations}).parameters, rng)

    cost = _cost_of(run, steps_each=env.num_envs, seconds=seconds)
    env.close()
    return Cost(cost.cpu_s, cost.wall_s, {"runtime": kind})


def training_cost(config: Config, seconds: float) -> Cost:
    """A batch assembled and learned as the trainer does, per agent step and epoch.

    Each of the `trainer.epochs` passes has an update for each of the `trainer.minibatches`.
    """
    import torch

    from aclearn.policies.choice import halves_pay
    from aclearn.policies.devices import choose_amp, choose_device
    from services.trainer.build import make_learner

    torch.set_num_threads(1)
    env = make_env(config)
    unrolls = collect_unrolls(config, env, config.trainer.unrolls_per_batch)
    observation = env.spec.observation
    architecture = architecture_of(config, env.spec)
    env.close()
    device = choose_device(config.trainer.device)
    learner = make_learner(config, architecture, device)
    steps, epochs = sum(int(unroll.valid.sum()) for unroll in unrolls), config.trainer.epochs
    count = config.trainer.minibatches

    def run(times: int) -> None:
        worker = learner.own_worker
        for _ in range(times):
            batch = worker.assemble(unrolls, observation)
            learner.learn(batch, worker, minibatches=count, epochs=epochs)

    cost = _cost_of(run, steps_each=steps * epochs, seconds=seconds)
    amp_dtype = choose_amp(config.trainer.amp, device, pays=halves_pay(observation))
    amp = "off" if amp_dtype is None else str(amp_dtype).removeprefix("torch.")
    detail = {"amp": amp, "torch": torch.__version__, "device": device.type}
    return Cost(cost.cpu_s, cost.wall_s, detail)


def collect_unrolls(config: Config, env: VectorEnv, count: int) -> list[Unroll]:
    """Unrolls of the configured size under uniformly random actions."""
    builder = UnrollBuilder(
        unroll_spec_of(config, env.spec),
        num_envs=env.num_envs,
        clip_rewards=config.env.clip_rewards,
        life_loss_ends=config.env.life_loss_ends,
    )
    counter, rng = UnrollCounter(), np.random.default_rng(0)
    log_probs = np.full(env.num_envs, -np.log(env.spec.action.counts[0]), np.float32)
    builder.begin(env.reset())
    unrolls: list[Unroll] = []
    while len(unrolls) < count:
        actions = rng.integers(env.spec.action.counts[0], size=env.num_envs, dtype=np.int32)
        env.send(actions)
        builder.add(ActionBatch(actions, log_probs, PolicyVersion(0, 0)), env.recv())
        if builder.full:
            unrolls.append(builder.take(counter))
    return unrolls


def random_weights(architecture: Architecture) -> dict[str, NDArray[np.float32]]:
    """Random weights scaled as in a fresh network, without torch."""
    rng = np.random.default_rng(0)
    return {
        name: (rng.standard_normal(shape) / prod(shape[1:]) ** 0.5).astype(np.float32)
        for name, shape in architecture.tensor_shapes().items()
    }


def make_env(config: Config) -> VectorEnv:
    """One group of environments of the configured actors, with one emulator thread."""
    actors = config.actors
    return make_vector_env(
        config.env,
        num_envs=actors.envs_per_group,
        seed=config.run.seed,
        step_timeout_s=actors.step_timeout_s,
        max_faults=actors.max_env_faults,
        threads=1,
    )


def _cost_of(run: Callable[[int], None], *, steps_each: int, seconds: float) -> Cost:
    """Cost of an agent step, from `run(times)` repeated for about `seconds`."""
    started = time.perf_counter()
    times = 0
    while time.perf_counter() - started < seconds * _WARM_UP_SHARE or times < 2:
        run(1)
        times += 1
    each_s = (time.perf_counter() - started) / times
    times = max(2, round(seconds / each_s))
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    run(times)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    return Cost(cpu_s / (times * steps_each), wall_s / (times * steps_each), {})


def main() -> None:
    """Measure one part and print its cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("config", type=Path)
    parser.add_argument("seconds", type=float)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    options = parser.parse_args()
    keep_freed_memory()
    measure = {
        "emulator": emulator_cost,
        "inference": inference_cost,
        "training": training_cost,
    }[options.part]
    cost = measure(load_config(options.config, options.overrides), options.seconds)
    sys.stdout.write(json.dumps(asdict(cost)) + "\n")


if __name__ == "__main__":
    main()
