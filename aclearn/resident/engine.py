"""Many copies of a resident environment on one device, and their rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.errors import ConfigError, EnvironmentFailure, words_of
from aclearn.resident import kernels
from aclearn.resident.buffers import Buffers
from aclearn.resident.environment import ResidentEnv
from aclearn.resident.sampling import sampler_of
from aclearn.resident.slices import Slice, Slices
from aclearn.resident.warp_setup import wp
from aclearn.types import EpisodeCohort
from aclearn.types.bounds import LARGEST_NUMBER

#: Bytes of an environment besides its state: length, return and end of its episode, number of
#: episodes, the last return, and an action.
_BYTES = 40
#: Share of the free memory that environments may take.
_MOST_MEMORY = 0.8


@dataclass(frozen=True)
class EpisodeSums:
    """Sums over the episodes that ended, and over resets.

    Attributes:
        returns: sum of their returns.
        resets: steps that began an episode and are not valid.
    """

    episodes: int
    returns: float
    resets: int


class ResidentEnvs:
    """N environments that step together on one device; use by one thread.

    Resets are at the next step (see `kernels`). What environment i draws depends on the seed, i and
    the number of steps since the start only: not on N, the device or the threads.

    Args:
        envs: N.
        device: "auto", "cpu", "cuda" or "cuda:N".
        seed: of everything that is drawn.
        threads: of the CPU; None: one for each core.
        squash: as `env.squash_actions`.
        steps: T, of the buffers.
        more_bytes: that others will need for each environment on the device, by what needs them.

    Attributes:
        buffers: the last steps.
        steps: number of the next step since the start.

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
        seed: int = 0,
        threads: int | None = None,
        squash: bool = False,
        steps: int = 1,
        config: Mapping[str, Any] | None = None,
        more_bytes: Mapping[str, int] | None = None,
    ) -> None:
        self.env, self.num_envs, self.steps = env, envs, 0
        self.device = resident_device(device)
        self.spec = env.spec(squash=squash)
        self.sampler = sampler_of(self.spec.action)
        self._warp_device = str(self.device) if self.device.type == "cuda" else "cpu"
        check_memory(env, envs=envs, steps=steps, device=self.device, more=more_bytes or {})
        self.params = env.configured(self._warp_device, config or {})
        self.slices = Slices(envs, self.device, threads)
        self.buffers = Buffers.empty(
            env, self.spec.action, steps=steps, envs=envs, device=self.device
        )
        self._arrays = self.buffers.arrays(env, self.sampler)
        self._states = wp.zeros(envs, dtype=env.state, device=self._warp_device)
        self._running = {
            "lengths": torch.zeros(envs, dtype=torch.int32, device=self.device),
            "returns": torch.zeros(envs, device=self.device),
            "ended": torch.zeros(envs, dtype=torch.bool, device=self.device),
            "episodes": torch.zeros(envs, dtype=torch.int32, device=self.device),
            "last_returns": torch.zeros(envs, device=self.device),
        }
        rows = len(self.slices.all) * kernels.SPREAD
        self._statistics = torch.zeros(
            rows, kernels.STATISTICS, dtype=torch.float64, device=self.device
        )
        # an episode of the longest length, and a rollout, are within the ring
        self._cohort_steps = max(steps, -(-(env.time_limit + steps) // (kernels.COHORTS - 4)))
        self._cohorts = torch.zeros(
            rows, kernels.COHORTS, kernels.COHORT_SUMS, dtype=torch.float64, device=self.device
        )
        self._next_cohort = 0  # the first that was not taken
        self._first_whole = 0  # of earlier ones some episodes are missing
        self._out_of_range_at = torch.zeros(1, dtype=torch.int64, device=self.device)
        # seed and `steps` for kernels: in memory, since a captured launch keeps its other arguments
        self._seed = torch.full((1,), seed, dtype=torch.int32, device=self.device)
        self._clock = torch.zeros(1, dtype=torch.int32, device=self.device)
        self._reset = self._load(kernels.reset_kernel(env))
        self._known_stream: Any = None
        self._steps_given: Rollout | None = None
        self._given: Tensor | None = None

    def reset(self, seed: int | None = None) -> Tensor:
        """First observations `[N, D]` of a new episode in every environment.

        Args:
            seed: of everything that is drawn from now on; None: the one before.
        """
        if seed is not None:
            self._seed.fill_(seed)
        for tensor in self._running.values():
            tensor.zero_()
        self._cohorts.zero_()
        self._next_cohort = self._first_whole = self.steps // self._cohort_steps
        self._observe(begins=True)
        return self.buffers.observations[-1]

    def advance(self, count: int) -> None:
        """Count steps that were made in every environment."""
        self.steps += count
        self._clock += count

    def carry_over(self) -> None:
        """Copy the last row of the observations to the first, where the next rollout begins."""
        self.buffers.observations[0].copy_(self.buffers.observations[-1])

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One step; returns observations, rewards, terminated and truncated.

        The tensors are the buffers' own: the next step overwrites them. The step after an end
        ignores its action and returns the first observation of the next episode, with reward 0.

        Args:
            actions: as sampled, `[N]` int64, or `[N, n]` int64 or float32, on the device.

        Raises:
            ValueError: another shape.
        """
        if self._steps_given is None or self._given is None:
            given = torch.zeros_like(self.buffers.actions[:1])
            chooser = kernels.given_chooser(self.env, self.sampler)
            source = chooser.source()
            source.actions = wp.from_torch(given, dtype=self.sampler.sampled)
            self._given, self._steps_given = given, Rollout(self, chooser, source)
        if actions.shape != self._given.shape[1:]:
            expected = list(self._given.shape[1:])
            raise ValueError(f"actions: expected shape {expected}, got {list(actions.shape)}")
        self._given[0].copy_(actions)
        self._steps_given.run(1)
        b = self.buffers
        return b.observations[1], b.rewards[0], b.terminated[0], b.truncated[0]

    def uniform_rollout(self, *, recorded: bool = True) -> Rollout:
        """A rollout of uniform actions; without a record it may be longer than the buffers."""
        chooser = kernels.uniform_chooser(self.env, self.sampler)
        return Rollout(self, chooser, chooser.source(), recorded=recorded)

    def take_sums(self) -> EpisodeSums:
        """The sums since the last call; waits for the device.

        Raises:
            EnvironmentFailure: a reward or an observation was out of range.
        """
        sums = self._statistics.cpu().numpy().copy()
        self._statistics.zero_()
        total = sums.sum(0)
        if bad := int(total[kernels.OUT_OF_RANGE]):
            step, env = divmod(int(self._out_of_range_at), 2**kernels.STEP_BITS)
            self._out_of_range_at.zero_()
            raise EnvironmentFailure(
                f"resident environment {self.env.name}: a reward or an observation is NaN or "
                f"beyond {LARGEST_NUMBER:g} ({bad} steps, such as step {step} of environment {env}"
                f"{self._wrong_number(env)}); mend it or scale it in the environment"
            )
        return EpisodeSums(
            int(total[kernels.EPISODES]),
            float(total[kernels.RETURNS]),
            int(total[kernels.RESETS]),
        )

    def _wrong_number(self, env: int) -> str:
        """The first recorded number of an environment that is out of range, for a message."""
        recorded = {"reward": self.buffers.rewards, "observation": self.buffers.observations}
        for name, rows in recorded.items():
            wrong = rows[:, env][~(rows[:, env].abs() <= LARGEST_NUMBER)]
            if len(wrong):
                return f": {name} {float(wrong[0]):g}"
        return ""  # not recorded, or clipped

    def take_cohorts(self) -> list[EpisodeCohort]:
        """The episodes by their first steps, as far as all have ended; waits for the device.

        `begun_s` is the number of a step. Call it after every rollout, which has at most T steps.
        """
        until = self._oldest_cohort()
        numbers = range(self._next_cohort, until)
        if not numbers:
            return []
        places = [number % kernels.COHORTS for number in numbers]
        sums = self._cohorts[:, places].sum(0).cpu().numpy()
        self._cohorts[:, places] = 0.0
        self._next_cohort = until
        return [
            EpisodeCohort(
                float(number * self._cohort_steps), int(ended), float(returns), int(steps)
            )
            for number, (ended, returns, steps) in zip(numbers, sums, strict=True)
            if ended and number >= self._first_whole
        ]

    def _oldest_cohort(self) -> int:
        """Number of the cohort of the oldest running episode."""
        running = self._running["lengths"].masked_fill(self._running["ended"], 0)
        return (self.steps - int(running.max())) // self._cohort_steps

    def discard_sums(self) -> None:
        """Forget the sums since the last call of `take_sums`."""
        self._statistics.zero_()
        self._out_of_range_at.zero_()

    def last_returns(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Number of ended episodes of each environment, and the return of its last one; copies."""
        ended, returns = (self._running[name].cpu() for name in ("episodes", "last_returns"))
        return ended.numpy().copy(), returns.numpy().copy()

    def state(self) -> NDArray[Any]:
        """A copy of the state of every environment `[N]`, a structured array."""
        self._wait()
        copied: NDArray[Any] = self._states.numpy().copy()
        return copied

    def set_state(self, state: NDArray[Any]) -> None:
        """Replace the state of every environment."""
        self._wait()
        self._states.assign(state)
        self._wait()

    def state_field(self, name: str) -> Tensor:
        """An int32 field of every environment's state, `[N]`: what kernels write is seen here."""
        layout = np.dtype(self.env.state.numpy_dtype())
        assert layout.fields is not None
        view = wp.array(
            ptr=self._states.ptr + int(layout.fields[name][1]),
            dtype=wp.int32,
            shape=(self.num_envs,),
            strides=(layout.itemsize,),
            device=self._warp_device,
        )
        field: Tensor = wp.to_torch(view)
        return field

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """All that a later `restore` continues from, by name."""
        state = np.frombuffer(self.state().tobytes(), np.uint8)
        running = {name: tensor.cpu().numpy().copy() for name, tensor in self._running.items()}
        return {
            "state": state,
            **running,
            "steps": np.array(self.steps, np.int64),
            "seed": self._seed.cpu().numpy().copy(),
            "cohorts": self._cohorts.sum(0).cpu().numpy(),
            "cohort_steps": np.array(
                [self._cohort_steps, self._next_cohort, self._first_whole], np.int64
            ),
        }

    def restore(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a `snapshot` of as many environments.

        Raises:
            ValueError: it does not fit.
        """
        if saved["lengths"].shape != (self.num_envs,):
            raise ValueError(f"envs: expected {self.num_envs}, got {len(saved['lengths'])}")
        present = self.state()
        self.set_state(np.frombuffer(saved["state"].tobytes(), present.dtype))
        for name, tensor in self._running.items():
            tensor.copy_(torch.from_numpy(np.array(saved[name])))
        self.steps = int(saved["steps"])
        self._clock.fill_(self.steps)
        self._seed.copy_(torch.from_numpy(np.array(saved["seed"])))
        self._cohorts.zero_()
        steps, self._next_cohort, self._first_whole = map(int, saved["cohort_steps"])
        if steps == self._cohort_steps:
            self._cohorts[0] = torch.from_numpy(np.array(saved["cohorts"]))
        else:  # of another rollout: episodes count that begin later
            self._next_cohort = self._oldest_cohort()
            self._first_whole = -(-self.steps // self._cohort_steps)
        self._observe(begins=False)

    def close(self) -> None:
        """End the threads."""
        self.slices.close()

    def _observe(self, *, begins: bool) -> None:
        """Write the present observations into the last row of the buffers."""
        row = len(self.buffers.rewards)
        seed = int(self._seed)
        given = [self._states, self.params, self._arrays[0], seed, self.steps, begins, row]
        self._launch(self._reset, self.num_envs, given).launch(self._stream())

    def _load(self, kernel: Any) -> Any:
        try:
            wp.load_module(kernel.module, device=self._warp_device)
        except Exception as error:
            raise EnvironmentFailure(
                f"resident environment {self.env.name}: Warp cannot compile it: {words_of(error)}"
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

    def _wait(self) -> None:
        """Wait for the device: Warp copies to and from the host in a stream of its own."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class Rollout:
    """Launches of one kernel on the environments of `envs`, whose actions `chooser` chooses."""

    def __init__(
        self, envs: ResidentEnvs, chooser: kernels.Chooser, source: Any, *, recorded: bool = True
    ) -> None:
        self._envs, self._recorded = envs, recorded
        kernel = envs._load(
            kernels.rollout_kernel(envs.env, envs.sampler, chooser, recorded=recorded)
        )
        arrays = [wp.from_torch(tensor) for tensor in envs._running.values()]
        cohorts = [wp.from_torch(envs._cohorts), envs._cohort_steps]
        sums = [wp.from_torch(envs._statistics), *cohorts, wp.from_torch(envs._out_of_range_at)]
        fixed = [envs._states, *arrays, *sums, envs.params, source]
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


def check_memory(
    env: ResidentEnv, *, envs: int, steps: int, device: torch.device, more: Mapping[str, int]
) -> None:
    """Check that the environments, their buffers and `more` fit into the free memory.

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
    step = Buffers.bytes_per_step(env, env.spec().action)
    terms = {
        "states": _BYTES + wp.types.type_size_in_bytes(env.state),
        # one more row: the last observation
        f"{steps} recorded steps": 4 * env.observation_size + steps * step,
        **more,
    }
    each = sum(terms.values())
    fit = int(free * _MOST_MEMORY) // each
    if envs > fit:
        largest = sorted(terms.items(), key=lambda term: -term[1])
        named = ", ".join(f"{name} {envs * size / 2**30:.1f}" for name, size in largest)
        raise ConfigError(
            f"resident.envs: {envs} environments need {envs * each / 2**30:.1f} GiB of {device} "
            f"({named}), which has {free / 2**30:.1f} GiB free; at most {fit} fit"
        )
