"""The definition of a world: an environment of several agents that runs where the policy runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gymnasium import spaces

from aclearn.envs.spaces import read_actions
from aclearn.errors import EnvironmentFailure
from aclearn.resident.environment import (
    Draw,
    NoParams,
    check_observations,
    check_time_limit,
    params_of,
)
from aclearn.types import EnvSpec, ObservationSpec


@dataclass(frozen=True)
class AgentKind:
    """Agents with equal spaces.

    Attributes:
        name: of the kind.
        agents: their names.
        move: `(agent, world, a, action, rng, params) → agent`, by an action of its own. It runs for
            all agents at once; a is the agent's number. An action is as of `ResidentEnv.step`.
        observe: `(world, agents, in_game, a, params, row)` writes an observation into `row`, a Warp
            array `[D]` of float32.
        observation_space: a flat Box of float32.
        action_space: as of `ResidentEnv`.
        mask: `(world, agents, in_game, a, params, row)` writes into `row`, a Warp array of bool,
            which choices are allowed; None: all. Until its episode has terminated, an agent needs
            one for each number to choose.
    """

    name: str
    agents: tuple[str, ...]
    move: Any
    observe: Any
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    mask: Any = None

    @cached_property
    def observation_size(self) -> int:
        """D."""
        assert self.observation_space.shape is not None
        return int(self.observation_space.shape[0])

    def spec(self, *, squash: bool = False) -> EnvSpec:
        """Of these agents, for a policy.

        Args:
            squash: as `env.squash_actions`.

        Raises:
            EnvironmentFailure: the actions have no bounds for `squash`.
        """
        return EnvSpec(
            ObservationSpec.plain((self.observation_size,), "float32"),
            read_actions(self.action_space, self.name, squash=squash),
            masked=self.mask is not None,
            agents=len(self.agents),
            agent_names=self.agents,
        )


@dataclass(frozen=True)
class ResidentWorld:
    """A world of A agents as Warp functions; the engine makes kernels of them.

    The functions are called in this order. `agents` and `in_game` are Warp arrays `[A]` of this
    world: the agents' structs, and which of them take part in the step.

    Attributes:
        name: in messages.
        world: a Warp struct: all that changes in an episode and is no agent's, without arrays.
        agent: a Warp struct: all that changes in an episode and is an agent's, without arrays.
        reset_world: `(e, rng, params) → world`, at the begin of an episode; e is the environment's
            number: parameters of its own are rows of an array in `params`.
        reset_agent: `(world, a, rng, params) → agent`, after it.
        interact: `(world, agents, in_game, a, params) → reward, leaves`, after the moves, for all
            agents of the game at once: the reward of agent a, and whether it leaves the game. It
            reads all agents and changes none.
        step_world: `(world, agents, in_game, rewards, left, rng, params) → world, terminated`, once
            a step: counters, ends, and sums over agents. It may change what the arrays hold;
            `rewards` and `left` are those of `interact`. An agent that leaves has its last step.
        kinds: with the agents, whose numbers run through the kinds in their order.
        time_limit: agent steps after which an episode is truncated. One in which nobody is left is
            terminated.
        params: a Warp struct of all that stays the same; it may have arrays.
        make_params: `(device, envs, **config) → params`, with arrays on `device`; None: of zeros.
        params_bytes: of the arrays' rows of one environment, for the estimate of the memory.
        prepare: `(world, agents, in_game, params)`, once a step between `move` and `interact`, and
            once after a reset: fills arrays of `params` that the others read, such as the agents in
            each cell. Theirs is the row of this environment; they are not part of the state.
        draw: a state → picture `[H, W, 3]` uint8; None: there is none. A state has the fields of
            one world by name, those of its agents `[A]`, and `in_game` `[A]`.
        length_key: the keyword that sets `time_limit` where the rules depend on it; nothing else
            may change it then. None: they do not.

    Raises:
        EnvironmentFailure: there is no agent, a name is used twice, a space is not supported, or
            there is no time limit.
    """

    name: str
    world: Any
    agent: Any
    reset_world: Any
    reset_agent: Any
    interact: Any
    step_world: Any
    kinds: tuple[AgentKind, ...]
    time_limit: int
    params: Any = NoParams
    params_bytes: int = 0
    make_params: Callable[..., Any] | None = None
    prepare: Any = None
    draw: Draw | None = None
    length_key: str | None = None

    def __post_init__(self) -> None:
        kinds, agents = [kind.name for kind in self.kinds], self.agents
        for kind in self.kinds:
            if not kind.agents:
                raise EnvironmentFailure(
                    f"resident environment {self.name}: expected at least 1 agent of kind "
                    f"{kind.name}, got 0"
                )
            check_observations(f"{self.name}, {kind.name}", kind.observation_space)
            kind.spec()
        if not agents:
            raise EnvironmentFailure(
                f"resident environment {self.name}: expected at least 1 agent, got 0"
            )
        for what, names in (("kind", kinds), ("agent", agents)):
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise EnvironmentFailure(
                    f"resident environment {self.name}: {what} {twice!r} is there twice; name each "
                    "differently"
                )
        fields = (self.world.vars.keys() & self.agent.vars.keys()) | (
            (self.world.vars.keys() | self.agent.vars.keys()) & {"in_game"}
        )
        if fields:
            raise EnvironmentFailure(
                f"resident environment {self.name}: field {min(fields)!r} is used twice; fields of "
                "world and agent are named by one table, with in_game; rename it"
            )
        check_time_limit(self.name, self.time_limit)

    @cached_property
    def agents(self) -> list[str]:
        """The names of all agents, by number."""
        return [name for kind in self.kinds for name in kind.agents]

    def spec(self, *, squash: bool = False) -> EnvSpec:
        """Of all agents, for policies.

        Args:
            squash: as `env.squash_actions`.

        Raises:
            EnvironmentFailure: the actions have no bounds for `squash`.
        """
        first, *others = kinds = tuple(kind.spec(squash=squash) for kind in self.kinds)
        return replace(
            first,
            agents=len(self.agents),
            agent_names=tuple(self.agents),
            kinds=kinds if others else (),
        )

    def configured(self, device: str, envs: int, config: Mapping[str, Any]) -> Any:
        """The kernels' parameters for these keys of `make_params`.

        Raises:
            ConfigError: a key or a value does not fit.
        """
        make = self.make_params or (lambda device, envs: self.params())
        return params_of(self.name, make, (device, envs), config)
