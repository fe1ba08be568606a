"""Many copies of a resident environment on one device, and their rollouts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from aclearn.errors import ConfigError, EnvironmentFailure, words_of
from aclearn.resident import kernels
from aclearn.resident.buffers import Buffers
from aclearn.resident.environment import Draw, ResidentEnv
from aclearn.resident.episodes import Episodes, EpisodeSums, OutOfRange
from aclearn.resident.rows import Rows
from aclearn.resident.sampling import sampler_of
from aclearn.resident.slices import Slice, Slices
from aclearn.resident.structs import Structs, warp_device
from aclearn.resident.warp_setup import wp
from aclearn.types import EnvSpec, EpisodeCohort
from aclearn.types.bounds import LARGEST_NUMBER

#: Bytes of an environment besides its state: length, return and end of its episode, number of
#: episodes, the last return, and an action.
BYTES = 40
#: Share of the free memory that environments may take.
_MOST_MEMORY = 0.8


#: How the agents of each kind choose: a chooser, and its source.
Choosers = Sequence[tuple[kernels.Chooser, Any]]


class Steps(Protocol):
    """Launches of the kernels of one rollout."""

    def run(self, count: int) -> None:
        """`count` steps of every environment, recorded from the first row of the buffers."""

    def run_slice(self, part: Slice, count: int, *, row: int, ahead: int = 0) -> None:
        """Steps of one slice; the caller calls `envs.advance` with all steps afterwards.

        Args:
            ahead: steps of this slice that `envs.steps` does not count yet.
        """


class Resident(ABC):
    """N environments that step together on one device; use by one thread.

    Resets are at the next step (see `kernels`). What environment i draws depends on the seed, i and
    the number of steps since the start only: not on N, the device or the threads.

    Args:
        name: of the environment, in messages.
        envs: N.
        agents: of an environment; each has a row.
        seed: of everything that is drawn.
        threads: of the CPU; None: one for each core.
        steps: T, of the buffers.
        accounts: number of sums of episodes that are kept apart.

    Attributes:
        groups: of neighbouring environments, each with its own seed.
        steps: number of the next step since the start.
        kinds: the rows of each kind of agents.
        data: the numbers of the state by name: views, which may be written.
    """

    kinds: tuple[Rows, ...]
    data: Mapping[str, Tensor]
    _draw: Draw | None

    def __init__(
        self,
        name: str,
        *,
        envs: int,
        agents: int,
        device: torch.device,
        seed: int | Sequence[int],
        threads: int | None,
        steps: int,
        time_limit: int,
        accounts: int = 1,
    ) -> None:
        self.name, self.num_envs, self.agents, self.steps = name, envs, agents, 0
        self.device, self._warp_device = device, warp_device(device)
        seeds = [seed] if isinstance(seed, int) else list(seed)
        self.groups = len(seeds)
        self.slices = Slices(envs, device, threads, agents=agents)
        self.episodes = Episodes(
            envs * agents,
            parts=len(self.slices.all),
            steps=steps,
            time_limit=time_limit,
            device=device,
            accounts=accounts,
            groups=self.groups,
        )
        # seed and `steps` for kernels: in memory, since a captured launch keeps its other arguments
        self._seed = torch.tensor(seeds, dtype=torch.int32, device=device)
        self._clock = torch.zeros(1, dtype=torch.int32, device=device)
        self._known_stream: Any = None

    @abstractmethod
    def _memory(self) -> Mapping[str, Tensor]:
        """What a snapshot keeps besides the episodes, by name."""

    @abstractmethod
    def _observe(self, *, begins: bool) -> None:
        """Write the present observations into the last row of the buffers.

        Args:
            begins: begin an episode in every environment before.
        """

    @abstractmethod
    def rollout(self, choosers: Choosers, *, recorded: bool = True) -> Steps:
        """Steps whose actions these choose, a chooser and its source for each kind."""

    @abstractmethod
    def _where(self, row: int) -> str:
        """Words for a row, with the first number in it that is out of range."""

    def _begin(self, seed: int | None) -> None:
        """New episodes in every environment."""
        if seed is not None:
            self._seed.fill_(seed)
        self.episodes.begin(self.steps)
        self._observe(begins=True)

    @property
    def spec(self) -> EnvSpec:
        """Of the agents of the only kind."""
        (rows,) = self.kinds
        return rows.spec

    @property
    def buffers(self) -> Buffers:
        """The last steps of the only kind."""
        (rows,) = self.kinds
        return rows.buffers

    def carry_over(self) -> None:
        """Copy the last observations to the first row, where the next rollout begins."""
        for rows in self.kinds:
            rows.buffers.carry_over()

    def uniform_rollout(self, *, recorded: bool = True) -> Steps:
        """A rollout of uniform actions; without a record it may be longer than the buffers."""
        return self.rollout([uniform_chooser(rows) for rows in self.kinds], recorded=recorded)

    def advance(self, count: int) -> None:
        """Count steps that were made in every environment."""
        self.steps += count
        self._clock += count

    def take_sums(self, account: int = 0) -> EpisodeSums:
        """The sums since the last call; waits for the device.

        Raises:
            EnvironmentFailure: a reward or an observation was out of range.
        """
        try:
            return self.episodes.take_sums(account)
        except OutOfRange as error:
            raise EnvironmentFailure(
                f"resident environment {self.name}: a reward or an observation is NaN or beyond "
                f"{LARGEST_NUMBER:g} ({error.count} steps, such as step {error.step} of "
                f"{self._where(error.row)}); mend it or scale it in the environment"
            ) from error

    def take_cohorts(self, account: int = 0) -> list[EpisodeCohort]:
        """The episodes by their first steps, as far as all have ended; waits for the device.

        `begun_s` is the number of a step. Call it after every rollout, which has at most T steps.
        """
        return self.episodes.take_cohorts(self.steps, account)

    def discard_sums(self) -> None:
        """Forget the sums since the last call of `take_sums`."""
        self.episodes.discard_sums()

    def last_returns(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Number of ended episodes of each row, and the return of its last one; copies."""
        return self.episodes.last_returns()

    def snapshot(self, group: int = 0) -> dict[str, NDArray[Any]]:
        """All that a later `restore` of a group continues from, by name."""
        memory = {
            name: tensor[self._rows(tensor, group)].cpu().numpy().copy()
            for name, tensor in self._memory().items()
        }
        return {
            **memory,
            **self.episodes.snapshot(group),
            "steps": np.array(self.steps, np.int64),
            "seed": self._seed[group : group + 1].cpu().numpy().copy(),
        }

    def restore(self, saved: Mapping[str, NDArray[Any]], group: int = 0) -> None:
        """Continue from a `snapshot` of as many environments, at its step.

        Raises:
            ValueError: it does not fit.
        """
        envs = self.num_envs // self.groups
        if saved["lengths"].shape != (envs * self.agents,):
            found = len(saved["lengths"]) // self.agents
            raise ValueError(f"envs: expected {envs}, got {found}")
        for name, tensor in self._memory().items():
            tensor[self._rows(tensor, group)] = torch.from_numpy(np.array(saved[name])).to(tensor)
        self.steps = int(saved["steps"])
        self._clock.fill_(self.steps)
        self._seed[group] = int(saved["seed"][0])
        self.episodes.restore(saved, self.steps, group)
        self._observe(begins=False)

    def picture(self, e: int = 0) -> NDArray[np.uint8]:
        """Environment e now, `[H, W, 3]`.

        Raises:
            EnvironmentFailure: the environment has no `draw`.
        """
        if self._draw is None:
            raise EnvironmentFailure(
                f"resident environment {self.name}: it has no pictures; give it a `draw`"
            )
        return self._draw({name: field[e].cpu().numpy() for name, field in self.data.items()})

    def _rows(self, tensor: Tensor, group: int) -> slice:
        each = len(tensor) // self.groups
        return slice(group * each, (group + 1) * each)

    def close(self) -> None:
        """End the threads."""
        self.slices.close()

    def _load(self, kernel: Any) -> Any:
        try:
            wp.load_module(kernel.module, device=self._warp_device)
        except Exception as error:
            raise EnvironmentFailure(
                f"resident environment {self.name}: Warp cannot compile it: {words_of(error)}"
            ) from error
        return kernel

    def _launch(self, kernel: Any, count: int, inputs: list[Any]) -> Any:
        return wp.launch(kernel, count, inputs, device=self._warp_device, record_cmd=True)

    def _stream(self) -> Any:
        """Torch's current stream, so that kernels and tensor operations stay in order."""
        if self.device.type == "cpu":
            return None
        current = torch.cuda.current_stream(self.device)
        if self._known_stream is None or self._known_stream.cuda_stream != current.cuda_stream:
            self._known_stream = wp.stream_from_torch(current)  # not during a capture
        return self._known_stream


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


