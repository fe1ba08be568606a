"""What resident environments of one and of several agents have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.errors import EnvironmentFailure, words_of
from aclearn.resident import kernels
from aclearn.resident.buffers import Buffers
from aclearn.resident.environment import Draw
from aclearn.resident.episodes import Episodes, EpisodeSums, OutOfRange
from aclearn.resident.rows import Rows
from aclearn.resident.slices import Slice, Slices
from aclearn.resident.structs import warp_device
from aclearn.resident.warp_setup import wp
from aclearn.types import EnvSpec, EpisodeCohort
from aclearn.types.bounds import LARGEST_NUMBER

#: Bytes of an environment besides its state: length, return and end of its episode, number of
#: episodes, the last return, and an action.
BYTES = 40


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
        if seed is not None:  # the same draws again: they depend on seed, environment and step
            self._seed.fill_(seed)
            self.steps = 0
            self._clock.zero_()
        self.episodes.begin(self.steps)
        # Warp fills parameters in a stream of its own, and steps may be in another one than this
        self._wait()
        self._observe(begins=True)
        self._wait()

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

    def _wait(self) -> None:
        """Wait for all streams of the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _stream(self) -> Any:
        """Torch's current stream, so that kernels and tensor operations stay in order."""
        if self.device.type == "cpu":
            return None
        current = torch.cuda.current_stream(self.device)
        if self._known_stream is None or self._known_stream.cuda_stream != current.cuda_stream:
            self._known_stream = wp.stream_from_torch(current)  # not during a capture
        return self._known_stream


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
