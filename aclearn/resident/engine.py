"""Environments of one agent on one device, stepped together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from aclearn.resident import kernels
from aclearn.resident.buffers import Buffers
from aclearn.resident.environment import ResidentEnv
from aclearn.resident.place import check_memory, resident_device
from aclearn.resident.resident import BYTES, Choosers, Resident, Steps, given_chooser
from aclearn.resident.rows import Rows
from aclearn.resident.sampling import sampler_of
from aclearn.resident.slices import Slice
from aclearn.resident.structs import Structs
from aclearn.resident.warp_setup import wp


class ResidentEnvs(Resident):
    """N environments of one agent each.

    Args:
        envs: N.
        device: "auto", "cpu", "cuda" or "cuda:N".
        seed: of everything that is drawn; several: one for each group of neighbouring environments,
            which draws as if it were alone, and has an account of its own.
        threads: of the CPU; None: one for each core.
        squash: as `env.squash_actions`.
        steps: T, of the buffers.
        more_bytes: that others will need for each environment on the device, by what needs them.

    Attributes:
        buffers: the last steps.

    Raises:
        ConfigError: N is below 1 or too large for the memory, the device is not there, or the
            parameters do not fit.
        EnvironmentFailure: Warp cannot compile the environment.
    """

    def __init__(
        self,
        env: ResidentEnv,
        *,
        envs: int,
        device: str = "auto",
        seed: int | Sequence[int] = 0,
        threads: int | None = None,
        squash: bool = False,
        steps: int = 1,
        config: Mapping[str, Any] | None = None,
        more_bytes: Mapping[str, int] | None = None,
    ) -> None:
        on = resident_device(device)
        self.env, self._draw, spec = env, env.draw, env.spec(squash=squash)
        check_memory(
            {
                "states": BYTES + wp.types.type_size_in_bytes(env.state),
                **Buffers.bytes_of(env.observation_size, spec.action, steps=steps),
                **(more_bytes or {}),
            },
            envs=envs,
            device=on,
        )
        super().__init__(
            env.name,
            envs=envs,
            agents=1,
            device=on,
            seed=seed,
            threads=threads,
            steps=steps,
            time_limit=env.time_limit,
            accounts=1 if isinstance(seed, int) else len(seed),
        )
        self.params = env.configured(self._warp_device, config or {})
        width, action = env.observation_size, spec.action
        buffers = Buffers.empty(width, action, steps=steps, rows=envs, device=on)
        self.kinds = (Rows("agent", 0, spec, sampler_of(action), buffers, width),)
        self._arrays = self.kinds[0].arrays()
        self._states = Structs(env.state, (envs,), on)
        self.data = self._states.fields
        self._reset = self._load(kernels.reset_kernel(env))
        self._given = torch.zeros_like(buffers.actions[:1])
        self._steps_given: Steps | None = None

    def reset(self, seed: int | None = None) -> Tensor:
        """First observations `[N, D]` of a new episode in every environment.

        Args:
            seed: of everything that is drawn from now on; None: the one before.
        """
        self._begin(seed)
        return self.buffers.observations[-1]

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One step; returns observations, rewards, terminated and truncated.

        The tensors are the buffers' own: the next step overwrites them. The step after an end
        ignores its action and returns the first observation of the next episode, with reward 0.

        Args:
            actions: as sampled, `[N]` int64, or `[N, n]` int64 or float32, on the device.

        Raises:
            ValueError: another shape, or a choice that there is not.
        """
        if self._steps_given is None:
            self._steps_given = self.rollout([given_chooser(self.kinds[0], self._given)])
        if actions.shape != self._given.shape[1:]:
            expected = list(self._given.shape[1:])
            raise ValueError(f"actions: expected shape {expected}, got {list(actions.shape)}")
        self._given[0].copy_(actions)
        self.kinds[0].check_choices(self.kinds[0].by_agent(self._given[0]), self.name)
        self._steps_given.run(1)
        b = self.buffers
        return b.observations[1], b.rewards[0], b.terminated[0], b.truncated[0]

    @override
    def rollout(self, choosers: Choosers, *, recorded: bool = True) -> Steps:
        ((chooser, source),) = choosers
        return Rollout(self, chooser, source, recorded=recorded)

    def state(self) -> NDArray[Any]:
        """A copy of the state of every environment `[N]`, a structured array."""
        return self._states.numpy()

    def set_state(self, state: NDArray[Any]) -> None:
        """Replace the state of every environment."""
        self._states.assign(state)

    @override
    def _memory(self) -> Mapping[str, Tensor]:
        return {"state": self._states.bytes}

    @override
    def _observe(self, *, begins: bool) -> None:
        row = len(self.buffers.rewards)
        seed = wp.from_torch(self._seed)
        given = [self._states.array, self.params, self._arrays[0], seed, self.steps, begins, row]
        self._launch(self._reset, self.num_envs, given).launch(self._stream())

    @override
    def _where(self, row: int) -> str:
        return f"environment {row}{self.buffers.wrong_number(row)}"


class Rollout:
    """Launches of one kernel on the environments of `envs`, whose actions `chooser` chooses."""

    def __init__(
        self, envs: ResidentEnvs, chooser: kernels.Chooser, source: Any, *, recorded: bool = True
    ) -> None:
        self._envs, self._recorded = envs, recorded
        kernel = envs._load(
            kernels.rollout_kernel(envs.env, envs.kinds[0].sampler, chooser, recorded=recorded)
        )
        episodes = envs.episodes
        arrays = [wp.from_torch(tensor) for tensor in episodes.running.values()]
        cohorts = [wp.from_torch(episodes.cohorts.flatten(0, 1)), episodes.cohort_steps]
        sums = [wp.from_torch(episodes.statistics.flatten(0, 1)), *cohorts]
        sums += [wp.from_torch(episodes.out_of_range_at)]
        fixed = [envs._states.array, *arrays, *sums, envs.params, source]
        fixed += [*envs._arrays, wp.from_torch(envs._seed), wp.from_torch(envs._clock)]
        self._varying = len(fixed)
        self._commands = [
            envs._launch(kernel, part.size, [*fixed, 0, 0, 0, part.first, part.part])
            for part in envs.slices.all
        ]

    def run(self, count: int) -> None:
        """`count` steps of every environment, recorded from the first row of the buffers."""
        if self._recorded:
            self._envs.carry_over()
        self._envs.slices.run(lambda part: self.run_slice(part, count, row=0))
        self._envs.advance(count)

    def run_slice(self, part: Slice, count: int, *, row: int, ahead: int = 0) -> None:
        """Steps of one slice; the caller calls `envs.advance` with all steps afterwards.

        Args:
            ahead: steps of this slice that `envs.steps` does not count yet.
        """
        command = self._commands[part.part]
        for at, value in enumerate((ahead, count, row), self._varying):
            command.set_param_at_index(at, value)
        command.launch(self._envs._stream())
