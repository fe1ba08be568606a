"""The trainer whose environments are on its own device: rollout and update in turns.

With an on-policy loss this is the high-throughput A2C of Sha & Lan (2024), algorithm 1.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.config import Config
from aclearn.errors import ConfigError
from aclearn.learning import (
    Batch,
    BatchStopped,
    DeviceReport,
    DeviceUpdates,
    ParameterStore,
    StopCheck,
)
from aclearn.learning.parallel_worker import ParallelWorker
from aclearn.metrics import EPISODES_FOR_TARGET
from aclearn.policies import Architecture
from aclearn.policies.cuda_stream import CudaStream
from aclearn.resident import ResidentEnvs, resident_env_of
from aclearn.resident.policy_rollout import PolicyRollout
from aclearn.telemetry import part
from aclearn.types import OBSERVATION, EnvSpec, EpisodeCohort, bounded_cohorts
from services.policy.factory import acting_chain
from services.role.seeds import Seeds, Use
from services.trainer.acting_copy import ActingCopy
from services.trainer.core import Snapshot, Trainer
from services.trainer.resident_memory import learning_bytes

_LOGGER = logging.getLogger(__name__)

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
        generation: as of `Trainer`.
        threads: of the CPU; None: as configured.
        in_one_piece: make the updates of a batch without a wait for the device, where precision
            and optimiser allow it; None: on a GPU, where they are one CUDA graph.

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
        generation: int = 0,
        threads: int | None = None,
        in_one_piece: bool | None = None,
    ) -> None:
        resident = config.resident
        assert resident.envs is not None
        on_device = config.trainer.model_copy(update={"device": resident.device})
        config = config.model_copy(update={"trainer": on_device})
        super().__init__(
            config,
            spec,
            architecture,
            ParameterStore(),
            generation=generation,
            chunk_samples=_CHUNK_SAMPLES,
        )
        seeds = Seeds(config.run.seed, generation)
        env = resident_env_of(config)
        self.envs = ResidentEnvs(
            env,
            envs=resident.envs,
            device=str(self.device),
            seed=seeds.number(Use.RESIDENT),
            threads=threads or resident.threads,
            squash=config.env.squash_actions,
            steps=config.actors.unroll_length,
            config=config.env.kwargs,
            more_bytes=learning_bytes(
                config,
                env,
                architecture,
                freezes=self.learner.freezes,
                on_gpu=self.device.type != "cpu",
            ),
        )
        if self.envs.spec != spec:
            raise ConfigError(
                f"resident.env: {env.name} has observations and actions of another kind than "
                f"env.id {config.env.id}: {self.envs.spec}, expected {spec}"
            )
        self._copy, self._chain_id = None, "none"
        if config.resident.chain:
            chain = acting_chain(config.resident.chain, architecture.acting())
            seed = seeds.number(Use.COMPRESSION)
            self._copy, self._chain_id = ActingCopy(chain, architecture, seed), chain.id
        acting = architecture if self._copy is None else self._copy.architecture
        on_cpu = self.device.type == "cpu"
        self._stream = None if on_cpu else CudaStream(self.device)
        self._rollout = self._make_rollout(acting, _DTYPES[config.resident.policy])
        self._in_one_piece = not on_cpu if in_one_piece is None else in_one_piece
        if self._in_one_piece and (setting := self.learner.waits_for_each_update):
            self._in_one_piece = False
            _LOGGER.warning(
                "event=updates_not_captured setting=%r detail='the trainer waits for the device "
                "after each update; expected optimiser.kind adam, trainer.amp bf16 or off'",
                setting,
            )
        self._updates: DeviceUpdates | None = None
        # made here, since it draws numbers: a resumed run would draw them once more
        self._in_place = self.learner.make_worker(in_place=True) if self._in_one_piece else None
        self.envs.reset()
        cores = threads or resident.threads or len(os.sched_getaffinity(0))
        self._worker = self.learner.make_worker(cores if on_cpu else 1)
        self._incarnation, self._batches, self._produced = incarnation, 0, 0
        self.episodes = 0
        self._ended, self._ended_return = 0, 0.0  # since the last heartbeat
        self._cohorts: list[EpisodeCohort] = []
        self._at_begin: dict[str, Any] | None = None

    def _make_rollout(self, acting: Architecture, dtype: torch.dtype) -> PolicyRollout:
        return PolicyRollout(self.envs, acting, dtype=dtype, stream=self._stream)

    @property
    def over(self) -> bool:
        """Whether a bound is reached, so that nothing more is learned."""
        return self.admission.reached is not None

    def play_and_learn(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """One batch: T steps of every environment by the newest policy, and its updates.

        Args:
            goes_on: asked many times within a batch. Once False, an unfinished rollout leaves no
                trace, and steps that were not learned yet are dropped.

        Raises:
            EnvironmentFailure: a reward or an observation is out of range.
        """
        check = StopCheck(goes_on)
        self._worker.watch(check)
        self._at_begin = self.heartbeat_fields()
        try:
            if self._stream is None:
                self._play_and_learn(check)
                return
            # others write and read weights and environments in the default stream
            torch.cuda.synchronize(self.device)
            with self._stream.scope():
                self._play_and_learn(check)
            self._stream.wait()
        finally:
            self._at_begin = None

    def _play_and_learn(self, check: StopCheck) -> None:
        with part("rollout"):
            self._rollout.refresh(self._acting_weights())
            try:
                self._rollout.run(check)
            except BatchStopped:
                return
            if self._config.env.clip_rewards:
                self.envs.buffers.rewards.clamp_(-1.0, 1.0)
        if self._in_one_piece and self._most_updates_are_left:
            self._learn_on_device(self._batch(waits=False))
            return
        self._take_sums()
        batch = self._batch()
        self._produce(batch.new_steps)
        self.learn_batch(batch, self._worker, chain=self._chain_id)

    @property
    def _most_updates_are_left(self) -> bool:
        """Whether the run may make all updates of one more batch."""
        trainer, most = self._config.trainer, self._config.run.max_updates
        here = trainer.epochs * trainer.minibatches
        return most is None or self.counters.updates + here <= most

    def _learn_on_device(self, batch: Batch) -> None:
        """All updates, then one look at their figures and those of the rollout."""
        learner, trainer = self.learner, self._config.trainer
        if self._updates is None:
            assert self._in_place is not None
            self._updates = learner.device_updates(
                batch,
                worker=self._in_place,
                count=trainer.minibatches,
                passes=trainer.epochs,
                broken=self.envs.broken,
            )
        updates = self._updates
        with learner.turn(), part("update"):
            seed = int(torch.randint(2**62, (), generator=self._order))
            updates.begin(self.admission.learned_steps, seed=seed)
            updates.run(self._stream)
            reports = updates.results()
        self._take_sums()
        learned = [each for each in reports if each.pass_number == 0]
        new = sum(each.new_steps for each in learned)
        self._produce(new)
        if not learned:
            return
        there = batch.valid_on_host[:, 0]  # steps of all environments at a time are of one version
        lags = self.counters.policy_version - batch.versions[there, 0]
        steps = sum(each.steps for each in learned)
        self._account(new, self._noted(reports, lags, steps, new, ended=updates.ended))

    def _noted(
        self,
        reports: list[DeviceReport],
        lags: NDArray[np.int64],
        batch_steps: int,
        new_steps: int,
        *,
        ended: bool,
    ) -> Iterator[int]:
        """As `Trainer._learn_batch`, of updates that were made."""
        applied = []
        for pass_number, _, steps, report in reports:
            first = pass_number == 0
            self._count(report, steps, first_pass=first)
            if first:
                yield steps
            if report.applied:
                applied.append(report)
            else:
                self._refuse(report)
        self._end_batch(applied, lags, batch_steps, {self._chain_id: new_steps}, ended=ended)

    def _take_sums(self) -> None:
        sums = self.envs.take_sums()
        self.episodes += sums.episodes
        self._ended += sums.episodes
        self._ended_return += sums.returns
        self._cohorts = bounded_cohorts([*self._cohorts, *self.envs.take_cohorts()])

    def _produce(self, steps: int) -> None:
        """Admit the steps of one more batch."""
        self.admission.produced(self._incarnation, self._batches, self._produced, steps)
        self._batches += 1
        self._produced += steps

    def _acting_weights(self) -> Mapping[str, Tensor]:
        """The weights that act next, by name."""
        network = self.learner.network
        if self._copy is None:
            return dict(network.named_parameters())
        return self._copy.of(network, self.envs.buffers.observations[-1])

    def _batch(self, *, waits: bool = True) -> Batch:
        """The batch that is learned next: the buffers, without a copy.

        Args:
            waits: for the valid steps, on the host; else all of them count as valid there.
        """
        b = self.envs.buffers
        valid = b.valid.cpu().numpy() if waits else np.broadcast_to(np.True_, tuple(b.valid.shape))
        version = np.int64(self.counters.policy_version)
        return Batch(
            observations={OBSERVATION: b.observations},
            actions=b.actions,
            behaviour_log_prob=b.log_probs,
            rewards=b.rewards,
            terminated=b.terminated,
            truncated=b.truncated,
            valid=b.valid,
            versions=np.broadcast_to(version, valid.shape),
            valid_on_host=valid,
        )

    def take_episodes(self) -> dict[str, Any]:
        """Fields of a heartbeat about the episodes since the last call.

        The returns are the mean of those that ended, at most 100 times. Within a batch there are
        none, as in `heartbeat_fields`.
        """
        if self._at_begin is not None:
            return {}
        ended, total, cohorts = self._ended, self._ended_return, self._cohorts
        self._ended, self._ended_return, self._cohorts = 0, 0.0, []
        returns = [total / max(1, ended)] * min(ended, EPISODES_FOR_TARGET)
        return {
            "episode_returns": returns,
            "cohorts": cohorts,
            "clock_s": float(self.envs.steps),
        }

    def heartbeat_fields(self) -> dict[str, Any]:
        """As `Trainer.heartbeat_fields`; within a batch those of its begin.

        Otherwise the monitor would see a bound before the batch that reaches it is learned, and end
        the run.
        """
        if self._at_begin is not None:
            return {name: dict(values) for name, values in self._at_begin.items()}
        fields = super().heartbeat_fields()
        fields["counters"]["episodes"] = self.episodes
        return fields

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
        self._updates = None  # the optimiser's memory is another one
        self.admission.close_all()
        saved = {
            name.removeprefix(_PREFIX): array
            for name, array in snapshot.tensors.items()
            if name.startswith(_PREFIX)
        }
        if len(saved.get("lengths", ())) == self.envs.num_envs:
            self.envs.restore(saved)
