"""`aclearn record`: episodes of a run's policy as a dataset of Minari."""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from typing_extensions import override

from aclearn.config import EnvConfig
from aclearn.envs.own_spaces import action_space
from aclearn.errors import ConfigError, install_hint
from aclearn.runs import NEWEST
from aclearn.types import OBSERVATION, EnvSpec, EnvStep, ObservationSpec
from aclearn.types.observation_spec import Observations
from services.evaluator.chooser import Chooser
from services.evaluator.play import (
    MOST_STEPS,
    Player,
    close_all,
    make_envs,
    players_of,
    steps_of,
)
from services.evaluator.saved_policy import SavedPolicy, SavedRun, load_run

_OUT: Final = "--out"
#: Fewer than in an evaluation: all of their running episodes are in memory.
_MOST_ENVS: Final = 4


@dataclass
class Episode:
    """One episode of T steps.

    Attributes:
        observations: T + 1 times leaf → `[*shape]`, the last after the last step.
        actions: T times as sampled, before `ActionSpec.to_env`.
        truncated: a time limit or `most_steps` has ended it.
    """

    observations: list[Mapping[str, NDArray[Any]]]
    actions: list[NDArray[Any]] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: bool = False
    truncated: bool = False

    @property
    def ended(self) -> bool:
        """Whether it has its last step."""
        return self.terminated or self.truncated

    def add(self, action: NDArray[Any], step: EnvStep, row: int) -> None:
        """Add a row's step."""
        self.observations.append(_row(step.observations, row))
        self.actions.append(action)
        self.rewards.append(float(step.rewards[row]))
        self.terminated, self.truncated = bool(step.terminated[row]), bool(step.truncated[row])


@dataclass(frozen=True)
class Recorded:
    """A dataset that was written.

    Attributes:
        path: its folder.
        returns: of its episodes, in their order.
    """

    path: Path
    steps: int
    returns: list[float]


def record(
    run: Path,
    dataset: str,
    *,
    episodes: int,
    greedy: bool = False,
    at: str | int = NEWEST,
    policy: str | None = None,
    seed: int = 1_000_003,
    most_steps: int = MOST_STEPS,
) -> Recorded:
    """Play whole episodes with a checkpoint of the run, and write them as a dataset.

    Observations are those that the policy sees: leaves of flat numbers or of images, channels
    first. Actions and rewards are the environment's own, rewards never clipped. The environment is
    in the dataset if it is one of gymnasium's without arguments, and shows what the policy sees.

    Args:
        dataset: its name in Minari, such as `cartpole/aclearn-v0`; MINARI_DATASETS_PATH says where.
        at: which checkpoint; see `checkpoint_in`.
        policy: whose agents' episodes, by name; None: those of the only one.
        seed: of environments and sampling.
        most_steps: agent steps after which an episode is cut, as truncated.

    Raises:
        AclearnError: Minari is missing, there is such a dataset, or the run, its checkpoint or its
            environment cannot be used.
    """
    path, of_run = _free_path(dataset), load_run(run, at=at)
    saved = of_run.policy(policy)
    returns, steps = list[float](), 0

    def counted() -> Iterator[Episode]:
        nonlocal steps
        for episode in recorded_episodes(
            of_run, saved.name, episodes=episodes, greedy=greedy, seed=seed, most_steps=most_steps
        ):
            returns.append(sum(episode.rewards))
            steps += len(episode.rewards)
            yield episode

    _add_namespace(dataset)
    # Minari lists no hidden folders, and half a dataset must not have the name of a whole one
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as private:
        whole = Path(private) / path.name
        whole.mkdir()
        _write(whole, dataset, saved, counted(), greedy=greedy)
        _check_free(path)
        whole.rename(path)
    return Recorded(path, steps, returns)


@dataclass(frozen=True)
class _Recorder(Chooser):
    """A chooser that keeps its newest actions."""

    newest: list[NDArray[Any]] = field(default_factory=list)

    @override
    def choose(self, *given: Any) -> NDArray[Any]:
        self.newest[:] = [super().choose(*given)]
        return self.newest[0]


