"""Many copies of a world of agents on one device, and their rollouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from aclearn.resident.buffers import Buffers
from aclearn.resident.network import LONGEST
from aclearn.resident.place import check_memory, resident_device
from aclearn.resident.resident import BYTES, Choosers, Resident, Steps, given_chooser
from aclearn.resident.rows import Rows
from aclearn.resident.sampling import sampler_of
from aclearn.resident.slices import Slice
from aclearn.resident.structs import Structs
from aclearn.resident.warp_setup import wp
from aclearn.resident.world import ResidentWorld
from aclearn.resident.world_kernels import Clock, Flags, Record, Sums, WorldKernels

#: What varies from launch to launch: steps since the last `advance`, the rows of what the agents
#: saw and reached, and the row of the rest.
_VARYING = ("ahead", "seen", "reached", "row")
#: Of all agents, or by name of their kind where there are several.
ByKind = Tensor | Mapping[str, Tensor]


class WorldStep(NamedTuple):
    """What a step of N worlds of A agents reached; the tensors are the engine's own.

    Attributes:
        observations: `[N, A, D]` float32.
        rewards: `[N, A]` float32; 0 of agents that are out of the game.
        terminated, truncated: `[N]` bool, of the world's episode.
        in_game: `[N, A]` bool, the agents that may act next, or could if the episode had not ended.
    """

    observations: ByKind
    rewards: ByKind
    terminated: Tensor
    truncated: Tensor
    in_game: Tensor


class ResidentWorlds(Resident):
    """N worlds of A agents each.

    Args:
        envs: N.
        device: "auto", "cpu", "cuda" or "cuda:N".
        seed: of everything that is drawn.
        threads: of the CPU; None: one for each core.
        squash: as `env.squash_actions`.
        steps: T, of the buffers.
        more_bytes: that others will need for each environment on the device, by what needs them.
        accounts: of each agent, which sums of episodes it belongs to; None: all to one.
        observe: make observations; otherwise they are zeros, `[N, A, 1]`, and cost nothing.

    Raises:
        ConfigError: N is below 1 or too large for the memory, the device is not there, or the
            parameters do not fit.
        EnvironmentFailure: Warp cannot compile the environment.
    """

    def __init__(
        self,
        env: ResidentWorld,
        *,
        envs: int,
        device: str = "auto",
        seed: int = 0,
        threads: int | None = None,
        squash: bool = False,
        steps: int = 1,
        config: Mapping[str, Any] | None = None,
        more_bytes: Mapping[str, int] | None = None,
        accounts: Sequence[int] | None = None,
        observe: bool = True,
    ) -> None:
        on, A = resident_device(device), len(env.agents)
        self.env, self._draw = env, env.draw
        widths = [kind.observation_size if observe else 1 for kind in env.kinds]
        check_memory(_bytes(env, widths, steps) | dict(more_bytes or {}), envs=envs, device=on)
        accounts = accounts or [0] * A
        super().__init__(
            env.name,
            envs=envs,
            agents=A,
            device=on,
            seed=seed,
            threads=threads,
            steps=steps,
            time_limit=env.time_limit,
            accounts=max(accounts) + 1,
        )
        self.params = env.configured(self._warp_device, envs, config or {})
        self.kinds = tuple(self._rows_of_kinds(widths, squash=squash, steps=steps))
        self._worlds = Structs(env.world, (envs,), on)
        self._agents = Structs(env.agent, (envs, A), on)
        self._flags = {
            name: torch.zeros((envs, A)[:axes], dtype=dtype, device=on)
            for name, axes, dtype in _flag_fields()
        }
        self.data = {
            **self._worlds.fields,
            **self._agents.fields,
            "in_game": self._flags["in_game"],
        }
        self._accounts = torch.tensor(accounts, dtype=torch.int32, device=on)
        self._kernels = WorldKernels(env, together=on.type == "cpu")
        flags, clock = Flags(), Clock()
        for name, tensor in self._flags.items():
            setattr(flags, name, wp.from_torch(tensor))
        clock.seed, clock.steps = wp.from_torch(self._seed), wp.from_torch(self._clock)
        self._clock_arrays = clock
        #: Arguments of every kernel after the slice.
        self._state = [self._worlds.array, self._agents.array, flags, self.params]
        self._reset = self._load(self._kernels.reset())
        self._prepare = None if env.prepare is None else self._load(self._kernels.prepare())
        self._interact = self._load(self._kernels.interact())
        self._step = self._load(self._kernels.step())
        self._shows = [
            self._load(self._kernels.observe(kind, rows.first_agent, shown=observe))
            for kind, rows in zip(env.kinds, self.kinds, strict=True)
        ]
        self._given = [torch.zeros_like(rows.buffers.actions[:1]) for rows in self.kinds]
        self._steps_given: Steps | None = None

    def reset(self, seed: int | None = None) -> ByKind:
        """First observations `[N, A, D]` of a new episode in every environment.

        Args:
            seed: of everything that is drawn from now on; None: the one before.
        """
        self._begin(seed)
        return self._of_kinds(lambda rows: rows.buffers.observations[-1])

    def step(self, actions: ByKind) -> WorldStep:
        """One step; the next one overwrites its tensors.

        The step after an end ignores its actions and returns the first observations of the next
        episode, with rewards 0. So are actions of agents that have left the game ignored. Numbers
        of a Box are clipped at its bounds.

        Args:
            actions: as sampled, `[N, A]` integers, or `[N, A, n]` int64 or float32, on the device;
                by name of the kind where there are several.

        Raises:
            ValueError: another shape, or a choice that there is not.
        """
        if self._steps_given is None:
            self._steps_given = self.rollout(list(map(given_chooser, self.kinds, self._given)))
        for rows, given in zip(self.kinds, self._given, strict=True):
            taken = actions if isinstance(actions, Tensor) else actions[rows.name]
            into = rows.by_agent(given[0])
            if taken.shape != into.shape:
                raise ValueError(
                    f"actions: expected shape {list(into.shape)}, got {list(taken.shape)}"
                )
            into.copy_(taken)
            rows.check_choices(into, self.name)
        self._steps_given.run(1)
        return WorldStep(
            self._of_kinds(lambda rows: rows.buffers.observations[1]),
            self._of_kinds(lambda rows: rows.buffers.rewards[0]),
            self._flags["terminated"],
            self._flags["truncated"],
            self._flags["in_game"] & ~self._flags["left"],
        )

    @property
    def plays_on(self) -> Tensor:
        """`[N, A]` bool, the agents whose episode has not terminated; it may have been cut."""
        flags = self._flags
        return flags["in_game"] & ~flags["left"] & ~flags["terminated"].unsqueeze(1)

    def masks(self) -> ByKind:
        """The choices that the last observations allow, `[N, A, W]` bool; without masks, all."""

        def allowed(rows: Rows) -> Tensor:
            if rows.buffers.masks is not None:
                return rows.buffers.masks[-1]
            width = rows.spec.action.mask_width
            return torch.ones(
                self.num_envs * rows.agents, width, dtype=torch.bool, device=self.device
            )

        return self._of_kinds(allowed)

    @override
    def rollout(self, choosers: Choosers, *, recorded: bool = True) -> Steps:
        return WorldRollout(self, choosers, recorded=recorded)

    @override
    def _memory(self) -> Mapping[str, Tensor]:
        flags = {f"flags/{name}": tensor for name, tensor in self._flags.items()}
        return {"worlds": self._worlds.bytes, "agents": self._agents.bytes, **flags}

    @override
    def _observe(self, *, begins: bool) -> None:
        last = len(self.kinds[0].buffers.rewards)
        stream, N = self._stream(), self.num_envs
        if begins:
            given = [0, *self._state, self._clock_arrays]
            self._launch(self._reset, N, given).launch(stream)
        elif self._prepare is not None:
            self._launch(self._prepare, N, [0, *self._state]).launch(stream)
        for rows, show in zip(self.kinds, self._shows, strict=True):
            given = [0, 0, *self._state, *self._shown(rows), 0, last, 0, False]
            self._launch(show, N * self._kernels.threads(rows.agents), given).launch(stream)

    @override
    def _where(self, row: int) -> str:
        for rows in self.kinds:
            first = self.num_envs * rows.first_agent
            if row < first + self.num_envs * rows.agents:
                environment, agent = divmod(row - first, rows.agents)
                number = rows.buffers.wrong_number(row - first)
                return f"environment {environment}, agent {rows.spec.agent_names[agent]}{number}"
        raise ValueError(f"row: expected one of {self.num_envs * self.agents}, got {row}")

    def _of_kinds(self, tensor: Any) -> ByKind:
        if len(self.kinds) == 1:
            (rows,) = self.kinds
            found: Tensor = rows.by_agent(tensor(rows))
            return found
        return {rows.name: rows.by_agent(tensor(rows)) for rows in self.kinds}

    def _rows_of_kinds(self, widths: Sequence[int], *, squash: bool, steps: int) -> Iterator[Rows]:
        first_agent = 0
        for kind, width in zip(self.env.kinds, widths, strict=True):
            spec = kind.spec(squash=squash)
            buffers = Buffers.empty(
                width,
                spec.action,
                steps=steps,
                rows=self.num_envs * spec.agents,
                device=self.device,
                masked=spec.masked,
            )
            held = width if width <= LONGEST else 1
            yield Rows(kind.name, first_agent, spec, sampler_of(spec.action), buffers, held)
            first_agent += spec.agents

    def _shown(self, rows: Rows) -> list[Any]:
        """Arguments of `WorldKernels.observe`: observations, record, first row, sums, clock."""
        buffers, record, sums = rows.buffers, Record(), Sums()
        for name in ("rewards", "terminated", "truncated", "valid"):
            setattr(record, name, wp.from_torch(getattr(buffers, name)))
        if buffers.masks is not None:
            record.masks = wp.from_torch(buffers.masks)
        episodes = self.episodes
        for name, tensor in {
            **episodes.running,
            "statistics": episodes.statistics,
            "cohorts": episodes.cohorts,
            "out_of_range_at": episodes.out_of_range_at,
            "accounts": self._accounts,
        }.items():
            setattr(sums, name, wp.from_torch(tensor))
        sums.cohort_steps = episodes.cohort_steps
        first_row = self.num_envs * rows.first_agent
        observations = wp.from_torch(buffers.observations)
        return [observations, record, first_row, sums, self._clock_arrays]


class WorldRollout:
    """Launches of the kernels of one step after another."""

    def __init__(
        self,
        worlds: ResidentWorlds,
        choosers: Choosers,
        *,
        recorded: bool = True,
    ) -> None:
        self._worlds, self._recorded = worlds, recorded
        self._last = len(worlds.kinds[0].buffers.rewards)
        acts = []
        kinds = zip(worlds.env.kinds, worlds.kinds, choosers, strict=True)
        for kind, rows, (chooser, source) in kinds:
            kernel = worlds._kernels.act(kind, rows, chooser)
            acts.append((rows.agents, worlds._load(kernel), [source, *rows.arrays()[:3]]))
        self._slices = [self._commands(part, acts) for part in worlds.slices.all]

    def _commands(self, part: Slice, acts: list[Any]) -> list[tuple[Any, list[tuple[int, str]]]]:
        """Launches of a slice's step in order, and the places of what varies in each."""
        worlds = self._worlds
        state, clock = worlds._state, worlds._clock_arrays

        threads = worlds._kernels.threads
        made: list[tuple[Any, list[tuple[int, str]]]] = []

        def add(kernel: Any, each: int, *given: Any) -> None:
            arguments = [part.first, *given]
            varying = [(at, value) for at, value in enumerate(arguments) if isinstance(value, str)]
            for at, _ in varying:
                arguments[at] = 0
            made.append((worlds._launch(kernel, part.size * each, arguments), varying))

        for agents, kernel, given in acts:
            add(kernel, threads(agents), *state, *given, clock, "ahead", "seen", "row")
        if worlds._prepare is not None:
            add(worlds._prepare, 1, *state)
        add(worlds._interact, threads(worlds.agents), *state)
        add(worlds._step, 1, *state, clock, "ahead")
        for rows, kernel in zip(worlds.kinds, worlds._shows, strict=True):
            shown = worlds._shown(rows)
            varying = ("ahead", "reached", "row")
            add(kernel, threads(rows.agents), part.part, *state, *shown, *varying, True)
        return made

    def run(self, count: int) -> None:
        """`count` steps of every environment, recorded from the first row of the buffers."""
        if self._recorded:
            self._worlds.carry_over()
        self._worlds.slices.run(lambda part: self.run_slice(part, count, row=0))
        self._worlds.advance(count)

    def run_slice(self, part: Slice, count: int, *, row: int, ahead: int = 0) -> None:
        """Steps of one slice; the caller calls `envs.advance` with all steps afterwards.

        Args:
            ahead: steps of this slice that `envs.steps` does not count yet.
        """
        stream, T = self._worlds._stream(), self._last
        for k in range(count):
            now = {"ahead": ahead + k, "seen": T, "reached": T, "row": T - 1}
            if self._recorded:
                now |= {"seen": row + k, "reached": row + k + 1, "row": row + k}
            for command, varying in self._slices[part.part]:
                for place, name in varying:
                    command.set_param_at_index(place, now[name])
                command.launch(stream)


