"""Time of an actor's step on Pong, emulator included, by policy.

    python benchmarks/actor_time.py [--network accerl-original] [--envs 1] [--seconds 1.5]

The actor's own loop in one thread: swap in each newer policy, choose actions, step the emulator,
build and encode unrolls. Only the socket is left out. The policies take turns. Prints one JSON
line: µs of a step by policy and part, and the gain over eager fp32. AcceRL's actors have one
environment each.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import argparse
import json
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from inference import NETWORKS, architecture_of, policy_of, visited

from aclearn.config import config_from_yaml
from aclearn.distributions import distribution_of
from aclearn.launch.resources import keep_freed_memory
from aclearn.policies import Architecture
from aclearn.rollout import EpisodeCohorts, PolicySnapshot
from aclearn.telemetry import WaitMeter
from aclearn.types import DEFAULT_POLICY, OBSERVATION, PolicyVersion, Unroll, Visited
from aclearn.wire import Envelope, UnrollReply, encode
from compress import ArtifactRuntime, Context, parse_chain, parse_words
from services.actor.action_sources import LocalActions
from services.actor.core import Actor, Player
from services.actor.env_groups import make_groups, seed_groups
from services.actor.unroll_sender import UnrollSender
from services.policy.client import PolicyClient
from services.policy.factory import make_runtime
from services.role.loop import STEP_WITHIN_S
from services.role.seeds import Seeds

EAGER = "eager fp32"
RUNTIMES = {EAGER: "torch", "ONNX fp32": "onnx"}
CHAINS = (
    "int8,onnx",
    "prune: {sparsity: 0.75, per_layer: {convolutions: 0}},int8,onnx",
    "prune=0.5,int8,onnx",
    "distill=accerl-net1,int8,onnx",
)
_ROUNDS = 7
_CONFIG = """
env: {{id: ALE/Pong-v5, clip_rewards: true}}
actors: {{processes: 1, envs_per_group: {envs}, unroll_length: 20, emulator_threads: 1}}
"""


class Always:
    """Shared weights with a newer version at every poll."""

    open = True

    def __init__(self, load: Callable[[int], PolicySnapshot]) -> None:
        self._load = load

    def newer_than(self, known: PolicyVersion) -> tuple[PolicyVersion, None]:
        """The next version."""
        return PolicyVersion(0, known.version + 1), None

    def load(self, at: PolicyVersion, tensors: None) -> PolicySnapshot:
        """The policy of that version."""
        return self._load(at.version)


class Sink:
    """A link that encodes each unroll, drops it and admits it at once."""

    def __init__(self) -> None:
        self.peer = self.client = self
        self._answers: deque[Envelope] = deque()

    def follow(self, membership: Any) -> bool:
        """False: the peer never changes."""
        return False

    def send(self, unroll: Unroll, *, sequence: int) -> bool:
        """Encode the unroll and queue its reply."""
        encode(unroll, run="benchmark", incarnation="actor-0", sequence=sequence)
        answer = UnrollReply(sequence, True, "")
        self._answers.append(Envelope("benchmark", "trainer-0", sequence, answer))
        return True

    def receive(self, timeout_s: float) -> Envelope | None:
        """The next reply."""
        return self._answers.popleft() if self._answers else None


def of_weights(architecture: Architecture, kind: str, envs: int) -> Callable[[int], PolicySnapshot]:
    """A loader of versions of the uncompressed policy."""
    runtime = make_runtime(architecture, kind, device="cpu", max_batch=envs)
    weights = [policy_of(architecture, version).tensors for version in (0, 1)]

    def load(version: int) -> PolicySnapshot:
        return PolicySnapshot(runtime.load(weights[version % 2]), PolicyVersion(0, version))

    return load


def of_artifacts(
    architecture: Architecture, words: str, known: Any, most: int
) -> Callable[[int], PolicySnapshot]:
    """A loader of versions of a chain's artifact, which it checks.

    Args:
        architecture: of the uncompressed policy.
        words: the chain.
        known: observations for the chain.
        most: number of versions, all with the same weights.
    """
    chain, context = (
        parse_chain(parse_words(words), fidelity_observations=0),
        Context(Visited({OBSERVATION: known})),
    )
    made = chain.compress(policy_of(architecture, 0), context)
    versions = []
    for version in range(most):
        next_one = replace(made, at=PolicyVersion(0, version), digest="")
        versions.append(replace(next_one, digest=next_one.computed_digest()))
    runtime = ArtifactRuntime(architecture)

    def load(version: int) -> PolicySnapshot:
        executable = runtime.load(versions[version])
        return PolicySnapshot(executable, PolicyVersion(0, version), made.chain)

    return load


class Measured:
    """An actor that is measured in several rounds.

    Args:
        load: makes a version ready to act.
        envs: its environments.
        index: its number among the actors.
    """

    def __init__(self, load: Callable[[int], PolicySnapshot], *, envs: int, index: int) -> None:
        config = config_from_yaml(_CONFIG.format(envs=envs))
        self._meter = WaitMeter()
        [self._group] = groups = make_groups(config)
        seed_groups(groups, config, Seeds(config.run.seed, generation=0, index=index))
        trainer: Any = Sink()
        policies: Any = Sink()  # never polled
        unasked: Any = None  # there is always a newer version
        shared: Any = Always(load)
        membership: Any = None  # no peer joins or leaves
        client = self._client = PolicyClient(policies, unasked, shared)
        actions = LocalActions(
            client,
            distribution_of(self._group.env.spec.action),
            np.random.default_rng(index),
            lambda client: client.poll(membership),
            self._meter,
        )
        self.actor = Actor(
            [self._group],
            {DEFAULT_POLICY: Player(actions, EpisodeCohorts(time.monotonic))},
            sender=UnrollSender(
                trainer,
                membership,
                max_in_flight=config.actors.max_in_flight_unrolls,
                meter=self._meter,
            ),
            meter=self._meter,
        )

    def step_us(self, seconds: float) -> dict[str, float]:
        """Microseconds of an agent step over so many seconds, by part, and under "total" all."""
        self.actor.step(STEP_WITHIN_S)  # the very first one resets the environments
        at_s, steps, parts = time.perf_counter(), self.actor.env_steps, self._meter.parts()
        while time.perf_counter() - at_s < seconds:
            self.actor.step(STEP_WITHIN_S)
        if self._client.refused or not self._client.swaps:
            raise RuntimeError(f"policies were refused: {self._client.gauges()}")
        now = self._meter.parts()
        total_s, taken = time.perf_counter() - at_s, self.actor.env_steps - steps
        spent = {name: now[name] - parts.get(name, 0.0) for name in now}
        return {name: 1e6 * s / taken for name, s in {**spent, "total": total_s}.items()}

    def close(self) -> None:
        """Close the environments."""
        self._group.env.close()


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", choices=NETWORKS, default="accerl-original")
    parser.add_argument("--envs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each policy in a round")
    options = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    architecture, known = architecture_of(options.network), visited(256)
    # one version for each poll (every 10 ms) in all rounds
    most = 100 * (2 + round((1 + _ROUNDS) * options.seconds))
    found: dict[str, Callable[[int], PolicySnapshot]] = {
        **{name: of_weights(architecture, kind, options.envs) for name, kind in RUNTIMES.items()},
        **{words: of_artifacts(architecture, words, known, most) for words in CHAINS},
    }
    actors = {
        name: Measured(load, envs=options.envs, index=index)
        for index, (name, load) in enumerate(found.items())
    }
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in actors}
    for _ in range(1 + _ROUNDS):
        for name, actor in actors.items():
            rounds[name].append(actor.step_us(options.seconds))
    for name, actor in actors.items():
        actor.close()
        del rounds[name][0]  # the first round makes sessions and caches
    eager = [each["total"] for each in rounds[EAGER]]
    line = {
        "network": options.network,
        "envs": options.envs,
        "step_us": {name: _medians(parts) for name, parts in rounds.items()},
        "eager_over_it": {
            name: _spread([e / p["total"] for e, p in zip(eager, parts, strict=True)])
            for name, parts in rounds.items()
        },
    }
    sys.stdout.write(json.dumps(line) + "\n")


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    names = rounds[-1]
    return {n: round(statistics.median(each.get(n, 0.0) for each in rounds), 1) for n in names}


def _spread(values: list[float]) -> dict[str, float]:
    found = {"median": statistics.median(values), "least": min(values), "most": max(values)}
    return {name: round(value, 2) for name, value in found.items()}


if __name__ == "__main__":
    main()
