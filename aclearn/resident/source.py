"""Batches of environments on the learner's own device: rollout and updates in turns.

With an on-policy loss this is the high-throughput A2C of Sha & Lan (2024), algorithm 1.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from aclearn.config import Config
from aclearn.errors import ConfigError
from aclearn.learning import (
    Batch,
    BatchStopped,
    GradientWorker,
    Learner,
    PublishedWeights,
    StepAccount,
)
from aclearn.learning.sources.source import BatchSource
from aclearn.policies import Architecture
from aclearn.policies.cuda_stream import CudaStream
from aclearn.resident import copies_of, resident_env_of
from aclearn.resident.memory import learning_bytes
from aclearn.resident.noise import OrnsteinUhlenbeckNoise
from aclearn.resident.played import Played
from aclearn.resident.policy_rollout import PolicyRollout
from aclearn.rollout import final_epsilons, share_left
from aclearn.telemetry import part
from aclearn.types import OBSERVATION, EnvSpec

ENVS, _NOISE, _MEMORY = "resident/", "noise", "memory/"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Copy(Protocol):
    """A smaller copy of the policy that acts in its place (`resident.chain`)."""

    architecture: Architecture
    chain_id: str

    def of(self, network: torch.nn.Module, observations: Tensor) -> Mapping[str, Tensor]:
        """The weights of the copy, by name; `observations` `[N, D]` are visited ones."""


class ResidentSource(BatchSource):
    """Plays T steps of every environment by the newest published policy. One thread.

    Args:
        copy: acts instead of the network; None: the network itself.

    Raises:
        ConfigError: the environments do not fit `spec`, or do not fit into the memory.
    """

    plays = True

    def __init__(
        self,
        config: Config,
        spec: EnvSpec,
        learner: Learner,
        account: StepAccount,
        published: PublishedWeights,
        *,
        incarnation: str,
        seed: int,
        copy: Copy | None = None,
        threads: int | None = None,
    ) -> None:
        resident, device = config.resident, learner.device
        assert resident.envs is not None
        self._learner, self._account, self._published = learner, account, published
        self._played = Played(account, incarnation, config.trainer.burn_in_steps)
        self._clips = config.env.clip_rewards
        env, on_cpu = resident_env_of(config), device.type == "cpu"
        self.envs = copies_of(
            env,
            envs=resident.envs,
            device=str(device),
            seed=seed,
            threads=threads or resident.threads,
            squash=config.env.squash_actions,
            steps=config.actors.unroll_length,
            more_bytes=learning_bytes(
                config, spec, learner.architecture, freezes=learner.freezes, on_gpu=not on_cpu
            ),
        )
        found = env.spec(squash=config.env.squash_actions)
        if found != spec:  # so is that of agents of several kinds
            raise ConfigError(
                f"resident.env: {env.name} has observations and actions of another kind than "
                f"env.id {config.env.id}: {found}, expected {spec}"
            )
        cores = threads or resident.threads or len(os.sched_getaffinity(0))
        self.threads, self.stream = (cores, None) if on_cpu else (1, CudaStream(device))
        loss: Any = config.loss
        self._noise = None
        if loss.acting == "noise":
            self._noise = OrnsteinUhlenbeckNoise(
                self.envs, std=loss.noise_std, damping=loss.noise_damping
            )
        self._epsilon, self._final = None, torch.zeros(0)
        if loss.acting == "epsilon":
            final = final_epsilons(loss.epsilon, loss.epsilon_exponent, resident.envs * spec.agents)
            self._epsilon_steps: int = loss.epsilon_steps
            self._final = torch.from_numpy(final).to(device)
            self._epsilon = torch.ones_like(self._final)
        self._copy, self._chain_id = copy, "none" if copy is None else copy.chain_id
        self._rollout = PolicyRollout(
            self.envs,
            learner.architecture if copy is None else copy.architecture,
            dtype=DTYPES[resident.policy],
            noise=self._noise,
            epsilon=self._epsilon,
            stream=self.stream,
        )
        self.envs.reset()

    @override
    def next(self, timeout_s: float, worker: GradientWorker) -> Batch | None:
        with part("rollout"):
            self._rollout.refresh(self._acting_weights())
            if self._epsilon is not None:  # falls from 1, rollout by rollout
                left = share_left(self.envs.steps, self._epsilon_steps)
                self._epsilon.copy_(self._final + (1.0 - self._final) * left)
            try:
                self._rollout.run(worker.check)
            except BatchStopped:
                return None
            if self._clips:
                self.envs.buffers.rewards.clamp_(-1.0, 1.0)
            # these wait for a GPU, to which the rest is only given
            sums, cohorts = self.envs.take_sums(), self.envs.take_cohorts()
        return self._batch(self._played.add(sums, cohorts, self.envs.buffers.valid))

    def _acting_weights(self) -> Mapping[str, Tensor]:
        """The weights that act next, by name."""
        network = self._learner.network
        if self._copy is None:
            return dict(network.named_parameters())
        return self._copy.of(network, self.envs.buffers.observations[-1])

    def _batch(self, steps: int) -> Batch:
        """The buffers, without a copy, which have so many steps to learn."""
        b = self.envs.buffers
        return Batch(
            observations={OBSERVATION: b.observations},
            actions=b.actions,
            behaviour_log_prob=b.log_probs,
            rewards=b.rewards,
            terminated=b.terminated,
            truncated=b.truncated,
            valid=b.valid,
            masks=b.masks,
            versions=np.broadcast_to(np.int64(self._published.at.version), tuple(b.valid.shape)),
            state=tuple(self._rollout.first_state),
            chain_steps={self._chain_id: steps},
        )

    @override
    def take_episodes(self) -> dict[str, Any]:
        return self._played.take(self.envs.steps)

    @override
    def heartbeat_fields(self) -> dict[str, dict[str, Any]]:
        return self._played.heartbeat_fields()

    @override
    def state(self) -> dict[str, NDArray[Any]]:
        saved = {f"{ENVS}{name}": array for name, array in self.envs.snapshot().items()}
        if self._noise is not None:
            saved[_NOISE] = self._noise.noise.cpu().numpy().copy()
        for name, state in self._memory.items():
            saved[name] = state.cpu().numpy().copy()
        return saved

    @property
    def _memory(self) -> dict[str, Tensor]:
        """The parts of the policy's state by their names in a checkpoint."""
        return {f"{_MEMORY}{i}": part for i, part in enumerate(self._rollout.state)}

    @override
    def restore(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Another number of environments starts with new episodes."""
        self._account.close_all()
        envs = {
            name.removeprefix(ENVS): array for name, array in saved.items() if name.startswith(ENVS)
        }
        if len(envs.get("lengths", ())) != self.envs.num_envs * self.envs.agents:
            return
        self.envs.restore(envs)
        if self._noise is not None and _NOISE in saved:
            self._noise.noise.copy_(torch.from_numpy(np.array(saved[_NOISE])))
        for name, state in self._memory.items():
            state.copy_(torch.from_numpy(np.array(saved[name])))

    @override
    def close(self) -> None:
        self.envs.close()