def recorded_episodes(
    run: SavedRun, name: str, *, episodes: int, greedy: bool, seed: int, most_steps: int
) -> Iterator[Episode]:
    """Episodes of one of the policies, in the order of their ends; all policies play.

    Each row of the environments plays an equal share; one whose episode was cut plays no other.
    """
    envs, players = make_envs(run, min(_MOST_ENVS, episodes), seed), players_of(run, greedy=greedy)
    policy, chooser = players[name]
    recorder = _Recorder(chooser.distribution, chooser.of_values, chooser.greedy)
    players[name] = Player(policy, recorder)
    left = np.full(rows := envs[name].num_envs, episodes // rows)
    left[: episodes % rows] += 1
    running: dict[int, Episode] = {}
    away = np.zeros(rows, np.int64)  # steps in a row in which there was no such agent
    try:
        for steps in steps_of(players, envs, seed):
            seen, step = steps[name]
            for row in np.flatnonzero(left > 0).tolist():
                if step.reset[row]:  # its action was ignored; a failed episode is dropped
                    running.pop(row, None)
                    away[row] += 1
                    left[row] *= away[row] <= most_steps
                    continue
                away[row] = 0
                episode = running.setdefault(row, Episode([_row(seen.observations, row)]))
                episode.add(recorder.newest[0][row], step, row)
                left[row] -= episode.ended
                if not episode.ended and len(episode.rewards) == most_steps:
                    episode.truncated, left[row] = True, 0
                if episode.ended:
                    yield running.pop(row)
            if not (left > 0).any():
                return
    finally:
        close_all(envs)


def _row(observations: Observations, row: int) -> dict[str, NDArray[Any]]:
    return {name: leaf[row] for name, leaf in observations.items()}


def _add_namespace(dataset: str) -> None:
    """Make the folder of the dataset's namespace, if it has one, as Minari does."""
    from minari.dataset.minari_dataset import parse_dataset_id
    from minari.namespace import create_namespace, list_local_namespaces

    namespace = parse_dataset_id(dataset)[0]
    if namespace is not None and namespace not in list_local_namespaces():
        create_namespace(namespace)


def _write(
    path: Path, dataset: str, saved: SavedPolicy, episodes: Iterator[Episode], *, greedy: bool
) -> None:
    """Write a dataset into a folder; Minari's own functions write under its name only."""
    import minari
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    leaves, actions = saved.spec.observation, saved.spec.action

    def buffers() -> Iterator[Any]:
        for episode in episodes:
            length = len(episode.rewards)
            seen = {
                name: np.stack([each[name] for each in episode.observations]) for name in leaves
            }
            last = np.arange(length) == length - 1
            yield EpisodeBuffer(
                observations=_as_shown(seen),
                actions=actions.to_env_together(np.stack(episode.actions)),
                rewards=np.array(episode.rewards),
                terminations=last & episode.terminated,
                truncations=last & episode.truncated,
                infos={},
            )

    config = saved.config
    how = "greedy" if greedy else "sampled"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a specification that is no JSON
        storage = MinariStorage.new(
            path / "data",
            observation_space=_space(leaves),
            action_space=action_space(actions),
            env_spec=_gymnasium_spec(config.env, saved.spec),
            jpeg_encoding=False,
        )
    storage.update_metadata(
        {
            "dataset_id": dataset,
            "algorithm_name": config.loss.kind,
            "description": f"{config.env.id} played by {saved.checkpoint.path.stem} of "
            f"{config.run.name}, {how} (aclearn record)",
            "minari_version": minari.__version__,
        }
    )
    storage.update_episodes(buffers())


def _space(leaves: ObservationSpec) -> spaces.Space[Any]:
    of_leaf = {
        name: spaces.Box(0, leaf.high, leaf.shape, np.uint8)
        if leaf.is_image
        else spaces.Box(-math.inf, math.inf, leaf.shape, np.float32)
        for name, leaf in leaves.items()
    }
    shown: spaces.Space[Any] = _as_shown(of_leaf, spaces.Dict)
    return shown


def _as_shown(by_leaf: dict[str, Any], joined: Callable[[dict[str, Any]], Any] = dict) -> Any:
    """The one of a plain space itself, those of several leaves together."""
    return by_leaf[OBSERVATION] if [*by_leaf] == [OBSERVATION] else joined(by_leaf)


def _gymnasium_spec(env: EnvConfig, spec: EnvSpec) -> Any:
    """Gymnasium's description of the environment; None where it shows something else.

    Arguments of an environment may be secret, so one with arguments is left out too.
    """
    [first, *others] = spec.form.parts
    plain = not others and first.path == () and first.kind == "numbers" and len(first.shape) == 1
    if env.is_atari or env.kwargs or ":" in env.id or not plain or first.dtype != "float32":
        return None
    try:
        return gymnasium.spec(env.id)
    except gymnasium.error.Error:
        return None


def _free_path(dataset: str) -> Path:
    """The folder of a new dataset; checks that its name is one, and free."""
    try:
        from minari.dataset.minari_dataset import parse_dataset_id
        from minari.storage import get_dataset_path
    except ModuleNotFoundError as error:
        raise ConfigError(f"{_OUT}: {install_hint(error) or error}") from error
    try:
        parse_dataset_id(dataset)
    except (TypeError, ValueError):  # without a version, or of another form
        raise ConfigError(
            f"{_OUT}: {dataset!r}: expected the name of a dataset with its version, such as "
            "cartpole/aclearn-v0"
        ) from None
    # an environment may change the working directory
    path = Path(get_dataset_path(dataset)).absolute()
    _check_free(path)
    return path


def _check_free(path: Path) -> None:
    if path.exists():
        raise ConfigError(f"{_OUT}: {path} exists already; choose another name or version")
