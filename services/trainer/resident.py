"""The trainer whose environments are on its own device: rollout and update in turns.

With an on-policy loss this is the high-throughput A2C of Sha & Lan (2024), algorithm 1.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aclearn.config import Config, DDPGConfig, LossConfig
from aclearn.errors import ConfigError
from aclearn.learning import Batch, ParameterStore
from aclearn.learning.parallel_worker import ParallelWorker
from aclearn.metrics import EPISODES_FOR_TARGET
from aclearn.policies import Architecture
from aclearn.resident import ResidentEnvs, resident_env_of
from aclearn.resident.policy_rollout import PolicyRollout
from aclearn.telemetry import WaitMeter, measure_here, part
from aclearn.types import OBSERVATION, EnvSpec
from services.runtime.policy_factory import acting_chain, architecture_of
from services.runtime.role_context import RoleContext
from services.runtime.role_metrics import RoleMetrics
from services.runtime.warm_start import start_tensors
from services.trainer.acting_copy import ActingCopy
from services.trainer.checkpoint_record import refuse_lost_learning
from services.trainer.checkpoints import TrainerCheckpoints
from services.trainer.core import Snapshot, Trainer

#: Samples that are differentiated at a time on a CPU: of flat observations in small networks.
_CHUNK_SAMPLES = 8192
_PREFIX = "resident/"
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class ResidentTrainer(Trainer):
    """A trainer and its environments. One thread.

    Args:
        config: of the run, with `resident.envs`.
        spec: of the environments.
        architecture: of the policy.
        incarnation: of this process, for the account of agent steps.
        threads: of the CPU; None: as configured.

    Attributes:
        episodes: that have ended in this process.
    """

    def __init__(
        self,
        config: Config,
        spec: EnvSpec,
        architecture: Architecture,
        *,
        incarnation: str,
        threads: int | None = None,
    ) -> None:
        resident = config.resident
        assert resident.envs is not None
        on_device = config.trainer.model_copy(update={"device": resident.device})
        config = config.model_copy(update={"trainer": on_device})
        super().__init__(config, spec, architecture, ParameterStore(), chunk_samples=_CHUNK_SAMPLES)
        env = resident_env_of(config)
        self.envs = ResidentEnvs(
            env,
            envs=resident.envs,
            device=str(self.device),
            seed=config.run.seed,
            threads=threads or resident.threads,
            squash=config.env.squash_actions,
            steps=config.actors.unroll_length,
            config=config.env.kwargs,
        )
        if self.envs.spec != spec:
            raise ConfigError(
                f"resident.env: {env.name} has observations and actions of another kind than "
                f"env.id {config.env.id}: {self.envs.spec}, expected {spec}"
            )
        self._copy, self._chain_id = None, "none"
        if config.resident.chain:
            chain = acting_chain(config.resident.chain, architecture)
            self._copy, self._chain_id = ActingCopy(chain, architecture, config.run.seed), chain.id
        acting = architecture if self._copy is None else self._copy.architecture
        self._rollout = self._make_rollout(acting, _DTYPES[config.resident.policy])
        self.envs.reset()
        on_cpu = self.device.type == "cpu"
        cores = threads or resident.threads or len(os.sched_getaffinity(0))
        self._worker = self.learner.make_worker(cores if on_cpu else 1)
        self._incarnation, self._batches, self._produced = incarnation, 0, 0
        self.episodes = 0
        self._reported, _ = self.envs.last_returns()

    def _make_rollout(self, acting: Architecture, dtype: torch.dtype) -> PolicyRollout:
        return PolicyRollout(self.envs, acting, dtype=dtype)

    @property
    def over(self) -> bool:
        """Whether a bound is reached, so that nothing more is learned."""
        return self.admission.reached is not None

    def play_and_learn(self) -> None:
        """One batch: T steps of every environment by the newest policy, and its updates.

        Raises:
            EnvironmentFailure: a reward or an observation is not finite.
        """
        with part("rollout"):
            self._rollout.refresh(self._acting_weights())
            self._rollout.run()
            sums = self.envs.take_sums()
        self.episodes += sums.episodes
        batch = self._batch()
        self.admission.produced(self._incarnation, self._batches, self._produced, batch.new_steps)
        self._batches += 1
        self._produced += batch.new_steps
        self.learn_batch(batch, self._worker, chain=self._chain_id)

    def _acting_weights(self) -> Mapping[str, Tensor]:
        """The weights that act next, by name."""
        network = self.learner.network
        if self._copy is None:
            return dict(network.named_parameters())
        return self._copy.of(network, self.envs.buffers.observations[-1])

    def _batch(self) -> Batch:
        """The buffers as a batch, without a copy but of clipped rewards."""
        b = self.envs.buffers
        rewards = b.rewards.clamp(-1.0, 1.0) if self._config.env.clip_rewards else b.rewards
        version = np.int64(self.counters.policy_version)
        return Batch(
            observations={OBSERVATION: b.observations},
            actions=b.actions,
            behaviour_log_prob=b.log_probs,
            rewards=rewards,
            terminated=b.terminated,
            truncated=b.truncated,
            valid=b.valid,
            versions=np.broadcast_to(version, tuple(b.valid.shape)),
            valid_on_host=b.valid.cpu().numpy(),
        )

    def new_returns(self) -> list[float]:
        """Returns of at most 100 of the environments in which episodes ended since the last call.

        They are each environment's last return, so that short episodes do not count more than long
        ones, and evenly spaced quantiles, so that their mean is that of all environments.
        """
        ended, returns = self.envs.last_returns()
        changed = np.flatnonzero(ended != self._reported)
        self._reported = ended
        count = min(len(changed), EPISODES_FOR_TARGET)
        middles = (2 * np.arange(count) + 1) * len(changed) // max(1, 2 * count)
        return [float(value) for value in np.sort(returns[changed])[middles]]

    def close(self) -> None:
        """End the threads."""
        self.envs.close()
        if isinstance(self._worker, ParallelWorker):
            self._worker.close()

    def snapshot(self, return_mean: float | None = None) -> Snapshot:
        """As `Trainer.snapshot`, with every environment's state."""
        snapshot = super().snapshot(return_mean)
        for name, array in self.envs.snapshot().items():
            snapshot.tensors[f"{_PREFIX}{name}"] = array
        return snapshot

    def restore(self, snapshot: Snapshot) -> None:
        """As `Trainer.restore`; another number of environments starts with new episodes."""
        super().restore(snapshot)
        self.admission.close_all()
        saved = {
            name.removeprefix(_PREFIX): array
            for name, array in snapshot.tensors.items()
            if name.startswith(_PREFIX)
        }
        if len(saved.get("lengths", ())) == self.envs.num_envs:
            self.envs.restore(saved)
            self._reported, _ = self.envs.last_returns()


