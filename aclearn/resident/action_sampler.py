"""Samples actions on the device, for a loop of one's own."""

from typing import Any

import torch
from torch import Tensor

from aclearn.distributions import distribution_of
from aclearn.resident.generator import CHOOSE, draws, stream_of
from aclearn.resident.sampling import sampler_of
from aclearn.resident.slices import Slice, Slices
from aclearn.resident.warp_setup import wp
from aclearn.types import ActionSpec


class ActionSampler:
    """Samples for N environments: one launch, whatever the distribution.

    Args:
        threads: of the CPU; None: one for each core.

    Attributes:
        parameters: `[N, P]` float32, to be written before `sample`.
        actions: `[N]` int64, or `[N, n]` int64 or float32: the last sample.
        log_probs: `[N]` float32, of these.
    """

    def __init__(
        self,
        spec: ActionSpec,
        *,
        envs: int,
        device: torch.device,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        sampler = sampler_of(spec)
        dtype = torch.float32 if spec.numbers else torch.int64
        self.parameters = torch.zeros(envs, distribution_of(spec).parameter_count, device=device)
        self.actions = torch.zeros(envs, *spec.shape, dtype=dtype, device=device)
        self.log_probs = torch.zeros(envs, device=device)
        self._slices = Slices(envs, device, threads)
        self._device = device
        arrays = [
            wp.from_torch(self.parameters, dtype=sampler.parameters),
            wp.from_torch(self.actions, dtype=sampler.sampled),
            wp.from_torch(self.log_probs),
        ]
        self._varying = len(arrays) + 1
        self._commands = [
            wp.launch(
                _sampling_kernel(sampler),
                part.size,
                [*arrays, seed, 0, part.first],
                device=str(device),
                record_cmd=True,
            )
            for part in self._slices.all
        ]

    def sample(self, step: int) -> tuple[Tensor, Tensor]:
        """Actions and log-probabilities by the present parameters; `step` is part of the key."""

        def of_slice(part: Slice) -> None:
            command = self._commands[part.part]
            command.set_param_at_index(self._varying, step)
            stream = None
            if self._device.type == "cuda":
                stream = wp.stream_from_torch(torch.cuda.current_stream(self._device))
            command.launch(stream)

        self._slices.run(of_slice)
        return self.actions, self.log_probs


def _sampling_kernel(sampler: Any) -> Any:
    parameters, sampled, sample = sampler.parameters, sampler.sampled, sampler.sample

    @wp.kernel(module="unique", enable_backward=False, module_options={"enable_backward": False})
    def sampling(
        given: wp.array(dtype=parameters),
        actions: wp.array(dtype=sampled),
        log_probs: wp.array(dtype=wp.float32),
        seed: wp.int32,
        step: wp.int32,
        first: wp.int32,
    ):
        i = first + wp.tid()
        action, log_prob = sample(given[i], draws(stream_of(seed, i), step, CHOOSE))
        actions[i] = action
        log_probs[i] = log_prob

    return sampling
