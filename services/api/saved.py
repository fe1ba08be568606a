"""The functions of the Python API that use what was trained: runs, policies and environments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aclearn.config import Config
from aclearn.extensions import search_modules_in
from aclearn.runs import is_publication
from services.api.configurations import Overrides, configured
from services.api.plain_errors import as_path, at_least, plain_errors
from services.api.policy import Policy
from services.api.population import Population
from services.api.run import Run

if TYPE_CHECKING:
    import gymnasium

    from compress import Artifact
    from services.commands.publishing.folder import Publication

# imports inside the functions: they may take seconds


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
    members: Population | Run | str | Path | Sequence[Run | str | Path],
    to: str | Path,
    *,
    best: int | None = None,
    by: str = "mean",
    at: str | int = "newest",
) -> Path:
    """Make one policy of several, as `aclearn ensemble` does; its folder is used as that of a run.

    Args:
        members: a population or its folder, or several runs.
        to: the run folder to make.
        best: members of a population to take; None: 3.
        by: "mean" of their distributions, "vote", or "means" of numbers.
        at: which checkpoint of each run; of a population it is the one that was judged.

    Raises:
        AclearnError: a member cannot be used, they have unlike spaces, or the folder exists.
    """
    from services.evaluator.ensemble import write_ensemble

    best = None if best is None else at_least("best", best, 2)
    one = isinstance(members, (str, Path, Run, Population))
    given: list[Any] = [members] if one else list(members)  # type: ignore[arg-type]
    paths = [each.path if isinstance(each, Population) else _folder(each) for each in given]
    write_ensemble(paths, Path(to), by=by, best=best, at=at)
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
    loaded = configured(config.config if isinstance(config, Run) else config, overrides)
    if not (isinstance(config, Run) and is_publication(config.path)):  # a stranger's
        search_modules_in(loaded.run.pythonpath)
    return SingleEnv(
        loaded.env,
        seed=at_least("seed", seed, 0),
        step_timeout_s=loaded.actors.step_timeout_s,
        render_mode=render_mode,
    )


def _folder(run: Run | str | Path) -> Path:
    return run.path if isinstance(run, Run) else as_path("run", run)
