"""Plays whole episodes with a policy, for its score, for visited observations or to be seen."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.envs import VectorEnv, make_vector_env
from aclearn.envs.single_env import drawn
from aclearn.errors import EnvironmentFailure
from aclearn.rollout import EpisodeTracker, Executable, InfoMetrics
from aclearn.types import EnvStep, State, Visited, zeroed
from services.evaluator.chooser import Chooser
from services.evaluator.saved_policy import SavedPolicy

_MOST_ENVS = 16
#: Steps of a sequence on which policies with a memory are compared.
_LENGTH = 32
#: Agent steps of an episode: as many as an Atari game has frames.
MOST_STEPS = 108_000


@dataclass
class Played:
    """Episodes in the order of their ends.

    Attributes:
        info: figures of `env.info_metrics` of each episode.
        cut: number of them that were cut at the limit, with their returns so far.
        running: steps of the longest episode that goes on.
    """

    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    info: list[Mapping[str, float]] = field(default_factory=list)
    cut: int = 0
    running: int = 0

    @property
    def info_means(self) -> dict[str, float]:
        """The mean of each figure over the episodes that have it."""
        names = dict.fromkeys(name for info in self.info for name in info)
        return {
            name: float(np.mean([info[name] for info in self.info if name in info]))
            for name in names
        }

    def add(self, return_: float, length: int, info: Mapping[str, float]) -> None:
        """Count an episode."""
        self.returns.append(return_)
        self.lengths.append(length)
        self.info.append(info)


def deviation_of(returns: Sequence[float]) -> float:
    """Standard deviation of the returns; 0 of one."""
    return float(np.std(returns, ddof=1)) if len(returns) > 1 else 0.0


def standard_error_of(returns: Sequence[float]) -> float:
    """Standard error of the mean: its deviation between evaluations with other seeds."""
    return deviation_of(returns) / math.sqrt(len(returns))


def play(
    saved: SavedPolicy,
    policy: Executable,
    *,
    episodes: int,
    greedy: bool,
    seed: int,
    most_steps: int = MOST_STEPS,
    progress: Callable[[Played], None] = lambda played: None,
) -> Played:
    """Play `episodes` whole episodes.

    Each parallel environment plays an equal share of episodes from its start, so that short
    episodes are not over-represented. An episode of several agents gives a return for each. An
    episode of `most_steps` is cut, and its environment plays no other one.

    Args:
        seed: of environments and sampling; must differ from training.
    """
    config = saved.config
    env = make_envs(saved, min(_MOST_ENVS, episodes), seed)
    played = Played()
    try:
        for played in episodes_of(
            env,
            policy,
            saved.chooser(greedy=greedy),
            episodes=episodes,
            seed=seed,
            most_steps=most_steps,
            info_metrics=InfoMetrics(config.env.info_metrics, config.env.id),
        ):
            progress(played)
    finally:
        env.close()
    return played


def episodes_of(
    env: VectorEnv,
    policy: Executable,
    chooser: Chooser,
    *,
    episodes: int,
    seed: int,
    most_steps: int = MOST_STEPS,
    info_metrics: InfoMetrics | None = None,
) -> Iterator[Played]:
    """The episodes so far, after each step of all environments, until there are `episodes`.

    The environments begin with `seed`: the same seed and policy give the same episodes. Otherwise
    as `play`.
    """
    agents = env.spec.agents
    num_envs = env.num_envs // agents
    quota = np.full(num_envs, episodes // num_envs)
    quota[: episodes % num_envs] += 1
    tracker = EpisodeTracker(env.num_envs, info_metrics=info_metrics)
    finished = np.zeros(num_envs, np.bool_)
    played = Played()
    for _, step in steps_of(policy, env, chooser, seed):
        ended = np.flatnonzero(step.terminated | step.truncated)
        for b, episode in zip(ended, tracker.update(step), strict=True):
            finished[b // agents] = True
            if quota[b // agents] > 0:
                played.add(episode.return_, episode.length, episode.info)
        begun = step.reset.reshape(-1, agents).all(axis=1)
        quota[begun & finished] -= 1
        finished &= ~begun
        endless = tracker.lengths >= most_steps
        endless[ended] = False  # it has ended by itself, just in time
        for b in np.flatnonzero(endless):
            if quota[b // agents] > 0:
                played.add(float(tracker.returns[b]), int(tracker.lengths[b]), {})
                played.cut += 1
        quota[endless.reshape(-1, agents).any(axis=1)] = 0
        played.running = int(tracker.lengths.max())
        yield played
        if not (quota > 0).any():
            return


def visit(saved: SavedPolicy, policy: Executable, *, count: int, seed: int) -> Visited:
    """`count` observations that the sampling policy visits, spread over its games.

    They are sequences of `sequence_length`, in order of time, alternating between 16 games.

    Args:
        policy: with the state of the saved one.
    """
    length, units = sequence_length(saved), saved.architecture.state
    env = make_envs(saved, _MOST_ENVS, seed)
    every = 5  # neighbouring frames are nearly equal
    kept, steps = list[Visited](), list[Visited]()
    try:
        turns = range(every * length * -(-count // (_MOST_ENVS * length)))
        for turn, (seen, step) in zip(
            turns, steps_of(policy, env, saved.chooser(), seed), strict=False
        ):
            if turn // length % every:
                continue
            if units:
                rows = len(step.reset)
                zeros = tuple(np.zeros((rows, n), np.float32) for n in units)
                seen = replace(seen, valid=~step.reset, state=seen.state or zeros)
            steps.append(copy.deepcopy(seen))
            if len(steps) == length:
                kept.append(_as_sequences(steps))
                steps = []
    finally:
        env.close()
    return Visited.joined(kept).take(slice(count // length))


def sequence_length(saved: SavedPolicy) -> int:
    """Observations in a row of an environment on which a policy is compared: 1 without memory."""
    return _LENGTH if saved.architecture.state else 1


def _as_sequences(steps: Sequence[Visited]) -> Visited:
    """Steps of B environments as B sequences."""

    def turned(by_step: Iterable[NDArray[Any] | None]) -> NDArray[Any]:
        rows = np.stack([each for each in by_step if each is not None], 1)
        return rows.reshape(-1, *rows.shape[2:])

    first = steps[0]
    return Visited(
        {name: turned(step.observations[name] for step in steps) for name in first.observations},
        None if first.masks is None else turned(step.masks for step in steps),
        len(steps),
        None if first.valid is None else turned(step.valid for step in steps),
        first.state,
    )


def watch(
    saved: SavedPolicy, policy: Executable, *, greedy: bool, seed: int
) -> tuple[Generator[NDArray[np.uint8], None, None], float]:
    """Pictures `[H, W, 3]` of one episode, one a step, and how many a second are its usual speed.

    Raises:
        ArgumentError, EnvironmentFailure: the environment cannot be drawn.
    """
    config = saved.config.model_copy(update={"env": drawn(saved.config.env)})
    env = make_envs(replace(saved, config=config), 1, seed)

    def pictures() -> Generator[NDArray[np.uint8], None, None]:
        ended = np.zeros(env.num_envs, np.bool_)
        try:
            for _, step in steps_of(policy, env, saved.chooser(greedy=greedy), seed):
                yield env.picture()
                ended |= step.terminated | step.truncated
                if ended.all():
                    return
        finally:
            env.close()

    return pictures(), env.picture_rate


def steps_of(
    policy: Executable, env: VectorEnv, chooser: Chooser, seed: int
) -> Iterator[tuple[Visited, EnvStep]]:
    """Observations and the environment's steps after them; without end."""
    rng = np.random.default_rng(seed)
    observations, state = env.reset(seed), State()
    while True:
        output = policy.step(observations, state)
        seen = Visited(observations, env.masks, state=state)
        env.send(chooser.choose(output.parameters, seen.masks, rng))
        step = env.recv()
        yield seen, step
        observations, state = step.observations, zeroed(output.state, step.reset)


def make_envs(saved: SavedPolicy, num_envs: int, seed: int) -> VectorEnv:
    """The environments of a policy's run.

    Raises:
        EnvironmentFailure: they cannot be made, or have other spaces than the policy.
    """
    config = saved.config
    env = make_vector_env(
        config.env,
        num_envs=num_envs,
        seed=seed,
        step_timeout_s=config.actors.step_timeout_s,
        max_faults=config.actors.max_env_faults,
    )
    found, trained = ((s.observation, s.action) for s in (env.spec, saved.spec))
    if found != trained:
        env.close()
        raise EnvironmentFailure(
            f"environment {config.env.id}: it has {found[0]} → {found[1]}, and the policy was "
            f"trained on {trained[0]} → {trained[1]}; make it with the same spaces"
        )
    return env
