"""The resident trainer of a deterministic policy: HDDPG (Sha & Lan 2024, algorithm 2).

Each batch is the newest steps of all environments, first in, first out; there is no random replay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from aclearn.algorithms.ddpg import DDPGConfig
from aclearn.learning import Batch
from aclearn.learning.fifo import FifoBuffer
from aclearn.policies import Architecture
from aclearn.resident.noise import OrnsteinUhlenbeckNoise
from aclearn.resident.policy_rollout import PolicyRollout
from services.trainer.core import Snapshot
from services.trainer.resident import ResidentTrainer

_FIFO, _NOISE = "fifo/", "noise"


class HDDPGTrainer(ResidentTrainer):
    """As `ResidentTrainer`, of `loss.kind: ddpg`: acts with noise and learns from a FIFO buffer."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._fifo = FifoBuffer(super()._batch(), unrolls=self._settings.buffer_unrolls)

    @property
    def _settings(self) -> DDPGConfig:
        assert isinstance(self._config.loss, DDPGConfig)
        return self._config.loss

    def _make_rollout(self, acting: Architecture, dtype: torch.dtype) -> PolicyRollout:
        loss = self._settings
        self._noise = OrnsteinUhlenbeckNoise(
            self.envs, std=loss.noise_std, damping=loss.noise_damping
        )
        noise, stream = self._noise, self._stream
        return PolicyRollout(self.envs, acting, dtype=dtype, noise=noise, stream=stream)

    def _batch(self, *, waits: bool = True) -> Batch:
        batch = super()._batch(waits=False)
        rewards = batch.rewards * self._settings.reward_scale
        return self._fifo.push(replace(batch, rewards=rewards), waits=waits)

    def snapshot(self, return_mean: float | None = None) -> Snapshot:
        """As `ResidentTrainer.snapshot`, with the noise and the buffer."""
        snapshot = super().snapshot(return_mean)
        snapshot.tensors[_NOISE] = self._noise.noise.cpu().numpy().copy()
        for name, array in self._fifo.state().items():
            snapshot.tensors[f"{_FIFO}{name}"] = array
        return snapshot

    def restore(self, snapshot: Snapshot) -> None:
        """As `ResidentTrainer.restore`; other environments begin with an empty buffer."""
        super().restore(snapshot)
        tensors = snapshot.tensors
        noise = tensors.get(_NOISE)
        if noise is None or noise.shape != tuple(self._noise.noise.shape):
            return
        self._noise.noise.copy_(torch.from_numpy(noise.copy()))
        saved = {
            name.removeprefix(_FIFO): array
            for name, array in tensors.items()
            if name.startswith(_FIFO)
        }
        if saved["valid"].shape == self._fifo.shape:
            self._fifo.load_state(saved)
