"""The contract of an environment, tried on one: what to mend before it is trained on.

What must be mended is what a run counts as a fault, by the same functions; all else is advice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from aclearn.distributions import distribution_of
from aclearn.envs import contract
from aclearn.envs.contract import ContractError
from aclearn.envs.deadline import StepDeadline, StepHungError, environment_faults
from aclearn.envs.env_advice import Seen, advice_on_actions, advice_on_numbers, same
from aclearn.envs.observation_layout import ObservationLayout
from aclearn.envs.spaces import mask_row, read_actions
from aclearn.errors import words_of
from aclearn.extensions import users_line

if TYPE_CHECKING:
    from aclearn.config import EnvConfig

_SEED = 7
#: Steps with the same seed and actions that are compared.
_COMPARED = 50
#: Exceptions after which no more steps are tried.
_MOST_RAISED = 3


class _Ended(Exception):
    """A fault that ends the check; it is in the report."""


@dataclass
class EnvReport:
    """The result of a check.

    Attributes:
        fine: what keeps the contract, one sentence each.
        advice: what a run takes, and what may be meant otherwise.
        mend: what a run counts as a fault, and how to mend it.
    """

    fine: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    mend: list[str] = field(default_factory=list)


def check_env(
    make: Callable[[], Any],
    config: EnvConfig,
    *,
    steps: int = 1000,
    seconds: float = 5.0,
    step_timeout_s: float = 30.0,
) -> EnvReport:
    """Check a `gymnasium.Env` with random actions: results, numbers, ends, seeds, speed.

    Raises:
        EnvironmentFailure: its spaces are not supported.
    """
    report, deadline, made = EnvReport(), StepDeadline(step_timeout_s), list[_Trial]()
    said = set[tuple[str, str, str]]()
    try:
        for _ in range(2):
            with _within("make", deadline, report):
                env = make()
            made.append(_Trial(env, report, deadline, config, said))
        made[0].play(steps, seconds)
        _compare_seeds(*made)
    except _Ended:
        pass
    finally:
        for trial in made:
            trial.close()
        deadline.close()
    return report


@contextmanager
def _within(call: str, deadline: StepDeadline, report: EnvReport) -> Iterator[None]:
    """A call of the environment; its exception is reported and ends the check."""
    try:
        with deadline:
            yield
    except environment_faults() as error:
        deadline.disarm()
        report.mend.append(f"{call}: raises {words_of(error)}{users_line(error)}")
        raise _Ended from error


class _Trial:
    """One environment under check."""

    def __init__(
        self,
        env: Any,
        report: EnvReport,
        deadline: StepDeadline,
        config: EnvConfig,
        said: set[tuple[str, str, str]],
    ) -> None:
        self.env, self._report, self._deadline = env, report, deadline
        self._layout = ObservationLayout(env.observation_space, "", config, num_envs=1)
        self._action = read_actions(env.action_space, "")
        self._masked_by_info = config.action_mask == "info"
        self._masked = config.action_mask is not None
        self._mask: Any = None
        self._said = said
        self._seen = Seen(env.observation_space, self._masked_by_info)
        self.rng = np.random.default_rng(_SEED)
        self._raised = 0

    def play(self, steps: int, seconds: float) -> None:
        """Reset and step with random actions; check everything that comes back."""
        seen, taken, steps_s, lengths = self._seen, 0, 0.0, [0]
        terminated = truncated = 0
        self.reset(_SEED)
        until = time.perf_counter() + seconds
        while taken < steps and time.perf_counter() < until and self._raised < _MOST_RAISED:
            action = self.action()
            begun = time.perf_counter()
            result = self.step(action)
            steps_s += time.perf_counter() - begun
            taken += 1
            lengths[-1] += 1
            if result is None:
                self.reset(None)
                continue
            _, _, ends, cut = result
            terminated, truncated = terminated + ends, truncated + cut
            if ends or cut:
                lengths.append(0)
                self.reset(None)
        report = self._report
        if not report.mend:
            report.fine.append(
                f"reset and step keep the contract in {taken} steps with random actions"
            )
        report.fine.append(f"{taken / max(steps_s, 1e-9):,.0f} steps/s in one environment")
        if len(lengths) > 1:
            mean = sum(lengths[:-1]) / len(lengths[:-1])
            report.fine.append(
                f"{terminated} episodes terminated, {truncated} were truncated, mean length "
                f"{mean:.0f}"
            )
        else:
            report.advice.append(
                f"no episode ended in {taken} steps: returns are reported at ends; if none comes "
                "by itself, add a limit (gymnasium.wrappers.TimeLimit)"
            )
        report.advice += [*seen.sentences(), *advice_on_numbers(seen)]
        report.advice += advice_on_actions(self._action)

    def action(self) -> Any:
        """A random action, as a new policy chooses it, in the form that a run gives."""
        distribution = distribution_of(self._action)
        parameters = np.zeros((1, distribution.parameter_count), np.float32)
        if self._mask is not None:
            parameters = distribution.mask(parameters, self._mask[None])
        return self._action.to_env(distribution.sample(parameters, self.rng)[0])[0]

    def reset(self, seed: int | None) -> Any:
        """The first observation of an episode, in whatever form it is given."""
        try:
            with self._deadline:
                shown, info = contract.begin_episode(self.env, seed)
        except ContractError as error:
            self._mend("reset", error)
            shown, info = self._old_reset(), {}
        except environment_faults() as error:
            self._raises("reset", error)
            raise _Ended from error
        self._check("reset", shown, info, terminal=False)
        return shown

    def step(self, action: Any) -> tuple[Any, float, bool, bool] | None:
        """Observation, reward and flags, in whatever form they are given; None if it raised."""
        try:
            with self._deadline:
                result = self.env.step(action)
        except environment_faults() as error:
            self._raises("step", error)
            if isinstance(error, StepHungError):
                raise _Ended from error
            self._raised += 1
            return None
        try:
            shown, reward, ends, cut, info = contract.step_result(result)
        except ContractError as error:
            self._mend("step", error)
            if not isinstance(result, tuple | list) or len(result) not in (4, 5):
                raise _Ended from error
            # gym's (observation, reward, done, info), or five with another info
            (shown, reward, ends), cut, info = result[:3], False, {}
        number, over, limited = self._checked_rest(reward, ends, cut)
        self._check("step", shown, info, terminal=over)
        return shown, number, over, limited

    def close(self) -> None:
        """Close the environment; a failure is advice, since a run goes on."""
        try:
            with self._deadline:
                self.env.close()
        except environment_faults() as error:
            self._deadline.disarm()
            self._report.advice.append(f"close: raises {words_of(error)}{users_line(error)}")

    def _old_reset(self) -> Any:
        """What a reset gives that keeps no form of gymnasium's."""
        with _within("reset", self._deadline, self._report):
            try:
                result = self.env.reset(seed=_SEED)
            except TypeError:
                result = self.env.reset()
        return result[0] if isinstance(result, tuple) and len(result) == 2 else result

    def _check(self, call: str, shown: Any, info: dict[str, Any], *, terminal: bool) -> None:
        """Check an observation, and its mask."""
        self._layout.begin()
        errors = [*self._layout.errors(0, shown), *self._layout.out_of_range().values()]
        for error in errors:
            self._mend(call, error)
        self._seen.observation(call, shown)
        self._seen.info(info)
        if errors or not self._masked:
            return
        try:
            given = info.get("action_mask") if self._masked_by_info else self._layout.mask_of(shown)
            self._mask = mask_row(given, self._action, where="its action mask", terminal=terminal)
        except ContractError as error:
            self._mend(call, error)
            self._mask = None

    def _checked_rest(self, reward: Any, ends: Any, cut: Any) -> tuple[float, bool, bool]:
        """Reward and flags; 0 and False in place of what a run does not take."""
        number, flags = 0.0, [False, False]
        try:
            number = contract.reward_of(reward)
            if not contract.in_range(np.array(number)):
                raise contract.range_error(number, "reward", "reward")
            self._seen.reward(reward, number)
        except ContractError as error:
            self._mend("step", error)
            number = 0.0
        for place, (name, given) in enumerate({"terminated": ends, "truncated": cut}.items()):
            try:
                flags[place] = contract.flag_of(given, name)
                self._seen.flag(name, given)
            except ContractError as error:
                self._mend("step", error)
        return number, flags[0], flags[1]

    def _mend(self, call: str, error: ContractError) -> None:
        """Say a fault once, however often it comes with other values."""
        text = str(error)
        key = call, error.reason, text.partition(" ")[0]
        if key not in self._said:
            self._said.add(key)
            self._report.mend.append(text if text.startswith(call) else f"{call}: {text}")

    def _raises(self, call: str, error: BaseException) -> None:
        self._deadline.disarm()
        text = f"{call}: raises {words_of(error)}{users_line(error)}"
        if text not in self._report.mend:
            self._report.mend.append(text)


def _compare_seeds(one: _Trial, other: _Trial) -> None:
    """Check that one seed and the same actions give the same episode in any instance."""
    report = one._report
    one.rng = np.random.default_rng(_SEED)
    firsts = [trial.reset(_SEED) for trial in (one, other)]
    if not same(*firsts):
        report.advice.append(
            "reset: one seed gave two different observations, so that no run can be repeated; call "
            "super().reset(seed=seed) and draw all random numbers from self.np_random"
        )
        return
    for step in range(_COMPARED):
        action = one.action()
        result, again = (trial.step(action) for trial in (one, other))
        if result is None or again is None:
            return
        if not same(result, again):
            report.advice.append(
                f"step: the same seed and actions differ after {step + 1} steps; draw all random "
                "numbers from self.np_random, and keep no state outside the instance"
            )
            return
        if result[2] or result[3]:
            break
    if not report.mend:
        report.fine.append("one seed gives one episode")
    if same(one.reset(_SEED + 1), firsts[0]):
        report.advice.append("two seeds gave the same first observation; is every start equal?")
