"""IMPALA in one process: the whole of actor, queue and learner, to be read from top to bottom.

    python examples/plain_impala.py                        # CartPole-v1 to a mean return of 195
    python examples/plain_impala.py --env Acrobot-v1 --target -100

The environments, the network, the distribution and the correction are those of aclearn. What the
service adds are processes: actors and learner run side by side, their messages are checked, every
step is accounted for, and any of them may die (docs/architecture.md).
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.config import EnvConfig
from aclearn.distributions import distribution_of, torch_distribution_of
from aclearn.envs import VectorEnv, make_vector_env
from aclearn.policies import Architecture, build_architecture
from aclearn.policies.network import PolicyNetwork
from aclearn.types import OBSERVATION
from correctors import vtrace

ACTORS, ENVS_PER_ACTOR = 4, 4
UNROLL_LENGTH = 20
#: Unrolls of one update. Each actor plays with weights that are some updates old.
UNROLLS_PER_BATCH = 2
#: Unrolls that an actor makes before it asks for newer weights.
UNROLLS_PER_REFRESH = 4

DISCOUNT, ENTROPY_COST, VALUE_COST = 0.99, 0.01, 0.5
LEARNING_RATE, MAX_GRAD_NORM = 1e-3, 1.0
#: Factor of rewards, so that values are not far above 1.
REWARD_SCALE = 0.05


@dataclass
class Unroll:
    """T steps of B environments, time-major; one observation more, to bootstrap from."""

    observations: NDArray[np.float32]  # [T+1, B, *shape]
    actions: NDArray[np.int32]  # [T, B]
    behaviour_log_prob: NDArray[np.float32]  # [T, B], recorded when the actor acted
    rewards: NDArray[np.float32]  # [T, B]
    terminated: NDArray[np.bool_]  # [T, B], the state reached is worth nothing
    truncated: NDArray[np.bool_]  # [T, B], the state reached keeps its value
    valid: NDArray[np.bool_]  # [T, B], False where the environment began a new episode
    version: int  # of the policy that acted


class Actor:
    """Plays a group of environments with a copy of the policy that grows old."""

    def __init__(self, env: VectorEnv, architecture: Architecture, seed: int) -> None:
        self._env = env
        self._policy = PolicyNetwork(architecture)
        self._distribution = distribution_of(env.spec.action)
        self._rng = np.random.default_rng(seed)
        self._observations = env.reset(seed)[OBSERVATION]
        self._returns = np.zeros(env.num_envs)
        self._version = 0
        self.ended: deque[float] = deque(maxlen=100)

    def refresh(self, weights: dict[str, Tensor], version: int) -> None:
        """Copy the learner's newest weights."""
        self._policy.load_state_dict(weights)
        self._version = version

    def unroll(self) -> Unroll:
        """Play T steps in every environment."""
        rows: list[list[NDArray[np.generic]]] = [[] for _ in range(6)]
        observations = [self._observations]
        for _ in range(UNROLL_LENGTH):
            with torch.no_grad():
                output = self._policy.step({OBSERVATION: torch.from_numpy(observations[-1])}, ())
            actions, log_prob = self._distribution.sample(output.parameters.numpy(), self._rng)
            self._env.send(actions)
            step = self._env.recv()
            observations.append(step.observations[OBSERVATION])
            # after an end the next step only resets: its action is ignored, it is not learned
            row = (actions, log_prob, step.rewards, step.terminated, step.truncated, ~step.reset)
            for values, value in zip(rows, row, strict=True):
                values.append(value)
            self._returns += step.rewards
            ends = step.terminated | step.truncated
            self.ended.extend(self._returns[ends].tolist())
            self._returns[ends] = 0.0
        self._observations = observations[-1]
        return Unroll(
            np.stack(observations).astype(np.float32),
            *(np.stack(row) for row in rows),  # type: ignore[arg-type, call-arg]
            self._version,
        )