def given_chooser(rows: Rows, given: Tensor) -> tuple[kernels.Chooser, Any]:
    """Takes the actions `[1, N·A, …]` that the caller wrote before the launch."""
    chooser = kernels.given_chooser(rows.observation_type, rows.sampler)
    source = chooser.source()
    source.actions = wp.from_torch(given, dtype=rows.sampler.sampled)
    return chooser, source


def uniform_chooser(rows: Rows) -> tuple[kernels.Chooser, Any]:
    """Every choice alike that is allowed."""
    masks, width = rows.buffers.masks, rows.spec.action.mask_width
    if masks is None:
        chooser = kernels.uniform_chooser(rows.observation_type, rows.sampler)
        return chooser, chooser.source()
    chooser = kernels.allowed_chooser(rows.observation_type, rows.sampler, width)
    source = chooser.source()
    source.masks = wp.from_torch(masks)
    return chooser, source


def resident_device(name: str) -> torch.device:
    """The device of `resident.device`.

    Raises:
        ConfigError: it is not there.
    """
    from aclearn.policies.devices import choose_device

    device = choose_device(name, key="resident.device")
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        if not wp.is_device_available(str(device)):
            raise ConfigError(
                f"resident.device: Warp does not see {device}, which torch has; is its driver as "
                "new as CUDA 12?"
            )
    return device


def check_memory(terms: Mapping[str, int], *, envs: int, device: torch.device) -> None:
    """Check that environments fit into the free memory.

    Args:
        terms: bytes of each environment, by what needs them.

    Raises:
        ConfigError: they do not; says what needs how much, and how many fit.
    """
    if envs < 1:
        raise ConfigError(f"resident.envs: expected at least 1 environment, got {envs}")
    free = (
        psutil.virtual_memory().available
        if device.type == "cpu"
        else torch.cuda.mem_get_info(device)[0]
    )
    each = sum(terms.values())
    fit = int(free * _MOST_MEMORY) // each
    if envs > fit:
        largest = sorted(terms.items(), key=lambda term: -term[1])
        named = ", ".join(f"{name} {envs * size / 2**30:.1f}" for name, size in largest)
        raise ConfigError(
            f"resident.envs: {envs} environments need {envs * each / 2**30:.1f} GiB of {device} "
            f"({named}), which has {free / 2**30:.1f} GiB free; at most {fit} fit"
        )
