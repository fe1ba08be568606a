"""Environments whose agents have several policies: a group for each policy, which step together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from aclearn.envs.contract import ContractError
from aclearn.envs.observation_layout import ObservationLayout
from aclearn.envs.parallel_vector_env import ParallelVectorEnv
from aclearn.envs.restarting import RestartingEnvs
from aclearn.envs.spaces import mask_row
from aclearn.envs.sync_vector_env import possible_actions, read_spaces
from aclearn.envs.vector_env import VectorEnv
from aclearn.types import EnvSpec, EnvStep, agents_by_policy, check_equal_spaces
from aclearn.types.observation_spec import Observations

if TYPE_CHECKING:
    from aclearn.config import EnvConfig

#: Between the policy and the leaf in a name; no name of either has it.
_SLASH = "/"


class PolicyEnvs(ParallelVectorEnv):
    """Environments of several agents, as `ParallelVectorEnv`, whose policies have their own spaces.

    Args:
        patterns: policy → patterns of its agents.

    Attributes:
        specs, counts: policy → the specification of its agents, and number of its rows.
        parts: policy → the rows of its agents, a group of its own: row e·A + a has its agent a of
            environment e. They are reset together, and step once each has sent its actions.

    Raises:
        ConfigError: an agent has no policy or several, or one policy's agents have other spaces.
    """

    def __init__(
        self, group: RestartingEnvs, env: EnvConfig, patterns: Mapping[str, Sequence[str]]
    ) -> None:
        self._patterns = patterns
        super().__init__(group, env)
        if self.masks is not None:
            widest = max(spec.action.mask_width for spec in self.specs.values())
            self.masks = np.ones((self.num_envs, widest), np.bool_)
        self.parts: dict[str, VectorEnv] = {policy: PolicyPart(self, policy) for policy in patterns}
        self._first: dict[str, Observations] = {}
        self._steps: dict[str, EnvStep] = {}
        self._sent: dict[str, Sequence[Any]] = {}

    @override
    def _read_spaces(self, env: EnvConfig) -> None:
        observations, self._actions_of = self._spaces_by_agent()
        names = [str(agent) for agent in self._agents]
        policies = agents_by_policy(self._patterns, names)
        for what, spaces in (("observations", observations), ("actions", self._actions_of)):
            check_equal_spaces(policies, what, dict(zip(names, spaces.values(), strict=True)))
        specs: dict[str, EnvSpec] = {}
        layouts: dict[str, tuple[ObservationLayout, NDArray[np.intp]]] = {}
        starts = np.arange(len(self._group.envs))[:, None] * len(names)
        for policy, its in policies.items():
            places = [names.index(name) for name in its]
            rows = (starts + places).reshape(-1)
            agent = self._agents[places[0]]
            layout, action = read_spaces(
                observations[agent],
                self._actions_of[agent],
                self._group.name,
                env,
                num_envs=len(rows),
            )
            layouts[policy] = layout, rows
            masked = env.action_mask is not None
            specs[policy] = EnvSpec(layout.spec, action, "", masked, len(its), layout.form, its)
        self._layouts = _Layouts(layouts)
        self._layout = self._layouts  # type: ignore[assignment]  # what rows need of a layout
        self._rows_of = {policy: rows for policy, (_, rows) in layouts.items()}
        self.specs = specs
        self.counts = {policy: len(rows) for policy, rows in self._rows_of.items()}
        self.spec = EnvSpec.joint(specs.values())

    @override
    def _check_agent_spaces(self, agent: Any, observations: Any, actions: Any) -> None:
        self._layouts.of(self._agents.index(agent)).check_space(observations)
        if (first := self._actions_of[agent]) is not actions and actions != first:
            said = f"its action space has become {actions}; it was {first}"
            raise ContractError("action_space", said)

    @override
    def _write_mask(self, b: int, shown: Any, info: Any, *, terminal: bool) -> None:
        if self.masks is None:
            return
        by_info = self._mask_from == "info"
        given = info.get("action_mask") if by_info else self._layouts.of(b).mask_of(shown)
        where = "info['action_mask']" if by_info else str(self._mask_from)
        action = self.specs[self._layouts.policy_of(b)].action
        self.masks[b, : action.mask_width] = mask_row(given, action, where=where, terminal=terminal)

    def reset_part(self, policy: str, seed: int | None) -> Observations:
        """The first observations of one policy; of two calls for it each resets all."""
        if policy not in self._first:
            self._sent.clear()
            self._steps.clear()
            self._first = {**by_policy(super().reset(seed))}
        return self._first.pop(policy)

    def send_part(self, policy: str, actions: NDArray[Any]) -> None:
        """Keep the actions of one policy; those of the last one are sent."""
        rows, action = self._rows_of[policy], self.specs[policy].action
        taken, impossible = possible_actions(actions, action, self._idle[rows])
        if not self._sent:
            self._impossible = {}
        self._impossible |= {int(rows[b]): given for b, given in impossible.items()}
        self._sent[policy] = taken
        if len(self._sent) == len(self.parts):
            merged: list[Any] = [None] * self.num_envs
            for name, each in self._sent.items():
                for b, one in zip(self._rows_of[name].tolist(), each, strict=True):
                    merged[b] = one
            self._actions, self._sent = merged, {}

    def recv_part(self, policy: str) -> EnvStep:
        """The step of one policy, once all have sent their actions."""
        if policy not in self._steps:
            step = super().recv()
            shown = by_policy(step.observations)
            self._steps = {
                name: step.of_rows(rows, shown[name]) for name, rows in self._rows_of.items()
            }
        return self._steps.pop(policy)

    def masks_of(self, policy: str) -> NDArray[np.bool_] | None:
        """The masks of one policy's rows."""
        if self.masks is None:
            return None
        width = self.specs[policy].action.mask_width
        return self.masks[self._rows_of[policy], :width]