class Learner:
    """The policy π, and one update of it from a batch of unrolls by older policies μ."""

    def __init__(self, architecture: Architecture) -> None:
        self.network = PolicyNetwork(architecture, seed=1)
        self._distribution = torch_distribution_of(architecture.action_spec)
        self._optimiser = torch.optim.Adam(self.network.parameters(), lr=LEARNING_RATE)
        self.version = 0

    def update(self, unrolls: list[Unroll]) -> dict[str, float]:
        """V-trace actor-critic (Espeholt et al. 2018, section 4.2); gives figures of the update."""

        def side_by_side(name: str) -> Tensor:
            return torch.from_numpy(np.concatenate([getattr(u, name) for u in unrolls], axis=1))

        valid = side_by_side("valid")
        terminated, truncated = side_by_side("terminated"), side_by_side("truncated")
        observations = side_by_side("observations")
        starts = torch.zeros(observations.shape[:2], dtype=torch.bool)  # for policies with a state
        output = self.network.unroll({OBSERVATION: observations}, (), starts)
        assert output.value is not None
        values, policy = output.value, self._distribution(output.parameters[:-1])
        log_prob = policy.log_prob(side_by_side("actions").long())
        log_rhos = log_prob.detach() - side_by_side("behaviour_log_prob")

        corrected = vtrace(
            values=values[:-1].detach(),
            next_values=values[1:].detach(),
            rewards=REWARD_SCALE * side_by_side("rewards"),
            discounts=DISCOUNT * (~terminated).float(),
            done=terminated | truncated,
            log_rhos=log_rhos,
        )
        policy_loss = -(log_prob * corrected.advantages)[valid].mean()
        value_loss = 0.5 * (corrected.targets - values[:-1])[valid].square().mean()
        entropy = policy.entropy()[valid].mean()

        self._optimiser.zero_grad()
        loss = policy_loss + VALUE_COST * value_loss - ENTROPY_COST * entropy
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), MAX_GRAD_NORM)
        self._optimiser.step()
        lag = self.version - np.mean([u.version for u in unrolls])
        self.version += 1
        return {
            "lag": float(lag),
            "rho": float(log_rhos.exp()[valid].mean()),
            "entropy": float(entropy.detach()),
            "value loss": float(value_loss.detach()),
        }


def play(actors: list[Actor], learner: Learner) -> Iterator[Unroll]:
    """Unrolls of all actors in turn, as a queue would give them."""
    count = 0
    while True:
        for number, actor in enumerate(actors):
            if (count + number) % UNROLLS_PER_REFRESH == 0:
                actor.refresh(learner.network.state_dict(), learner.version)
            yield actor.unroll()
        count += 1


def main() -> int:
    """Train until the mean return of 100 episodes reaches the target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="CartPole-v1", help="an environment with choices")
    parser.add_argument("--target", type=float, default=195.0, help="mean return of 100 episodes")
    parser.add_argument("--max-steps", type=int, default=400_000, help="agent steps")
    options = parser.parse_args()

    torch.manual_seed(1)
    config = EnvConfig(id=options.env)
    envs = [
        make_vector_env(config, num_envs=ENVS_PER_ACTOR, step_timeout_s=30.0, max_faults=3)
        for _ in range(ACTORS)
    ]
    spec = envs[0].spec
    architecture = build_architecture("mlp", spec.observation, spec.action, hidden=(64, 64))
    learner = Learner(architecture)
    actors = [Actor(env, architecture, seed=1000 * number) for number, env in enumerate(envs)]
    unrolls, steps = play(actors, learner), 0
    while steps < options.max_steps:
        batch = [next(unrolls) for _ in range(UNROLLS_PER_BATCH)]
        steps += sum(int(unroll.valid.sum()) for unroll in batch)
        figures = learner.update(batch)
        returns = [value for actor in actors for value in actor.ended][-400:]
        mean = float(np.mean(returns)) if returns else float("nan")
        if learner.version % 50 == 0:
            words = "  ".join(f"{name} {value:.3f}" for name, value in figures.items())
            print(f"{steps:7d} steps  return {mean:7.2f}  {words}", flush=True)
        if len(returns) >= 100 and mean >= options.target:
            print(f"target reached after {steps} steps: return {mean:.2f}")
            return 0
    print(f"target not reached in {steps} steps")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
