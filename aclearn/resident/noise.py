"""The noise of `aclearn.rollout.exploration` in the kernel of resident environments."""

from typing import Any

import torch
from torch import Tensor

from aclearn.resident.kernels import Chooser
from aclearn.resident.resident import Resident
from aclearn.resident.warp_setup import wp
from aclearn.rollout.exploration import LARGEST_NOISY


class OrnsteinUhlenbeckNoise:
    """Adds Ornstein–Uhlenbeck noise to the policy's modes.

    It is drawn by the environments' generator, so it is the same on every device and for any number
    of environments.

    Args:
        envs: whose actions are numbers, squashed by tanh; one step a launch.

    Attributes:
        noise: `[N·A, n]` float32, the noise of the last action.
    """

    def __init__(self, envs: Resident, *, std: float, damping: float) -> None:
        self._envs, self._std, self._damping = envs, std, damping
        self.noise: Tensor = torch.zeros(
            envs.num_envs * envs.agents, envs.spec.action.numbers, device=envs.device
        )

    def chooser(self, parameters: Tensor) -> tuple[Chooser, Any]:
        """Chooses tanh(mean) plus noise, and its source.

        Args:
            parameters: `[N·A, P]`, means and then log standard deviations, which a network writes.
        """
        (rows,) = self._envs.kinds
        sampler, observation = rows.sampler, rows.observation_type
        count = self._envs.spec.action.numbers
        vector = wp.types.vector(count, wp.float32)

        @wp.struct
        class Source:
            parameters: wp.array(dtype=sampler.parameters)
            noise: wp.array(dtype=vector)
            ended: wp.array(dtype=wp.bool)
            std: wp.float32
            kept: wp.float32

        @wp.func
        def choose(source: Source, k: wp.int32, i: wp.int32, seen: observation, rng: wp.uint32):
            mean = source.parameters[i]
            noise = source.noise[i]
            action = sampler.sampled()
            for n in range(count):
                if source.ended[i]:  # this step begins an episode and ignores the action
                    noise[n] = 0.0
                else:
                    noise[n] = source.kept * noise[n] + source.std * wp.randn(rng)
                a = wp.clamp(wp.tanh(mean[n]) + noise[n], -LARGEST_NOISY, LARGEST_NOISY)
                action[n] = 0.5 * wp.log((1.0 + a) / (1.0 - a))
            source.noise[i] = noise
            return action, wp.float32(0.0)

        source = Source()
        source.parameters = wp.from_torch(parameters, dtype=sampler.parameters)
        source.noise = wp.from_torch(self.noise, dtype=vector)
        source.ended = wp.from_torch(self._envs.episodes.running["ended"])
        source.std, source.kept = self._std, 1.0 - self._damping
        return Chooser(Source, choose), source
