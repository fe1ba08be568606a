"""Publishes a run: gathers its models, weights, evaluation, curve, video, card and page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import safetensors.numpy

from aclearn.errors import ArgumentError, EnvironmentFailure, RunFolderError
from aclearn.metrics.seed_statistics import mean_interval
from aclearn.population.file import best_folder
from aclearn.runs import is_population, read_metrics, write_file
from aclearn.views.curve import read_curves
from aclearn.views.learning_curves import figure_of_curves, write_picture
from aclearn.views.population_plot import figure_of_population
from compress import Artifact
from services.commands.export import exported
from services.commands.offline_compression import with_runtime
from services.commands.publishing.card import Card, card_of
from services.commands.publishing.folder import Publication, files_of, new_folder
from services.commands.publishing.page import why_no_page, write_page
from services.commands.publishing.weights import place_of, write_run
from services.evaluator.evaluate import Evaluation, evaluate_run
from services.evaluator.play import Played
from services.evaluator.saved_policy import SavedRun, load_run
from services.evaluator.video import write_video

UNKNOWN_LICENCE: Final = "unknown"
_LICENCE: Final = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_RUNTIMES: Final = ("onnx", "torchscript")
SEED: Final = 1_000_003


def publish(
    path: Path,
    out: Path,
    *,
    policy: str | None = None,
    at: str | int = "newest",
    words: str | None = None,
    passes: int = 1,
    episodes: int = 20,
    greedy: bool = False,
    seed: int = SEED,
    licence: str = UNKNOWN_LICENCE,
    force: bool = False,
    discard_edits: bool = False,
    progress: Callable[[Mapping[str, Played]], None] = lambda played: None,
) -> Publication:
    """Write the folder of a run's policies, or of a population's best agent.

    Args:
        policy: the one of several that is exported and described; all play and are in the
            checkpoint. None: all.
        words: the chain of the compressed model, "" for none; None: the run's own.
        licence: of the weights, as model hubs name it, e.g. "apache-2.0".
        force: replace another publication.
        discard_edits: replace also its files that were edited since.

    Raises:
        AclearnError: the run, the chain or the folder cannot be used, or a model is wrong; nothing
            is written.
    """
    licence = _checked(licence)
    path, out = path.absolute(), out.absolute()  # an environment may change the working directory
    source = best_folder(path) if is_population(path) else path
    run = load_run(source, at=at)
    names = list(run.policies) if policy is None else [run.policy(policy).name]
    missing: dict[str, str] = {}
    with new_folder(out, force=force, discard_edits=discard_edits) as folder:
        chain = _chain_of(run) if words is None else with_runtime(words)
        models = {name: _write_models(run, name, chain, passes, folder) for name in names}
        if not chain:
            missing["policy-compressed.onnx"] = "no chain compresses it; --chain int8 adds one"
        write_run(run, folder)
        scores = evaluate_run(run, episodes=episodes, greedy=greedy, seed=seed, progress=progress)
        scores = {name: scores[name] for name in names}
        _write_scores(run, scores, seed, folder)
        video = "video.gif" if find_spec("imageio_ffmpeg") is None else "video.mp4"
        try:
            write_video(run, folder / video, greedy=greedy, seed=seed)
        except (ArgumentError, EnvironmentFailure) as error:  # it cannot be drawn
            missing[video] = str(error)
        try:
            evolved = is_population(path)
            figure = figure_of_population(path) if evolved else figure_of_curves(read_curves(path))
            write_picture(figure, folder / "curve.png")
        except RunFolderError as error:  # an ensemble, or no episode has ended yet
            missing["curve.png"] = str(error)
        why = why_no_page(run)
        if why is None:
            write_page(run, out.name, folder)
        else:
            missing["index.html"] = why
        card = Card(
            title=out.name,
            run=run,
            scores=scores,
            models=models,
            licence=licence,
            video=None if video in missing else video,
            curve="curve.png" not in missing,
            page=why is None,
            wall_s=_wall_s(source, run),
        )
        write_file(folder / "README.md", card_of(card, folder).encode(), "--out")
    return Publication(out, files_of(out), missing)


def _checked(licence: str) -> str:
    found = licence.strip().lower()
    if not _LICENCE.fullmatch(found):
        raise ArgumentError(
            f"--licence: expected the identifier of a licence, e.g. apache-2.0, mit or cc-by-4.0, "
            f"got {licence!r:.60}"
        )
    return found


def _chain_of(run: SavedRun) -> list[Any]:
    """The run's first chain, the most compressed one of a ladder, to end in onnx; or none."""
    chains = [*run.config.compressor.rungs, run.config.resident.chain]
    links = next((chain for chain in chains if chain), [])
    links = [link for link in links if link not in _RUNTIMES]
    return [*links, "onnx"] if links else []


def _write_models(
    run: SavedRun, name: str, chain: Sequence[Any], passes: int, folder: Path
) -> dict[str, Artifact]:
    """Write a policy's ONNX models and weights; returns the models' file names → artifacts."""
    place, saved = folder / place_of(run, name), run.policies[name]
    artifacts = {}
    for file, links in {"policy.onnx": [], "policy-compressed.onnx": chain}.items():
        if links or file == "policy.onnx":
            artifacts[file], model = exported(run, name, links, passes)
            write_file(place / file, model, "--out")
    weights = {tensor: np.asarray(array, order="C") for tensor, array in saved.weights.items()}
    write_file(place / "model.safetensors", safetensors.numpy.save(weights), "--out")
    return artifacts


def _write_scores(run: SavedRun, scores: Mapping[str, Evaluation], seed: int, folder: Path) -> None:
    document = {
        "environment": run.config.env.id,
        "seed": seed,
        "policies": {
            name: {
                "return_mean": score.mean,
                "return_interval_95": mean_interval(score.returns),
                "return_deviation": score.deviation,
                "return_standard_error": score.standard_error,
                "returns": score.returns,
                "lengths": score.lengths,
                "greedy": score.greedy,
                "cut": score.cut,
                "info": dict(score.info),
            }
            for name, score in scores.items()
        },
    }
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    write_file(folder / "evaluation.json", text.encode(), "--out")


def _wall_s(source: Path, run: SavedRun) -> float | None:
    """Seconds of training until the checkpoint, by the run's metrics; None without any."""
    path = source / "metrics.jsonl"
    names = ("env_steps", "time_s")
    lines = read_metrics(path) if path.exists() else []
    lines = [line for line in lines if all(name in line for name in names)]
    if not lines:
        return None
    env_steps, time_s = ([line[name] for line in lines] for name in names)
    return float(np.interp(run.checkpoint.state["account"]["env_steps"], env_steps, time_s))
