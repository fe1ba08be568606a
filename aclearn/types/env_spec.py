"""Specification of an environment, and one step of a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from aclearn.types.action_spec import ActionSpec
from aclearn.types.observation_form import ObservationForm
from aclearn.types.observation_spec import Observations, ObservationSpec
from aclearn.types.policy_map import agents_by_policy, check_equal_spaces
from aclearn.types.policy_version import DEFAULT_POLICY

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class EnvSpec:
    """The observations and actions of an environment, for a policy.

    Attributes:
        agents: of an environment; each has a row of B.
        agent_names: of these, in the order of the rows; () where the one agent has no name.
        kinds: where agents differ in their spaces, one specification for the agents of each; the
            observation and action of the whole are then those of the first kind.
        own_form: of its observations before they become leaves; None: it shows the leaves.
    """

    observation: ObservationSpec
    action: ActionSpec
    warning: str = ""
    masked: bool = False
    agents: int = 1
    own_form: ObservationForm | None = field(default=None, compare=False)
    agent_names: tuple[str, ...] = ()
    kinds: tuple[EnvSpec, ...] = ()

    @classmethod
    def joint(cls, kinds: Iterable[EnvSpec]) -> EnvSpec:
        """The specification of an environment that has the agents of all these."""
        first, *others = kinds
        names = tuple(name for kind in (first, *others) for name in kind.agent_names)
        return replace(first, agents=len(names), agent_names=names, kinds=(first, *others))

    @property
    def form(self) -> ObservationForm:
        """The environment's own form of observations."""
        return self.own_form or ObservationForm.of_leaves(self.observation)

    def by_policy(self, patterns: Mapping[str, Sequence[str]]) -> dict[str, EnvSpec]:
        """Policy → the specification of its agents, of `agents_by_policy`; of one policy, this one.

        Raises:
            ConfigError: an agent has no policy or two, a policy no agent, or agents of one policy
                differ in their spaces.
        """
        if not patterns and not self.kinds:
            return {DEFAULT_POLICY: self}
        policies = agents_by_policy(patterns, self.agent_names)
        kind_of = {name: kind for kind in self.kinds or (self,) for name in kind.agent_names}
        for what in ("observation", "action", "masked"):
            spaces = {name: getattr(kind, what) for name, kind in kind_of.items()}
            check_equal_spaces(policies, {"masked": "masks"}.get(what, f"{what}s"), spaces)
        return {
            policy: replace(kind_of[names[0]], agents=len(names), agent_names=names)
            for policy, names in policies.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able data; `from_dict` is its inverse."""
        return asdict(self) | {
            "observation": self.observation.to_dict(),
            "action": self.action.to_dict(),
            "kinds": [kind.to_dict() for kind in self.kinds],
        }

    def of_environment(self) -> dict[str, Any]:
        """What a policy's architecture does not have, as JSON-able data; see `of_policy`."""
        named = ("masked", "agents", "agent_names", "own_form")
        return {name: value for name, value in self.to_dict().items() if name in named}

    @classmethod
    def of_policy(
        cls, observation: ObservationSpec, action: ActionSpec, environment: dict[str, Any]
    ) -> EnvSpec:
        """The specification of a policy's architecture and of `of_environment`.

        Raises:
            ValueError: the data is invalid.
        """
        spec = {**environment, "observation": observation, "action": action}
        return TypeAdapter(cls).validate_python(spec)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> EnvSpec:
        """The specification that `to_dict` described.

        Raises:
            ValueError: the data is invalid.
        """
        try:
            observation = ObservationSpec.from_dict(data["observation"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"no description of observations: {error!r}") from error
        kinds = tuple(map(cls.from_dict, data["kinds"]))
        return cls.of_policy(
            observation, ActionSpec.from_dict(data["action"]), {**data, "kinds": kinds}
        )


@dataclass
class EnvStep:
    """One agent step of B environments, or of the agents of some environments.

    The arrays belong to the receiver: no later step writes to them.

    Attributes:
        observations: leaf → [B, *shape], those that the step reached, also at the end of an
            episode; at a reset step the first observation of the new episode.
        rewards: [B] float32, never clipped; 0 at a reset step.
        terminated: [B] bool, the episode ended; never set by a lost life.
        truncated: [B] bool, a time limit cut the episode: its last observation still has a value to
            bootstrap from.
        life_lost: [B] bool, a life was lost without the end of the game; may come together with
            truncated.
        reset: [B] bool, next-step autoreset: the previous step ended an episode, this step's action
            was ignored, and nothing may be learned from it. An agent without an episode has such
            steps until its next one begins.
        faulted: [B] bool, implies reset: the environment failed in this step and was made again;
            its running episode must be dropped.
        infos: row → the environment's info, of the episodes that ended in this step.
    """

    observations: Observations
    rewards: NDArray[np.float32]
    terminated: Bools
    truncated: Bools
    life_lost: Bools
    reset: Bools
    faulted: Bools
    infos: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    def of_rows(self, rows: NDArray[np.intp], observations: Observations) -> EnvStep:
        """The step of some of the rows, which have these observations."""
        infos = {place: self.infos[b] for place, b in enumerate(rows.tolist()) if b in self.infos}
        return EnvStep(
            observations=observations,
            rewards=self.rewards[rows],
            terminated=self.terminated[rows],
            truncated=self.truncated[rows],
            life_lost=self.life_lost[rows],
            reset=self.reset[rows],
            faulted=self.faulted[rows],
            infos=infos,
        )
