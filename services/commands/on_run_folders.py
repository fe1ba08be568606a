"""The commands that read a run folder: evaluate, record, export, publish, compress, top."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aclearn.launch import install_stop_signals
from services.commands.options import ForceOption

if TYPE_CHECKING:
    from services.evaluator.evaluate import Evaluation
    from services.evaluator.play import Played

# imports inside the commands: they may take seconds

#: Seconds between two words of a long evaluation.
_SAY_EVERY_S = 5.0

RunArgument = Annotated[Path, typer.Argument(help="run folder, e.g. runs/pong-1")]
AtOption = Annotated[
    str,
    typer.Option(
        metavar="STEP|PERCENT|best|newest",
        help="checkpoint: after so many agent steps, nearest to 50% of the run, best or newest",
    ),
]
PolicyOption = Annotated[str | None, typer.Option(metavar="NAME", help="one of several policies")]
PassesOption = Annotated[
    int, typer.Option(min=1, help="compressions in a row; a student trains in each")
]


def evaluate(
    run: RunArgument,
    episodes: Annotated[int, typer.Option(min=1, help="episodes to play")] = 20,
    greedy: Annotated[bool, typer.Option("--greedy", help="take the most probable action")] = False,
    at: AtOption = "newest",
    policy: PolicyOption = None,
    seed: Annotated[
        int,
        typer.Option(min=0, max=2**31 - 1, help="seed of environments and sampling"),
    ] = 1_000_003,
    video: Annotated[
        Path | None,
        typer.Option(help="also record one more episode: FILE.gif, or FILE.mp4"),
    ] = None,
    force: ForceOption = False,
    max_steps: Annotated[
        int, typer.Option(min=1, help="agent steps after which an episode is cut")
    ] = 108_000,
) -> None:
    """Play episodes with a run's policies and print their scores."""
    from services.evaluator.evaluate import evaluate_run
    from services.evaluator.saved_policy import load_run
    from services.evaluator.video import check_video, write_video

    to = None if video is None else video.absolute()  # an environment may change the folder
    if video is not None:
        check_video(video, force=force)
    saved = load_run(run, at=at)  # once: a live run may write another checkpoint meanwhile
    if policy is not None:
        saved.policy(policy)  # refuses an unknown one before all play
    results = evaluate_run(
        saved,
        episodes=episodes,
        greedy=greedy,
        seed=seed,
        most_steps=max_steps,
        progress=_progress(episodes),
    )
    for name, result in results.items():
        if policy in (None, name):
            _say_score(result, name if len(results) > 1 else None, max_steps)
    if to is not None:
        pictures, seconds = write_video(saved, to, greedy=greedy, seed=seed, most_steps=max_steps)
        typer.echo(f"wrote {video}: {pictures} pictures, {seconds:.0f} s")


def _say_score(result: Evaluation, policy: str | None, max_steps: int) -> None:
    """Print a score; of several policies with the name and the mean length of episodes."""
    saved = result.saved_mean
    who = "" if policy is None else f" {policy}"
    long = "" if policy is None else f", {result.length_mean:.1f} steps long"
    of = "" if policy is None else " of the policies that count"
    typer.echo(
        f"{result.checkpoint.stem}{who}: {len(result.returns)} episodes{long}, "
        f"return {result.mean:.2f} ± {result.standard_error:.2f} (standard error; standard "
        f"deviation {result.deviation:.2f}, least {min(result.returns):.0f}, most "
        f"{max(result.returns):.0f}), "
        f"{'greedy' if result.greedy else 'sampled'}, after {result.updates} updates "
        f"and {result.env_steps} agent steps"
        + "".join(f", {name} {mean:.4g}" for name, mean in result.info.items())
        + ("" if saved is None else f"; saved as the best, with a mean of {saved:.2f}{of}")
    )
    if result.cut:
        typer.echo(
            f"{result.cut} of them did not end within {max_steps} steps and count with their "
            "returns so far; --max-steps sets this limit",
            err=True,
        )


def _progress(episodes: int) -> Callable[[Mapping[str, Played]], None]:
    """Says on standard error every few seconds how far an evaluation is."""
    said_at = time.monotonic()

    def say(by_policy: Mapping[str, Played]) -> None:
        nonlocal said_at
        played = next(iter(by_policy.values()))
        now = time.monotonic()
        if now - said_at >= _SAY_EVERY_S:
            said_at = now
            typer.echo(
                f"{len(played.returns)} of {episodes} episodes have ended; the longest of the "
                f"others has {played.running} steps",
                err=True,
            )

    return say


def record(
    run: RunArgument,
    out: Annotated[
        str, typer.Option(metavar="DATASET", help="name in Minari, e.g. cartpole/aclearn-v0")
    ],
    episodes: Annotated[int, typer.Option(min=1, help="episodes to play")] = 20,
    greedy: Annotated[bool, typer.Option("--greedy", help="take the most probable action")] = False,
    at: AtOption = "newest",
    policy: PolicyOption = None,
    seed: Annotated[
        int,
        typer.Option(min=0, max=2**31 - 1, help="seed of environments and sampling"),
    ] = 1_000_003,
    max_steps: Annotated[
        int, typer.Option(min=1, help="agent steps after which an episode is cut")
    ] = 108_000,
) -> None:
    """Play episodes with a run's policy and write them as a dataset of Minari."""
    from services.evaluator.record import record as write

    made = write(
        run,
        out,
        episodes=episodes,
        greedy=greedy,
        at=at,
        policy=policy,
        seed=seed,
        most_steps=max_steps,
    )
    mean = sum(made.returns) / len(made.returns)
    typer.echo(
        f"wrote {made.path}: {len(made.returns)} episodes, {made.steps} steps, mean return "
        f'{mean:.2f}; minari.load_dataset("{out}")'
    )


