"""A training whose actors get weights of so many versions before; all roles in one process.

The seed alone decides the result, and not the machine's speed, unless the training is cut.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aclearn.config import load_config
from aclearn.runs import read_metrics
from aclearn.runs.summary import read_summary
from aclearn.wire import ArtifactReply, Weights, decode, encode
from services.actor.env_groups import make_groups
from services.launcher.in_process_run import InProcessRun
from services.launcher.local_run import open_run_folder


class HoldBack:
    """Delivers to actors the weights or the artifact of `lag` versions before."""

    def __init__(self, lag: int) -> None:
        self._lag = lag
        self._kept: dict[int, Weights | ArtifactReply] = {}

    def __call__(self, sender: str, receiver: str, frames: list[bytes]) -> Sequence[list[bytes]]:
        """The message in place of one."""
        envelope = decode(frames)
        newest = envelope.message
        if not (receiver.startswith("actor-") and isinstance(newest, Weights | ArtifactReply)):
            return [frames]
        self._kept[newest.version] = newest
        old_enough = [v for v in self._kept if v <= newest.version - self._lag]
        version = max(old_enough, default=min(self._kept))
        for older in [v for v in self._kept if v < version]:
            del self._kept[older]
        header = {"run": envelope.run, "incarnation": envelope.incarnation}
        message = encode(self._kept[version], sequence=envelope.sequence, **header)
        return [[bytes(frame) for frame in message]]


class Trained(NamedTuple):
    """A training that is over.

    Attributes:
        lines: metrics lines that have a mean return, which every environment must have ended for.
        ended: the reason of its end, as in `summary.json`.
    """

    lines: list[dict[str, Any]]
    ended: str

    @property
    def env_steps(self) -> int:
        """Agent steps."""
        return int(self.lines[-1]["env_steps"])

    @property
    def mean_return(self) -> float:
        """The mean over all agent steps of the mean return of 100 episodes: the curve's area."""
        area, before = 0.0, 0
        for line in self.lines:
            area += (line["env_steps"] - before) * line["return_mean_100"]
            before = line["env_steps"]
        return area / before

    def mean_of(self, name: str) -> float | None:
        """The mean of a figure over the lines that have it; None without any."""
        found = [line[name] for line in self.lines if line.get(name) is not None]
        return sum(found) / len(found) if found else None


def train_lagged(config: Path, overrides: Sequence[str], lag: int) -> Trained:
    """Train on one core with data of `lag` versions before, to the bounds in the overrides.

    Raises:
        AclearnError: the configuration is wrong, or learning is lost.
    """
    with tempfile.TemporaryDirectory() as directory:
        fixed = [
            f"run.dir={directory}",
            "run.name=r",
            "run.deterministic=true",
            "run.stop_at_target=false",
            "run.metrics_every_s=0.5",
            "compressor.every_s=0",
            # once in thirteen rounds: links have observations from the second version on
            "compressor.observations_every_s=0.05",
            "trainer.max_lag_versions=1000",
        ]
        loaded = load_config(config, [*fixed, *overrides])
        [group] = make_groups(loaded)
        group.env.close()
        with open_run_folder(loaded, resume=False) as folder:
            roles = InProcessRun(loaded, folder, group.env.spec)
            if lag:
                roles.network.deliver = HoldBack(lag)
            roles.start_all()
            try:
                while roles.round():
                    pass
            finally:
                roles.close()
        lines = list(read_metrics(Path(directory, "r", "metrics.jsonl")))
        summary = read_summary(Path(directory, "r", "summary.json")) or {}
    known = [line for line in lines if line["return_mean_100"] is not None]
    return Trained(known, str(summary.get("reason")))
