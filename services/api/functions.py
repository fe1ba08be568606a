"""The functions of the Python API."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aclearn.config import Config, load_config, override_keys, with_overrides
from aclearn.errors import ArgumentError
from aclearn.launch import StopFlag, install_stop_signals
from aclearn.launch.main_guard import refuse_in_own_process
from services.api.environment_names import environment_name
from services.api.plain_errors import as_path, at_least, plain_errors
from services.api.policy import Policy
from services.api.population import Population
from services.api.run import Run
from services.commands.output import lossy_stdout

if TYPE_CHECKING:
    import gymnasium

    from compress import Artifact
    from services.commands.publishing.folder import Publication

# imports inside the functions: they may take seconds

Overrides = Mapping[str, Any] | Sequence[str]


@plain_errors
@lossy_stdout()
def train(
    config: Config | str | Path | None = None,
    overrides: Overrides = (),
    *,
    env: str | Callable[..., Any] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    on_metrics: Callable[[dict[str, Any]], object] | None = None,
) -> Run:
    """Train on this machine until the run's goal, its bound or a signal, as `aclearn train` does.

    Every role is a process; this one shows the run on standard output, in a notebook under its
    cell. Ctrl-C, or the interruption of a notebook's kernel, ends the run in order, with a
    checkpoint, and then raises `KeyboardInterrupt`; `open_run` opens what was learned, and
    `resume=True` continues it. Outside the main thread no signal is handled.

    Your own classes (`module:Name`) are imported by other processes: they are in a file beside the
    configuration, in the current folder or on `PYTHONPATH`, not in a cell of a notebook.

    Args:
        config: a shipped configuration's name, the path of a YAML file or of a run folder, or a
            `Config`.
        overrides: dotted key → value, as `{"run.seed": 2}`, or texts as on the command line.
        env: an environment instead of a configuration, whose keys are chosen by its spaces: an id
            ("LunarLander-v3"), "module:make", or a class or function that makes one. It is in a
            file that other processes can import; one of a notebook needs `run.deterministic`.
        resume: continue the run of `run.name`, or without a name the newest one of this
            configuration; the run's own configuration counts, with these overrides.
        overwrite: replace the run of `run.name`. A run without a name takes the next number.
        on_metrics: called here with each new line of metrics, a dict of the names in
            docs/metrics.md; if it returns False, the run ends with a checkpoint. Roles go on
            meanwhile.

    Raises:
        AclearnError: the run cannot be started, a role died too often, or learning is lost.
        Exception: what `on_metrics` raised, after the run has ended with a checkpoint.
        KeyboardInterrupt: Ctrl-C; another signal takes its usual effect once the run has ended.
    """
    from services.commands.resumed_run import resumed_config
    from services.commands.train import check_start, train_and_tell

    refuse_in_own_process("aclearn.train")
    if (config is None) == (env is None):
        raise ArgumentError("train: expected either config or env, e.g. train(env='CartPole-v1')")
    loaded = _configured(config, overrides) if env is None else _chosen(env, overrides)
    check_start(loaded, resume=resume, overwrite=overwrite)
    if resume:
        source = str(config) if isinstance(config, str | Path) else "the arguments"
        loaded = resumed_config(source, loaded, overrides)
    with _stopped_by_signals() as stop:
        path = train_and_tell(
            loaded, resume=resume, overwrite=overwrite, stop=stop, on_metrics=on_metrics
        )
    assert path is not None  # only a signal prevents the start
    return Run(path)


@plain_errors
@lossy_stdout()
def train_seeds(
    config: Config | str | Path | None = None,
    overrides: Overrides = (),
    *,
    seeds: int | Sequence[int],
    env: str | Callable[..., Any] | None = None,
    at_once: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> list[Run]:
    """Train with several seeds, as `aclearn train --seeds` does; arguments as of `train`.

    The runs are in one folder: that of `run.name`, else `<run.experiment>-seeds-<number>`. Each is
    a command of its own, whose output is in `seed-<seed>.log` there. Ctrl-C ends all in order.

    Args:
        seeds: their number, from `run.seed` on, or the seeds themselves.
        at_once: most runs at a time; None: as many as this machine has cores for.
        resume: continue the runs that are not over, and start those that are missing.
        overwrite: replace the runs in the folder of `run.name`.

    Returns:
        The runs, in the order of the seeds.

    Raises:
        AclearnError: the runs cannot be started, or some failed, which are named; the others have
            ended in order.
        KeyboardInterrupt: Ctrl-C; another signal takes its usual effect once the runs have ended.
    """
    from services.commands.seeds import train_seeds as train_each
    from services.commands.train import check_start

    refuse_in_own_process("aclearn.train_seeds")
    if (config is None) == (env is None):
        raise ArgumentError("train_seeds: expected either config or env")
    if isinstance(seeds, Sequence) and not isinstance(seeds, str):
        seeds = [at_least("seeds", seed, 0) for seed in seeds]
    else:
        seeds = at_least("seeds", seeds, 1)
    at_once = None if at_once is None else at_least("at_once", at_once, 1)
    loaded = _configured(config, overrides) if env is None else _chosen(env, overrides, alone=False)
    check_start(loaded, resume=resume, overwrite=overwrite)
    with _stopped_by_signals() as stop:
        paths = train_each(
            loaded,
            seeds,
            source=str(config) if isinstance(config, str | Path) else "the arguments",
            overrides=overrides,
            at_once=at_once,
            resume=resume,
            overwrite=overwrite,
            stop=stop,
        )
    return [Run(path) for path in paths]


@plain_errors
@lossy_stdout()
def evolve(
    config: Config | str | Path,
    overrides: Overrides = (),
    *,
    resume: bool = False,
    on: str = "local",
    at_once: int | None = None,
    on_round: Callable[[dict[str, Any]], object] | None = None,
) -> Population:
    """Train members that evolve together, as `aclearn evolve` does; arguments as of `train`.

    Args:
        config: with `population.members`; or the path of a population's folder, to resume it.
        resume: continue the population of `run.name`, or the newest one of this configuration.
        on: the engine that runs the members.
        at_once: most members at a time; None: as many as this machine has cores for.
        on_round: called here with the metrics of each round, a dict of the names in
            docs/populations.md; if it returns False, the population ends.

    Raises:
        AclearnError: the population cannot be started or continued, or all members have died.
        KeyboardInterrupt: Ctrl-C; the members have saved, and `resume=True` continues them.
    """
    from services.commands.evolve import evolve_and_tell

    refuse_in_own_process("aclearn.evolve")
    at_once = None if at_once is None else at_least("at_once", at_once, 1)
    with _stopped_by_signals() as stop:
        path = evolve_and_tell(
            config,
            overrides,
            resume=resume,
            on=on,
            at_once=at_once,
            stop=stop,
            on_round=on_round,
        )
    return Population(path)


@plain_errors
def open_run(path: str | Path) -> Run:
    """The run in a folder, running or over.

    Args:
        path: of the run folder, e.g. "runs/cartpole-1".

    Raises:
        RunFolderError: there is no run.
    """
    return Run(_folder(path))


@plain_errors
def load(
    run: Run | str | Path,
    *,
    at: str | int = "newest",
    policy: str | None = None,
    seed: int | None = None,
) -> Policy:
    """The policy of a run's checkpoint, ready to act, without its environment.

    Only the run's folder is needed: the spaces are in the checkpoint. Does not load torch.

    Args:
        run: a run, or the path of its folder.
        at: which checkpoint: "newest", "best", agent steps (120320) or a part of the run ("50%"),
            of which the nearest one is taken.
        policy: name of one of several.
        seed: of sampled actions; None: another one each time.

    Raises:
        AclearnError: the run or its checkpoint cannot be used.
    """
    from services.evaluator.saved_policy import load_policy

    seed = None if seed is None else at_least("seed", seed, 0)
    return Policy(load_policy(_folder(run), at=at, policy=policy), seed=seed)


@plain_errors
def ensemble(
    members: str | Path | Sequence[Run | str | Path],
    to: str | Path,
    *,
    best: int | None = None,
    by: str = "mean",
    at: str | int = "newest",
) -> Path:
    """Make one policy of several, as `aclearn ensemble` does; its folder is used as that of a run.

    Args:
        members: the folder of a population, or several runs.
        to: the run folder to make.
        best: members of a population to take; None: 3.
        by: "mean" of their distributions, "vote", or "means" of numbers.
        at: which checkpoint of each run; of a population it is the one that was judged.

    Raises:
        AclearnError: a member cannot be used, they have unlike spaces, or the folder exists.
    """
    from services.evaluator.ensemble import write_ensemble

    given = [members] if isinstance(members, (str, Path)) else list(members)
    write_ensemble([_folder(each) for each in given], Path(to), by=by, best=best, at=at)
    return Path(to)


@plain_errors
def export(
    run: Run | str | Path,
    to: str | Path,
    *,
    chain: str = "",
    passes: int = 1,
    at: str | int = "newest",
    policy: str | None = None,
    force: bool = False,
) -> Artifact:
    """Write a run's policy as a self-contained ONNX model, as `aclearn export` does.

    The model is run before it is written: its output must be that of torch. Its metadata have the
    distance to the policy.

    Args:
        run: a run, or the path of its folder.
        to: the file, e.g. "policy.onnx".
        chain: compression links, e.g. "prune=0.5,int8"; "" for none.
        passes: number of compressions in a row; a student trains in each.
        at: which checkpoint, as of `load`.
        policy: name of one of several.
        force: replace an existing file.

    Returns:
        The exported artifact, with its size (`bytes`) and its `fidelity` to the policy.

    Raises:
        AclearnError: the file, the run or the chain cannot be used, or the model's output is wrong.
    """
    from services.commands.export import export_run

    passes, to = at_least("passes", passes, 1), as_path("to", to)
    return export_run(
        _folder(run), to, words=chain, passes=passes, at=at, policy=policy, force=force
    )


@plain_errors
def publish(
    run: Run | Population | str | Path,
    out: str | Path,
    *,
    policy: str | None = None,
    licence: str = "unknown",
    chain: str | None = None,
    passes: int = 1,
    at: str | int = "newest",
    episodes: int = 20,
    greedy: bool = False,
    seed: int = 1_000_003,
    force: bool = False,
    discard_edits: bool = False,
) -> Publication:
    """Write a policy as a folder for a model hub, as `aclearn publish` does.

    It has ONNX models, the weights as safetensors, the configuration, an evaluation, a curve, a
    video, a model card, and for CartPole a page that plays it. `load` takes the folder.

    Args:
        run: a run or a population, whose best agent is published, or the path of its folder.
        out: the folder to make.
        policy: name of one of several to describe; None: all.
        licence: of the weights, as model hubs name it, e.g. "apache-2.0".
        chain: compression links of the second model, "" for none; None: those of the run.
        passes: number of compressions in a row; a student trains in each.
        at: which checkpoint, as of `load`.
        episodes: of the evaluation.
        greedy: take the most probable action in evaluation and video.
        seed: of environments and sampling.
        force: replace another publication.
        discard_edits: replace also its files that were edited since.

    Raises:
        AclearnError: the run, the chain or the folder cannot be used, or a model is wrong; nothing
            is written.
    """
    from services.commands.publishing.publish import publish as write

    return write(
        run.path if isinstance(run, Population) else _folder(run),
        as_path("out", out),
        policy=policy,
        licence=licence,
        words=chain,
        passes=at_least("passes", passes, 1),
        at=at,
        episodes=at_least("episodes", episodes, 1),
        greedy=greedy,
        seed=at_least("seed", seed, 0),
        force=force,
        discard_edits=discard_edits,
    )


@plain_errors
def make_env(
    config: Config | Run | str | Path,
    overrides: Overrides = (),
    *,
    seed: int = 0,
    render_mode: str | None = None,
) -> gymnasium.Env[Any, Any]:
    """One environment as the actors step it: preprocessed, with its frames stacked.

    Its observations and actions have the form of the environment's own spaces, which `Policy.act`
    takes and returns; parts that the policy does not see are missing, and a stack of pictures has
    an axis of the frames in front. Rewards are never clipped. If the configuration has action
    masks, `info["action_mask"]` `[A]` is for `act` too. Close it after use.

    Args:
        config: a configuration as of `train`, or a run or the path of its folder.
        overrides: as of `train`.
        seed: of the environment; `reset(seed=…)` makes it again with another one.
        render_mode: "rgb_array" for pictures by `render`, as `gymnasium.wrappers.RecordVideo` takes
            them, or another mode of the environment; of an Atari game the screens that the policy
            sees.

    Raises:
        AclearnError: the configuration is wrong, or the environment cannot be made.
    """
    from aclearn.envs.single_env import SingleEnv

    if isinstance(config, str | Path) and (Path(config) / "config.yaml").is_file():
        config = Run(config)
    loaded = _configured(config.config if isinstance(config, Run) else config, overrides)
    return SingleEnv(
        loaded.env,
        seed=at_least("seed", seed, 0),
        step_timeout_s=loaded.actors.step_timeout_s,
        render_mode=render_mode,
    )


@contextmanager
def _stopped_by_signals() -> Iterator[StopFlag]:
    """A flag that signals set; at the end the signal takes its usual effect."""
    # only the main thread may handle signals
    main = threading.current_thread() is threading.main_thread()
    with install_stop_signals() if main else StopFlag() as stop:
        yield stop
    if stop.reason is not None and stop.reason in signal.Signals.__members__:
        signal.raise_signal(signal.Signals[stop.reason])


def _configured(config: Config | str | Path | None, overrides: Overrides) -> Config:
    if isinstance(config, Config):
        return with_overrides(config, overrides)
    return load_config(config, overrides)  # type: ignore[arg-type]  # it checks the type


def _chosen(
    env: str | Callable[..., Any], overrides: Overrides, *, alone: bool | None = None
) -> Config:
    """The configuration that `--env` chooses; prints the chosen keys.

    Args:
        alone: whether the run is in this process; None: as `run.deterministic` says.
    """
    from services.commands.starting_point import tell_start_from

    given = override_keys(overrides)
    if alone is None:
        alone = given.get("run.deterministic") is True
    env_id, found = environment_name(env, alone=alone)
    return tell_start_from(env_id, {**found, **given})


def _folder(run: Run | str | Path) -> Path:
    return run.path if isinstance(run, Run) else as_path("run", run)
