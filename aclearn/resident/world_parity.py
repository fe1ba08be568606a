"""Does a world of several agents follow its reference? As `parity`, agent by agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from aclearn.errors import ArgumentError
from aclearn.resident.differences import (
    Arrays,
    Differences,
    Fields,
    ParityReport,
    moved_states,
    uniform_actions,
)
from aclearn.resident.world import ResidentWorld
from aclearn.resident.worlds import ByKind, ResidentWorlds, WorldStep


class WorldReferenceStep(NamedTuple):
    """What one step of M worlds of A agents reached.

    Attributes:
        state: fields to compare, as `WorldReference.step` gets them.
        observations: kind → `[M, A, D]` of its A agents. Only those of agents that took part in the
            step are compared.
        rewards: `[M, A]` of all agents.
        terminated: `[M, A]`, of an agent that left or whose world's episode ended. As the rewards,
            it is compared for agents that took part in the step.
        truncated: `[M, A]`, by the time limit; None: not compared.
        masks: kind → `[M, A, W]`, compared where the agent can act next; None: not compared.
    """

    state: Fields
    observations: Fields
    rewards: Arrays
    terminated: Arrays
    truncated: Arrays | None = None
    masks: Fields | None = None


class WorldReference(Protocol):
    """Another implementation of a world.

    Attributes:
        time_limit: agent steps of its longest episode.
    """

    time_limit: int

    def step(self, environments: Arrays, state: Fields, actions: Fields) -> WorldReferenceStep:
        """One step of M worlds from these states.

        Args:
            environments: `[M]`, their numbers, for parameters of their own.
            state: the resident fields of worlds `[M]` and agents `[M, A]`, integers and float32,
                and `in_game` `[M, A]`.
            actions: kind → `[M, A, …]`, as `ActionSpec.to_env` gives them.
        """


class PettingZooReference:
    """A parallel environment of PettingZoo with the same names of agents as a reference.

    Its masks are the `action_mask` of its infos. Its state is not compared.

    Args:
        env: the environment, which is reset once.
        set_state: `(env, state)` puts a state into it: fields of one world by name, arrays `[A]`
            for agents. `env.agents` are those in the game then.

    Raises:
        ArgumentError: the agents have other names.
    """

    def __init__(
        self,
        world: ResidentWorld,
        env: Any,
        set_state: Callable[[Any, Mapping[str, Any]], None],
        *,
        time_limit: int,
    ) -> None:
        if set(map(str, env.possible_agents)) != set(world.agents):
            raise ArgumentError(
                f"reference of {world.name}: its agents are {env.possible_agents}, expected "
                f"{world.agents}"
            )
        self.time_limit = time_limit
        self._world, self._env, self._set_state = world, env, set_state
        self._by_name = {str(agent): agent for agent in env.possible_agents}
        env.reset(seed=0)

    def step(self, environments: Arrays, state: Fields, actions: Fields) -> WorldReferenceStep:
        """Step one world after another."""
        world, M = self._world, len(environments)
        sizes = {kind.name: (M, len(kind.agents)) for kind in world.kinds}
        shown = {k.name: np.zeros((*sizes[k.name], k.observation_size)) for k in world.kinds}
        masks = {
            k.name: np.zeros((*sizes[k.name], k.spec().action.mask_width), bool)
            for k in world.kinds
            if k.mask is not None
        }
        rewards, terminated, truncated = np.zeros((3, M, len(world.agents)))
        places = [
            (self._by_name[name], kind, j)
            for kind in world.kinds
            for j, name in enumerate(kind.agents)
        ]
        for m in range(M):
            one = {name: values[m] for name, values in state.items()}
            playing = {a: place for a, place in enumerate(places) if one["in_game"][a]}
            self._env.agents = [agent for agent, _, _ in playing.values()]
            self._set_state(self._env, one)
            acting = {agent: actions[kind.name][m, j] for agent, kind, j in playing.values()}
            seen, gained, over, cut, infos = self._env.step(acting)
            for a, (agent, kind, j) in playing.items():
                shown[kind.name][m, j] = seen[agent]
                rewards[m, a], terminated[m, a] = gained[agent], over[agent]
                truncated[m, a] = cut[agent]
                if kind.mask is not None:
                    masks[kind.name][m, j] = infos[agent]["action_mask"]
        return WorldReferenceStep(
            {}, shown, rewards, terminated.astype(bool), truncated.astype(bool), masks
        )


class ResidentWorldReference:
    """This world on another device as a reference; its step must draw nothing."""

    def __init__(self, world: ResidentWorld, device: str, **config: Any) -> None:
        self.time_limit = world.time_limit
        self._world, self._device, self._config = world, device, config
        self._made: ResidentWorlds | None = None

    def step(self, environments: Arrays, state: Fields, actions: Fields) -> WorldReferenceStep:
        """The actions lie within their bounds already."""
        made, most = self._made, int(environments.max()) + 1
        if made is None or most > made.num_envs:
            if made is not None:
                made.close()
            made = ResidentWorlds(self._world, envs=most, device=self._device, config=self._config)
            self._made = made
        made.reset()
        for name, values in state.items():
            field = made.data[name]
            field[environments] = torch.from_numpy(np.asarray(values)).to(field)
        sampled = {}
        for rows in made.kinds:
            given = actions[rows.name]
            flat = given.reshape(-1, *given.shape[2:])
            of_kind = rows.by_agent(torch.zeros_like(rows.buffers.actions[0]))
            taken = torch.from_numpy(rows.spec.action.from_env(list(flat))).to(of_kind)
            of_kind[environments] = taken.view(*given.shape[:2], *taken.shape[1:])
            sampled[rows.name] = of_kind
        step = made.step(_of_engine(sampled))
        found = _found(made, step, _numpy(made.data["in_game"]))
        assert found.masks is not None
        return WorldReferenceStep(
            _rows(found.state, environments),
            _rows(found.observations, environments),
            found.rewards[environments],
            found.terminated[environments],
            None,  # its episodes have just begun
            _rows(found.masks, environments),
        )


def check_world(
    world: ResidentWorld,
    reference: WorldReference,
    differences: Differences,
    *,
    envs: int,
    seed: int,
    device: str,
    max_steps: int,
    config: Mapping[str, Any],
) -> ParityReport:
    """Compare each step of `envs` worlds with `reference`; see `check_resident`."""
    rng = np.random.default_rng(seed)
    made = ResidentWorlds(world, envs=envs, device=device, seed=seed, config=config)
    check = _WorldCheck(world, reference, differences)
    try:
        made.reset()
        playing, over = np.ones((envs, made.agents), bool), np.zeros(envs, bool)
        for at in range(max_steps):
            before = _state(made) | {"in_game": playing}
            sampled, actions = _uniform(made, rng)
            step = made.step(_of_engine(sampled))
            live = np.flatnonzero(~over)
            over, playing = _numpy(step.terminated | step.truncated), _numpy(step.in_game)
            if len(live):
                found = _found(made, step, before["in_game"])
                check.compare(at, live, before, actions, found, playing[live])
        episodes = made.take_sums().episodes
    finally:
        made.close()
    return ParityReport(check.steps, episodes, check.excluded, dict(differences.largest))


class _WorldCheck:
    def __init__(
        self, world: ResidentWorld, reference: WorldReference, differences: Differences
    ) -> None:
        self._world, self._reference, self._differences = world, reference, differences
        self.steps = self.excluded = 0

    def compare(
        self,
        at: int,
        live: Arrays,
        before: Fields,
        actions: Fields,
        found: WorldReferenceStep,
        playing: Arrays,
    ) -> None:
        """Compare one step of the worlds `live`; other arrays have a row for each world.

        Args:
            playing: `[M, A]` of the live ones, the agents that can act next.
        """
        names, differences = self._world.agents, self._differences
        before, actions = _rows(before, live), _rows(actions, live)
        expected = self._reference.step(live, before, actions)

        def where(row: int, agent: int | None = None) -> str:
            of_agent = "" if agent is None else f"agent {names[agent]} of "
            return f"{of_agent}environment {int(live[row])} after step {at}"

        terminated = found.terminated[live]
        ends = np.asarray(expected.terminated, bool) & before["in_game"]
        same = (ends == terminated).all(1)
        for row in np.flatnonzero(~same).tolist():
            of_row = slice(row, row + 1)
            one, taken = _rows(before, of_row), _rows(actions, of_row)
            if not self._at_threshold(live[of_row], one, taken, terminated[row]):
                a = int(np.flatnonzero(ends[row] != terminated[row])[0])
                raise differences.disagreement(
                    "terminated", terminated[row, a], ends[row, a], where(row, a)
                )
        self.excluded += int((~same).sum())
        self.steps += int(same.sum())
        took_part = same[:, None] & before["in_game"]
        for name, values in expected.state.items():
            mine = found.state[name][live]
            by_agent = np.ndim(mine) > 1
            counts = np.broadcast_to(same[:, None], took_part.shape) if by_agent else same
            differences.compare(name, mine, values, counts=counts, where=where)
        differences.compare(
            "reward", found.rewards[live], expected.rewards, counts=took_part, where=where
        )
        if expected.truncated is not None:
            assert found.truncated is not None
            cut = found.truncated[live], np.asarray(expected.truncated, bool) & ~ends
            differences.compare("truncated", *cut, counts=took_part, where=where)
        first = 0
        for kind in self._world.kinds:
            agents = slice(first, first + len(kind.agents))

            def of_kind(row: int, j: int, first: int = first) -> str:
                return where(row, first + j)

            for i in range(kind.observation_size):
                differences.compare(
                    f"observation[{i}]",
                    found.observations[kind.name][live, :, i],
                    expected.observations[kind.name][..., i],
                    counts=took_part[:, agents],
                    where=of_kind,
                )
            if expected.masks is not None and kind.name in expected.masks:
                assert found.masks is not None
                differences.compare(
                    "mask",
                    found.masks[kind.name][live],
                    np.asarray(expected.masks[kind.name], bool),
                    counts=took_part[:, agents] & playing[:, agents],
                    where=of_kind,
                )
            first += len(kind.agents)

    def _at_threshold(
        self, environment: Arrays, state: Fields, actions: Fields, answer: Arrays
    ) -> bool:
        took_part = state["in_game"][0]
        return any(
            bool((reached.terminated[0] == answer)[took_part].all())
            for moved in moved_states(state, self._differences)
            for reached in (self._reference.step(environment, moved, actions),)
        )


def _uniform(made: ResidentWorlds, rng: np.random.Generator) -> tuple[dict[str, Tensor], Fields]:
    """Allowed actions by kind, as sampled and as the worlds take them, `[N, A, …]`."""
    sampled, taken = {}, {}
    for rows in made.kinds:
        spec, masks = rows.spec.action, rows.buffers.masks
        count = made.num_envs * rows.agents
        given = uniform_actions(spec, count, rng, None if masks is None else _numpy(masks[-1]))
        sampled[rows.name] = rows.by_agent(torch.from_numpy(given).to(made.device))
        in_env = np.asarray(spec.to_env(given))
        taken[rows.name] = in_env.reshape(made.num_envs, rows.agents, *in_env.shape[1:])
    return sampled, taken


def _found(made: ResidentWorlds, step: WorldStep, took_part: Arrays) -> WorldReferenceStep:
    """What the resident worlds reached, in the form of a reference."""
    left = took_part & ~_numpy(step.in_game)
    over, cut = (_numpy(flags)[:, None] for flags in (step.terminated, step.truncated))
    return WorldReferenceStep(
        _state(made),
        _by_kind(made, step.observations),
        np.concatenate([*_by_kind(made, step.rewards).values()], 1),
        took_part & (left | over),
        took_part & ~left & cut,
        _by_kind(made, made.masks()),
    )


def _state(made: ResidentWorlds) -> dict[str, Arrays]:
    return {name: _numpy(field) for name, field in made.data.items() if name != "in_game"}


def _of_engine(by_kind: Mapping[str, Tensor]) -> ByKind:
    return by_kind if len(by_kind) > 1 else next(iter(by_kind.values()))


def _by_kind(made: ResidentWorlds, tensors: ByKind) -> Fields:
    if isinstance(tensors, Tensor):
        return {made.kinds[0].name: _numpy(tensors)}
    return {name: _numpy(tensor) for name, tensor in tensors.items()}


def _rows(fields: Fields, rows: Any) -> Fields:
    return {name: values[rows] for name, values in fields.items()}


def _numpy(tensor: Tensor) -> Arrays:
    """A copy."""
    copied: Arrays = tensor.cpu().numpy().copy()
    return copied