def _flag_fields() -> Any:
    """Name, axes and dtype of the arrays of `Flags`."""
    dtypes = {wp.bool: torch.bool, wp.float32: torch.float32, wp.int32: torch.int32}
    flags: Any = Flags  # a struct of Warp
    for name, var in flags.vars.items():
        yield name, var.type.ndim, dtypes[var.type.dtype]


def _bytes(env: ResidentWorld, widths: Sequence[int], steps: int) -> dict[str, int]:
    """Bytes of one environment on the device, by what needs them.

    Args:
        widths: of the observations, by kind.
    """
    terms: dict[str, int] = {}
    for kind, width in zip(env.kinds, widths, strict=True):
        A, action = len(kind.agents), kind.spec().action
        record = Buffers.bytes_of(width, action, steps=steps)
        masks = 0 if kind.mask is None else (steps + 1) * action.mask_width
        for name, size in record.items():
            terms[name] = terms.get(name, 0) + A * (size + masks)
        given = (4 if action.numbers else 8) * prod(action.shape)
        terms["actions given"] = terms.get("actions given", 0) + A * given
    structs = wp.types.type_size_in_bytes(env.world)
    structs += len(env.agents) * (BYTES + wp.types.type_size_in_bytes(env.agent))
    flags = sum(
        dtype.itemsize * (len(env.agents) if axes == 2 else 1) for _, axes, dtype in _flag_fields()
    )
    return {"states": structs + flags, "parameters": env.params_bytes, **terms}
