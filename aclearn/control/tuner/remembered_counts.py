"""The best worker counts of earlier runs."""

from __future__ import annotations

import hashlib
import json
import logging
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aclearn.config import TUNED_COUNTS, Config
from aclearn.runs import write_atomically
from aclearn.telemetry.cores import usable_cores

_LOGGER = logging.getLogger(__name__)

#: Beside the run folders, which share it; no run has such a name.
_FOLDER = ".tuned"

#: Groups of the configuration on which the best counts depend.
_DECIDING_GROUPS = ("env", "policy", "actors", "predictor", "compressor", "trainer")


class RememberedCounts:
    """The best counts so far for one machine and workload, in a JSON file.

    A file that cannot be used is reported and counted; the run continues without it.

    Attributes:
        warnings: how often the file could not be used.
    """

    def __init__(self, config: Config) -> None:
        parts = {name: getattr(config, name).model_dump(mode="json") for name in _DECIDING_GROUPS}
        for count in config.tuner.counts:
            # tuned counts are the result and no part of the workload
            group, key = TUNED_COUNTS[count]
            parts[group].pop(key, None)
        parts["tuner"] = [sorted(set(config.tuner.counts)), config.tuner.objective]
        # Resolving the device "auto" needs torch, which the monitor does not load: a machine that
        # gains or loses its GPU keeps its file.
        machine = {"host": socket.gethostname(), "cpus": usable_cores()}
        self._workload = {**machine, "device": config.trainer.device, "digest": _digest(parts)}
        self.path = Path(config.run.dir) / _FOLDER / f"{_digest(self._workload)}.json"
        self.warnings = 0

    def read(self, most: Mapping[str, int]) -> dict[str, int] | None:
        """The remembered counts within these bounds; None where there are none."""
        try:
            counts: Any = json.loads(self.path.read_bytes())["counts"]
            if not fit(counts, most):
                raise ValueError(f"expected counts within {dict(most)}, got {counts!r:.100}")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            self._warn("read", error)
            return None
        return dict(counts)

    def write(self, counts: Mapping[str, int], rate: float) -> None:
        """Save counts and their rate per second."""
        content = {**self._workload, "counts": dict(counts), "rate": rate, "at": time.time()}
        try:
            self.path.parent.mkdir(exist_ok=True)
            write_atomically(self.path, json.dumps(content, indent=1).encode())
        except OSError as error:
            self._warn("written", error)

    def _warn(self, done: str, error: Exception) -> None:
        self.warnings += 1
        _LOGGER.warning(
            "event=tuned_not_used path=%s reason=%r detail='the next best counts replace it'",
            *(self.path, f"cannot be {done}: {error!r:.200}"),
        )


def fit(counts: Any, most: Mapping[str, int]) -> bool:
    """Whether counts from a file have these names and lie within these bounds."""
    return (
        isinstance(counts, dict)
        and counts.keys() == most.keys()
        and all(type(n) is int and 1 <= n <= most[name] for name, n in counts.items())
    )


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
