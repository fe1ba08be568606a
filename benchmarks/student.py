"""Distance of a distiller's student to a run's policy, after minutes with nothing to learn.

    python benchmarks/student.py RUN [--student accerl-net1] [--seeds 1 2 3] [--quiet 120]
        [--versions 150]

RUN is the folder of a run on Atari. As early in a training, a student first learns `--quiet`
versions of a random network whose values fall by 1.5, on observations of random actions. Then it
learns `--versions` versions of the run's policy, on observations that this policy visits. Prints
one JSON line a seed:

* `kl_first`, `kl_last`: KL of the run's policy to the student in nats, first and last 25 versions.
* `kl_unseen`: the same of the last student, on the observations visited next.
* `kl_blind`: KL to the best policy that ignores its observations.
* `version_ms`: CPU time of a version.
* `living_units`: units of each layer that are active on some observation, after the first version,
  after the quiet versions and at the end.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from parts import make_env

from aclearn.config import Config
from aclearn.distributions import distribution_of
from aclearn.policies import Architecture
from aclearn.policies.network import PolicyNetwork, load_tensors, tensors_of
from aclearn.types import OBSERVATION, ActionSpec, PolicyVersion, Visited
from compress import Context, Policy
from compress.methods.distiller import Distiller
from services.evaluator.saved_policy import load_policy

_STEPS_INTO_THE_GAME, _STEPS, _KEEP_EVERY = 100, 2000, 5
_VISITED, _NEW_A_VERSION = 512, 32
_VALUES_FALL_BY = 1.5
_AVERAGED = 25


def divergence(network: torch.nn.Module, student: torch.nn.Module, seen: NDArray[Any]) -> float:
    """Mean KL of the run's policy to the student, in nats."""
    x = torch.from_numpy(seen)
    with torch.no_grad():
        p, q = (net(x)[0].numpy() for net in (network, student))
    return float(distribution_of(ActionSpec.discrete(p.shape[1])).kl(p, q).mean())


def visited(config: Config, network: PolicyNetwork | None) -> NDArray[np.uint8]:
    """Observations that a policy, or random actions, visit, in order."""
    env, rng, kept = make_env(config), np.random.default_rng(0), []
    observations = env.reset()[OBSERVATION]
    distribution = distribution_of(env.spec.action)
    for step in range(_STEPS_INTO_THE_GAME + _STEPS):
        logits = np.zeros((env.num_envs, env.spec.action.counts[0]), np.float32)
        if network is not None:
            with torch.no_grad():
                logits = network(torch.from_numpy(observations))[0].numpy()
        env.send(distribution.sample(logits, rng)[0])
        observations = env.recv().observations[OBSERVATION]
        if step >= _STEPS_INTO_THE_GAME and step % _KEEP_EVERY == 0:
            kept.append(observations.copy())
    env.close()
    return np.concatenate(kept)


def windows(observations: NDArray[Any], count: int) -> Iterator[NDArray[Any]]:
    """Observations that a compressor holds at each of `count` versions."""
    for version in range(count):
        start = version * _NEW_A_VERSION % (len(observations) - _VISITED)
        yield observations[start : start + _VISITED]


def living_units(student: torch.nn.Module, observations: NDArray[Any]) -> dict[str, str]:
    """Units of each hidden layer that are active on some observation, as active/all."""
    found: dict[str, str] = {}

    def look(name: str, made: torch.Tensor) -> None:
        on = (made > 0).transpose(0, 1).flatten(1).any(1)
        found[name] = f"{int(on.sum())}/{len(on)}"

    hooks = [
        module.register_forward_hook(lambda _, __, made, name=name: look(name, made))
        for name, module in student.named_modules()
        if name.split(".")[0] in ("convolutions", "hidden") and hasattr(module, "weight")
    ]
    with torch.no_grad():
        student(torch.from_numpy(observations[-_VISITED:]))
    for hook in hooks:
        hook.remove()
    return found


def blind_divergence(logits: torch.Tensor) -> float:
    """Mean KL to the best policy that ignores its observations, in nats."""
    log_p = logits.double().log_softmax(1)
    p = log_p.exp()
    return float((p * (log_p - p.mean(0).log())).sum(1).mean())


class Distillation:
    """A distiller and its memory from version to version."""

    def __init__(self, architecture: Architecture, student: str, seed: int) -> None:
        self._architecture, self._distiller = architecture, Distiller(student)
        self._context, self._taught = Context(seed=seed), 0
        self._memory = self._context.memory(self._distiller.state_key)

    @property
    def student(self) -> torch.nn.Module:
        """The student's network."""
        network: torch.nn.Module = self._memory["student"].network
        return network

    def teach(self, tensors: Mapping[str, NDArray[Any]], observations: NDArray[Any]) -> float:
        """Train on one version; returns the mean KL during the training."""
        self._taught += 1
        self._context.visited = Visited({OBSERVATION: observations})
        policy = Policy.of(self._architecture, tensors, PolicyVersion(0, self._taught))
        self._context.begin(policy)
        self._distiller.compress(policy, self._context)
        return float(self._memory["kl"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("--student", default="accerl-net1", help="network")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--quiet", type=int, default=120, help="versions of the random teacher")
    parser.add_argument("--versions", type=int, default=150, help="versions of the run's policy")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    loaded = load_policy(arguments.run)
    network = PolicyNetwork(loaded.architecture)
    load_tensors(network, loaded.tensors)
    random_visits, visits = visited(loaded.config, None), visited(loaded.config, network)
    with torch.no_grad():
        blind = blind_divergence(network(torch.from_numpy(visits[-_VISITED:]))[0])
    for seed in arguments.seeds:
        distillation = Distillation(loaded.architecture, arguments.student, seed)
        quiet = tensors_of(PolicyNetwork(loaded.architecture, seed=100 + seed))
        units = []
        for done, window in enumerate(windows(random_visits, arguments.quiet)):
            fallen = np.float32(_VALUES_FALL_BY * min(1.0, 2 * done / arguments.quiet))
            distillation.teach(quiet | {"value.bias": quiet["value.bias"] - fallen}, window)
            if done == 0:
                units.append(living_units(distillation.student, visits))
        units.append(living_units(distillation.student, visits))
        started = time.process_time()
        kl = [distillation.teach(loaded.tensors, w) for w in windows(visits, arguments.versions)]
        took_s = time.process_time() - started
        units.append(living_units(distillation.student, visits))
        shown = (arguments.versions - 1) * _NEW_A_VERSION + _VISITED
        unseen = visits[shown : shown + _VISITED]
        line = {
            "seed": seed,
            "kl_first": round(float(np.mean(kl[:_AVERAGED])), 5),
            "kl_last": round(float(np.mean(kl[-_AVERAGED:])), 5),
            "kl_unseen": round(divergence(network, distillation.student, unseen), 5),
            "version_ms": round(1000 * took_s / arguments.versions),
            "kl_blind": round(blind, 5),
            "living_units": units,
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
