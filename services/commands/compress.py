"""`aclearn compress`: compares a chain with the uncompressed policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from compress import Artifact
from services.commands.offline_compression import (
    BATCH_SIZES,
    SEED,
    chain_of_words,
    compress_with,
    visit_run,
    with_runtime,
)
from services.evaluator.play import play, players_of
from services.evaluator.saved_policy import load_run
from services.policy.factory import warn_of_idle_links


@dataclass(frozen=True)
class WayToAct:
    """One way to run the policy.

    Attributes:
        returns: of its greedy episodes; empty when none were played.
    """

    name: str
    artifact: Artifact
    returns: Sequence[float]

    @property
    def mean_return(self) -> float | None:
        """Mean greedy return, None without episodes."""
        return float(np.mean(self.returns)) if self.returns else None


def compress_run(
    path: Path,
    words: str,
    *,
    episodes: int = 0,
    passes: int = 1,
    at: str | int = "newest",
    policy: str | None = None,
) -> list[WayToAct]:
    """The run's policy in eager torch, in ONNX fp32, and through a chain.

    Args:
        words: the chain, e.g. "prune=0.5,int8"; "onnx" is added if it names no runtime.
        policy: name of one of several; the others play uncompressed.

    Raises:
        AclearnError: the run or the chain cannot be used.
    """
    run = load_run(path, at=at)
    saved = run.policy(policy)
    chain = chain_of_words(with_runtime(words))
    chain.plan(saved.architecture)
    warn_of_idle_links(chain)
    visited = visit_run(run, saved.name)
    ways = []
    uncompressed = {"eager torch fp32": chain_of_words([]), "ONNX fp32": chain_of_words(["onnx"])}
    for name, each in {**uncompressed, chain.id: chain}.items():
        artifact, executable = compress_with(saved, each, visited, passes if each is chain else 1)
        returns: Sequence[float] = ()
        if episodes:
            players = players_of(run, greedy=True, instead={saved.name: executable})
            returns = play(run, players, episodes=episodes, seed=SEED)[saved.name].returns
        ways.append(WayToAct(name, artifact, returns))
    return ways


# bytes are the widest numbers; in a narrow terminal only names are wrapped
_FIGURE_WIDTH = 12


def table_of(ways: Sequence[WayToAct]) -> Table:
    """One column a way to run the policy; latencies are medians in ms a call."""
    table = Table(
        title="ways to run the policy, each with one thread",
        caption="bytes: of the weights; batch N: median time of a call with N observations; KL: "
        "divergence from the uncompressed policy in nats, on observations that no link was fitted "
        "on; same action: share of them with the same most probable action; greedy return: mean of "
        "the episodes played with it",
        caption_justify="left",
    )
    table.add_column("policy", no_wrap=True)
    for way in ways:
        table.add_column(way.name, justify="right", overflow="fold", min_width=_FIGURE_WIDTH)
    columns = [_figures(way) for way in ways]
    for measure in columns[0]:
        table.add_row(measure, *(figures[measure] for figures in columns))
    return table


def _figures(way: WayToAct) -> dict[str, str]:
    artifact, fidelity = way.artifact, way.artifact.fidelity
    return {
        "bytes": f"{artifact.bytes:,}",
        **{f"batch {size}, ms": f"{artifact.latency_ms[size]:.3f}" for size in BATCH_SIZES},
        "KL mean": f"{fidelity.kl_mean:.3g}",
        "KL variance": f"{fidelity.kl_variance:.3g}",
        "KL max": f"{fidelity.kl_max:.3g}",
        "same action": f"{fidelity.agreement:.1%}",
        "greedy return": "-" if way.mean_return is None else f"{way.mean_return:.2f}",
    }