def _trainer_of(loss: LossConfig) -> type[ResidentTrainer]:
    if not isinstance(loss, DDPGConfig):
        return ResidentTrainer
    from services.trainer.hddpg import HDDPGTrainer

    return HDDPGTrainer


class ResidentRole:
    """Runs a `ResidentTrainer` until it is stopped; at the end it writes a checkpoint."""

    def __init__(self, context: RoleContext) -> None:
        config, folder, spec = context.config, context.folder, context.env_spec
        if folder is None or spec is None:
            raise ValueError("the trainer needs a run folder and the spec of the environments")
        self._trainer = _trainer_of(config.loss)(
            config,
            spec,
            architecture_of(config, spec),
            incarnation=context.incarnation,
            threads=1 if context.inline else None,
        )
        self._checkpoints = TrainerCheckpoints(
            self._trainer,
            folder,
            config.run,
            start=partial(start_tensors, config, self._trainer.architecture),
            clock=context.wall_clock,
        )
        self._checkpoints.resume()
        self._checkpoints.claim_generation()
        self._inline, self._by_hand, self._folder = context.inline, context.by_hand, folder
        self._meter = WaitMeter()
        self._metrics = RoleMetrics(None if context.inline else self._meter)
        self._monitor = context.join(self._heartbeat)
        self._stopped = False

    @property
    def exit_status(self) -> int:
        """0 if the monitor ended the run, else the signal's."""
        return self._monitor.exit_status

    def step(self, timeout_s: float) -> bool:
        """As `Role.step`: play and learn for about `timeout_s`, and write due checkpoints."""
        self._stopped = not self._monitor.goes_on(self._meter)
        if self._stopped:
            return False
        measure_here(self._meter)
        until = time.monotonic() + timeout_s
        while not self._trainer.over:
            self._trainer.play_and_learn()
            if self._inline or time.monotonic() >= until:
                break
        else:
            time.sleep(timeout_s)
        if (mean := self._monitor.take_best_mean()) is not None:
            self._checkpoints.offer_best(mean)
        self._checkpoints.write_if_due()
        return True

    def close(self) -> None:
        """Write the last checkpoint, send the last heartbeat.

        Raises:
            LearningLost: the checkpoint could not be written, and no parent reports that.
        """
        if self._stopped:
            self._checkpoints.write()
            last = self._checkpoints.heartbeat_fields()
            self._monitor.leave()
        self._trainer.close()
        if self._stopped and self._by_hand:
            refuse_lost_learning(self._folder, last)

    def _heartbeat(self) -> Any:
        fields = self._checkpoints.heartbeat_fields()
        counters = fields.pop("counters")
        counters |= {"episodes": self._trainer.episodes, "predictions": counters["env_steps"]}
        return self._metrics.heartbeat(
            counters=counters, episode_returns=self._trainer.new_returns(), **fields
        )