def export(
    run: RunArgument,
    to: Annotated[Path, typer.Option(help="file to write, e.g. policy.onnx")],
    chain: Annotated[
        str, typer.Option(help="links, e.g. prune=0.5,int8; empty: no compression")
    ] = "",
    passes: PassesOption = 1,
    at: AtOption = "newest",
    policy: PolicyOption = None,
    force: ForceOption = False,
) -> None:
    """Write a run's policy as a self-contained ONNX model, and check its output."""
    from services.commands.export import export_run

    artifact = export_run(run, to, words=chain, passes=passes, at=at, policy=policy, force=force)
    typer.echo(
        f"wrote {to}: {artifact.chain}, version {artifact.at.version}, {artifact.bytes:,} bytes of "
        f"weights, KL {artifact.fidelity.kl_mean:.3g} nats, same action on "
        f"{artifact.fidelity.agreement:.1%} of {artifact.fidelity.observations} observations that "
        "no link was fitted on"
    )


def publish(
    run: Annotated[Path, typer.Argument(help="run folder, or the folder of a population")],
    out: Annotated[Path, typer.Option(help="folder to make, e.g. hub/cartpole")],
    policy: Annotated[
        str | None, typer.Option(metavar="NAME", help="one of several policies; default: all")
    ] = None,
    licence: Annotated[
        str, typer.Option(help="licence of the weights, as model hubs name it, e.g. apache-2.0")
    ] = "unknown",
    chain: Annotated[
        str | None, typer.Option(help="links of the compressed model; default: the run's own")
    ] = None,
    passes: PassesOption = 1,
    at: AtOption = "newest",
    episodes: Annotated[int, typer.Option(min=1, help="episodes of the evaluation")] = 20,
    greedy: Annotated[bool, typer.Option("--greedy", help="take the most probable action")] = False,
    seed: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, help="seed of environments and sampling")
    ] = 1_000_003,
    force: Annotated[bool, typer.Option("--force", help="replace another publication")] = False,
    discard_edits: Annotated[
        bool,
        typer.Option("--discard-edits", help="with --force: also files that were edited since"),
    ] = False,
) -> None:
    """Write a policy as a folder for a model hub: models, weights, scores, card, page.

    `aclearn evaluate` takes the folder, and so does `aclearn.load`.
    """
    from services.commands.publishing.publish import publish as write

    made = write(
        run,
        out,
        policy=policy,
        at=at,
        words=chain,
        passes=passes,
        episodes=episodes,
        greedy=greedy,
        seed=seed,
        licence=licence,
        force=force,
        discard_edits=discard_edits,
        progress=_progress(episodes),
    )
    for name, why in made.missing.items():
        typer.echo(f"no {name}: {why}", err=True)
    typer.echo(f"wrote {out}: {', '.join(made.files)}")


def ensemble(
    members: Annotated[
        list[Path], typer.Argument(help="the folder of a population, or several run folders")
    ],
    to: Annotated[Path, typer.Option(help="run folder to make, e.g. runs/ensemble")],
    best: Annotated[
        int | None, typer.Option(min=2, help="members of a population to take; default: 3")
    ] = None,
    by: Annotated[
        str, typer.Option(metavar="mean|vote|means", help="how their distributions become one")
    ] = "mean",
    at: AtOption = "newest",
) -> None:
    """Make one policy of several: of the best members of a population, or of runs.

    The folder is used as that of a run: `aclearn evaluate`, `export`, `compress` and `backtest`
    take it, and so does `aclearn.load`.
    """
    from services.evaluator.ensemble import write_ensemble

    made = write_ensemble(members, to, by=by, best=best, at=at)
    typer.echo(f"wrote {to}: {made.architecture.name}, {made.architecture.parameters:,} weights")


def compress(
    run: RunArgument,
    chain: Annotated[str, typer.Option(help="links, e.g. prune=0.5,int8")],
    episodes: Annotated[
        int,
        typer.Option(min=0, help="greedy episodes to play with each policy"),
    ] = 5,
    passes: PassesOption = 1,
    at: AtOption = "newest",
    policy: PolicyOption = None,
) -> None:
    """Compare a compressed policy with the original: size, speed, distance, score."""
    from rich.console import Console

    from services.commands.compress import compress_run, table_of

    ways = compress_run(run, chain, episodes=episodes, passes=passes, at=at, policy=policy)
    Console().print(table_of(ways))


def top(
    run: RunArgument,
    once: Annotated[
        bool, typer.Option("--once", help="print the newest figures once and exit")
    ] = False,
) -> None:
    """Show where a run's time goes, the bottleneck, and which keys to change."""
    from services.commands.top import top as show

    with install_stop_signals() as stop:
        show(run, once=once, stream=sys.stdout, stop=stop)
