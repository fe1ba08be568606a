"""An actor's time for an agent step on Pong, emulator included, with different policies to run.

    python benchmarks/actor_time.py [--network accerl-original] [--envs 1] [--seconds 4]

The paper's setting is actors of one environment each. The policies take turns on the same emulator
in one process with one thread. Prints one JSON line: microseconds of a step by policy, the
emulator's own part of it, and the ratio to eager fp32.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import argparse
import json
import statistics
import sys
import time
from typing import Any

import numpy as np
import torch
from inference import NETWORKS, architecture_of, policy_of, visited

from aclearn.acting import sample_actions
from aclearn.allocator import keep_freed_memory
from aclearn.config import EnvConfig
from aclearn.envs import VectorEnv, make_vector_env
from compress import ArtifactPolicy, Context, parse_chain, parse_words

CHAINS = ("", "onnx", "int8,onnx", "prune=0.5,int8,onnx", "distill=accerl-net1,int8,onnx")
_ROUNDS = 7


def step_us(
    env: VectorEnv, policy: ArtifactPolicy, observations: Any, rng: np.random.Generator, s: float
) -> tuple[float, float, Any]:
    """Microseconds of an agent step, those of the emulator in it, and the last observations."""
    steps, emulator_s, started = 0, 0.0, time.perf_counter()
    while time.perf_counter() - started < s:
        actions, _ = sample_actions(policy.logits(observations), rng)
        sent = time.perf_counter()
        env.send(actions.astype(np.int64))
        observations = env.recv().observations
        emulator_s += time.perf_counter() - sent
        steps += env.num_envs
    elapsed_s = time.perf_counter() - started
    return 1e6 * elapsed_s / steps, 1e6 * emulator_s / steps, observations


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", choices=NETWORKS, default="accerl-original")
    parser.add_argument("--envs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each policy in a round")
    options = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    architecture = architecture_of(options.network)
    known, rng = visited(256), np.random.default_rng(0)
    policies = {}
    for words in CHAINS:
        chain = parse_chain(parse_words(words), fidelity_observations=0)
        policy = ArtifactPolicy(architecture)
        policy.swap(chain.compress(policy_of(architecture, 1), Context(known)))
        policies[chain.id if words else "eager fp32"] = policy
    env = make_vector_env(
        EnvConfig(id="ALE/Pong-v5"),
        num_envs=options.envs,
        seed=1,
        step_timeout_s=30.0,
        max_faults=0,
        threads=1,
    )
    observations = env.reset()
    found: dict[str, list[float]] = {name: [] for name in policies}
    emulator: list[float] = []
    for _ in range(_ROUNDS):
        for name, policy in policies.items():
            us, emulator_us, observations = step_us(env, policy, observations, rng, options.seconds)
            found[name].append(us)
            emulator.append(emulator_us)
    env.close()
    eager = found["eager fp32"]
    line = {
        "network": options.network,
        "envs": options.envs,
        "emulator_us": round(statistics.median(emulator), 1),
        "step_us": {name: round(statistics.median(v), 1) for name, v in found.items()},
        "eager_over_it": {
            name: {
                "median": round(statistics.median(e / u for e, u in zip(eager, v, strict=True)), 2),
                "least": round(min(e / u for e, u in zip(eager, v, strict=True)), 2),
                "most": round(max(e / u for e, u in zip(eager, v, strict=True)), 2),
            }
            for name, v in found.items()
        },
    }
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