def by_policy(observations: Observations) -> dict[str, dict[str, NDArray[Any]]]:
    """Policy → leaf → rows, from "policy/leaf" → rows."""
    parts: dict[str, dict[str, NDArray[Any]]] = {}
    for name, leaf in observations.items():
        policy, _, own = name.partition(_SLASH)
        parts.setdefault(policy, {})[own] = leaf
    return parts


class _Layouts:
    """What a group's rows need of an `ObservationLayout`, from one of each policy."""

    def __init__(self, layouts: Mapping[str, tuple[ObservationLayout, NDArray[np.intp]]]) -> None:
        self._layouts = layouts
        self._place = {
            int(b): (policy, layout, place)
            for policy, (layout, rows) in layouts.items()
            for place, b in enumerate(rows)
        }

    def of(self, b: int) -> ObservationLayout:
        """The layout of row b."""
        return self._place[b][1]

    def policy_of(self, b: int) -> str:
        """The policy of row b."""
        return self._place[b][0]

    def begin(self) -> dict[str, NDArray[Any]]:
        return {
            f"{policy}{_SLASH}{name}": leaf
            for policy, (layout, _) in self._layouts.items()
            for name, leaf in layout.begin().items()
        }

    def write(self, b: int, observation: Any) -> None:
        _, layout, place = self._place[b]
        layout.write(place, observation)

    def write_first(self, b: int, observation: Any) -> None:
        _, layout, place = self._place[b]
        layout.write_first(place, observation)

    def out_of_range(self) -> dict[int, ContractError]:
        return {
            int(rows[place]): error
            for layout, rows in self._layouts.values()
            for place, error in layout.out_of_range().items()
        }


class PolicyPart(VectorEnv):
    """The rows of one policy; what concerns the environments is that of the whole group."""

    def __init__(self, whole: PolicyEnvs, policy: str) -> None:
        self._whole, self._policy = whole, policy
        self.spec, self.num_envs = whole.specs[policy], whole.counts[policy]
        self.faults, self.fault_details = whole.faults, whole.fault_details

    @property
    def masks(self) -> NDArray[np.bool_] | None:  # type: ignore[override]
        """`[B, A]`, the actions that are allowed now; None: all."""
        return self._whole.masks_of(self._policy)

    @property
    def between_attempts(self) -> Callable[[], None]:
        """Called between any two calls that may each take long."""
        return self._whole.between_attempts

    @between_attempts.setter
    def between_attempts(self, call: Callable[[], None]) -> None:
        self._whole.between_attempts = call

    @override
    def reset(self, seed: int | None = None) -> Observations:
        return self._whole.reset_part(self._policy, seed)

    @override
    def send(self, actions: NDArray[Any]) -> None:
        self._whole.send_part(self._policy, actions)

    @override
    def recv(self) -> EnvStep:
        return self._whole.recv_part(self._policy)

    @property
    @override
    def picture_rate(self) -> float:
        return self._whole.picture_rate

    @override
    def picture(self) -> Any:
        return self._whole.picture()

    @override
    def close(self) -> None:
        self._whole.close()
