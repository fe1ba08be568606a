"""Plays whole episodes with a policy, for its score, for visited observations or to be seen."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aclearn.envs import VectorEnv, make_policy_envs
from aclearn.envs.single_env import drawn
from aclearn.errors import EnvironmentFailure
from aclearn.rollout import EpisodeTracker, Executable, InfoMetrics
from aclearn.types import EnvStep, State, Visited, zeroed
from services.evaluator.chooser import Chooser
from services.evaluator.saved_policy import SavedPolicy, SavedRun

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

    @property
    def length_mean(self) -> float:
        """Mean length in agent steps."""
        return float(np.mean(self.lengths))

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


class Player(NamedTuple):
    """A policy as it plays."""

    policy: Executable
    chooser: Chooser


def players_of(
    run: SavedRun, *, greedy: bool = False, instead: Mapping[str, Executable] | None = None
) -> dict[str, Player]:
    """Policy → its player.

    Args:
        instead: policy → what plays in its place.
    """
    given = instead or {}
    return {
        name: Player(given.get(name) or saved.executable(), saved.chooser(greedy=greedy))
        for name, saved in run.policies.items()
    }


def play(
    run: SavedRun,
    players: Mapping[str, Player],
    *,
    episodes: int,
    seed: int,
    most_steps: int = MOST_STEPS,
    progress: Callable[[Mapping[str, Played]], None] = lambda played: None,
) -> dict[str, Played]:
    """Play `episodes` whole episodes; returns policy → what its agents had.

    Each parallel environment plays an equal share of episodes from its start, so that short
    episodes are not over-represented. An episode of several agents gives a return for each. An
    episode of `most_steps` is cut, and its environment plays no other one.

    Args:
        seed: of environments and sampling; must differ from training.
    """
    env = run.config.env
    envs = make_envs(run, min(_MOST_ENVS, episodes), seed)
    played: dict[str, Played] = {}
    try:
        for played in episodes_of(
            envs,
            players,
            episodes=episodes,
            seed=seed,
            most_steps=most_steps,
            info_metrics=InfoMetrics(env.info_metrics, env.id),
        ):
            progress(played)
    finally:
        close_all(envs)
    return played


class _PolicyEpisodes:
    """The episodes of one policy's agents."""

    def __init__(self, env: VectorEnv, info_metrics: InfoMetrics | None) -> None:
        self.agents = env.spec.agents
        self._tracker = EpisodeTracker(env.num_envs, info_metrics=info_metrics)
        self.played = Played()

    def count(self, step: EnvStep, quota: NDArray[np.int64], most_steps: int) -> tuple[Any, Any]:
        """Count the ends of environments with a quota; returns which have one, and are endless."""
        agents, tracker, played = self.agents, self._tracker, self.played
        ended = np.flatnonzero(step.terminated | step.truncated)
        for b, episode in zip(ended, tracker.update(step), strict=True):
            if quota[b // agents] > 0:
                played.add(episode.return_, episode.length, episode.info)
        endless = tracker.lengths >= most_steps
        endless[ended] = False  # it has ended by itself, just in time
        played.running = int(tracker.lengths.max())
        finished = np.zeros(len(quota), np.bool_)
        finished[ended // agents] = True
        return finished, endless

    @property
    def runs(self) -> NDArray[np.bool_]:
        """Which agents are within an episode."""
        running: NDArray[np.bool_] = self._tracker.lengths > 0
        return running

    def cut(self, endless: NDArray[np.bool_], quota: NDArray[np.int64]) -> None:
        """Count endless episodes as cut."""
        tracker, played = self._tracker, self.played
        for b in np.flatnonzero(endless):
            if quota[b // self.agents] > 0:
                played.add(float(tracker.returns[b]), int(tracker.lengths[b]), {})
                played.cut += 1


def episodes_of(
    envs: Mapping[str, VectorEnv],
    players: Mapping[str, Player],
    *,
    episodes: int,
    seed: int,
    most_steps: int = MOST_STEPS,
    info_metrics: InfoMetrics | None = None,
) -> Iterator[dict[str, Played]]:
    """The episodes so far, after each step of all environments, until there are `episodes`.

    The environments begin with `seed`: the same seed and policies give the same episodes. Otherwise
    as `play`. An environment in which agents come back for ever is cut after `most_steps` as well.

    Raises:
        EnvironmentFailure: a policy's agents have ended no episode in all of them.
    """
    of = {name: _PolicyEpisodes(env, info_metrics) for name, env in envs.items()}
    first = next(iter(envs.values()))
    num_envs = first.num_envs // first.spec.agents
    quota = np.full(num_envs, episodes // num_envs)
    quota[: episodes % num_envs] += 1
    finished = np.zeros(num_envs, np.bool_)
    taken = np.zeros(num_envs, np.int64)
    for steps in steps_of(players, envs, seed):
        taken += 1
        begun = np.ones(num_envs, np.bool_)
        endless = {}
        for name, (_, step) in steps.items():
            ended, endless[name] = of[name].count(step, quota, most_steps)
            finished |= ended
            begun &= step.reset.reshape(num_envs, -1).all(axis=1)
        quota[begun & finished] -= 1
        finished &= ~begun
        taken[begun] = 0
        for name, each in endless.items():
            each |= np.repeat(taken > most_steps, of[name].agents) & of[name].runs
        for name, each in endless.items():
            of[name].cut(each, quota)
        for each in endless.values():
            quota[each.reshape(num_envs, -1).any(axis=1)] = 0
        quota[taken > most_steps] = 0
        yield {name: each.played for name, each in of.items()}
        if not (quota > 0).any():
            break
    for name, each in of.items():
        if not each.played.returns:
            raise EnvironmentFailure(
                f"policy {name}: none of its agents has ended an episode in {episodes} episodes of "
                "the environment; raise the number of episodes"
            )


def visit(run: SavedRun, policy: str, *, count: int, seed: int) -> Visited:
    """`count` observations that a sampling policy visits, spread over its games.

    They are sequences of `sequence_length`, in order of time, alternating between 16 games.
    """
    saved = run.policies[policy]
    length, units = sequence_length(saved), saved.architecture.state
    envs = make_envs(run, _MOST_ENVS, seed)
    every = 5  # neighbouring frames are nearly equal
    kept, steps = list[Visited](), list[Visited]()
    rows = envs[policy].num_envs
    try:
        turns = range(every * length * -(-count // (rows * length)))
        for turn, both in zip(turns, steps_of(players_of(run), envs, seed), strict=False):
            if turn // length % every:
                continue
            seen, step = both[policy]
            if units:
                zeros = tuple(np.zeros((rows, n), np.float32) for n in units)
                seen = replace(seen, valid=~step.reset, state=seen.state or zeros)
            steps.append(copy.deepcopy(seen))
            if len(steps) == length:
                kept.append(_as_sequences(steps))
                steps = []
    finally:
        close_all(envs)
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
    run: SavedRun, *, greedy: bool, seed: int
) -> tuple[Generator[NDArray[np.uint8], None, None], float]:
    """Pictures `[H, W, 3]` of one episode, one a step, and how many a second are its usual speed.

    Raises:
        ArgumentError, EnvironmentFailure: the environment cannot be drawn.
    """
    config = run.config.model_copy(update={"env": drawn(run.config.env)})
    try:
        envs = make_envs(replace(run, config=config), 1, seed)
    except EnvironmentFailure as error:
        if "render_mode" not in str(error):
            raise
        raise EnvironmentFailure(
            f'{error}; one that is drawn takes render_mode="rgb_array" when it is made, as those '
            "of gymnasium and PettingZoo do"
        ) from error
    any_of = next(iter(envs.values()))

    def pictures() -> Generator[NDArray[np.uint8], None, None]:
        ended = {name: np.zeros(env.num_envs, np.bool_) for name, env in envs.items()}
        try:
            for steps in steps_of(players_of(run, greedy=greedy), envs, seed):
                yield any_of.picture()
                for name, (_, step) in steps.items():
                    ended[name] |= step.terminated | step.truncated
                if all(each.all() for each in ended.values()):
                    return
        finally:
            close_all(envs)

    return pictures(), any_of.picture_rate


def steps_of(
    players: Mapping[str, Player], envs: Mapping[str, VectorEnv], seed: int
) -> Iterator[dict[str, tuple[Visited, EnvStep]]]:
    """Policy → its observations and the environments' step after them; without end."""
    rng = np.random.default_rng(seed)
    states = dict.fromkeys(envs, State())
    shown = {name: env.reset(seed) for name, env in envs.items()}
    while True:
        seen = {}
        for name, env in envs.items():
            policy, chooser = players[name]
            output = policy.step(shown[name], states[name])
            seen[name] = Visited(shown[name], env.masks, state=states[name])
            env.send(chooser.choose(output.parameters, seen[name].masks, rng))
            states[name] = output.state
        steps = {name: (seen[name], env.recv()) for name, env in envs.items()}
        yield steps
        for name, (_, step) in steps.items():
            shown[name], states[name] = step.observations, zeroed(states[name], step.reset)


def make_envs(run: SavedRun, num_envs: int, seed: int) -> dict[str, VectorEnv]:
    """Policy → its agents in the environments of the run.

    Raises:
        EnvironmentFailure: they cannot be made, or have other spaces than the policies.
    """
    config = run.config
    envs = make_policy_envs(
        config.env,
        config.patterns,
        num_envs=num_envs,
        seed=seed,
        step_timeout_s=config.actors.step_timeout_s,
        max_faults=config.actors.max_env_faults,
    )
    for name, env in envs.items():
        found, trained = ((s.observation, s.action) for s in (env.spec, run.policies[name].spec))
        if found != trained:
            close_all(envs)
            which = f" {name}" if config.policies else ""
            raise EnvironmentFailure(
                f"environment {config.env.id}: it has {found[0]} → {found[1]}, and the policy"
                f"{which} was trained on {trained[0]} → {trained[1]}; make it with the same spaces"
            )
    return envs


def close_all(envs: Mapping[str, VectorEnv]) -> None:
    """Close the environments of all policies, which are the same ones."""
    next(iter(envs.values())).close()
