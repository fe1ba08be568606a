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

from aclearn.config import Config
from aclearn.launch.resources import usable_cores
from aclearn.runs import write_atomically

_LOGGER = logging.getLogger(__name__)

#: Beside the run folders, which share it; no run has such a name.
TUNED_FOLDER = ".tuned"

#: Groups of the configuration on which the best counts depend.
_DECIDING_GROUPS = ("env", "policy", "actors", "predictor", "compressor", "trainer")

#: Where a tuned count is configured.
_CONFIGURED_AT = {
    "predictors": ("predictor", "workers"),
    "trainers": ("trainer", "workers"),
    "actors": ("actors", "processes"),
}


def _workload(config: Config) -> dict[str, Any]:
    """The machine and a digest of the workload, for which counts are the best.

    The device is the configured one. Resolving "auto" needs torch, which the monitor does not load:
    a machine that gains or loses its GPU keeps its file.
    """
    parts = {name: getattr(config, name).model_dump(mode="json") for name in _DECIDING_GROUPS}
    for count in config.tuner.counts:
        # tuned counts are the result and no part of the workload
        group, key = _CONFIGURED_AT[count]
        parts[group].pop(key, None)
    parts["tuner"] = [sorted(set(config.tuner.counts)), config.tuner.objective]
    machine = {"host": socket.gethostname(), "cpus": usable_cores()}
    return machine | {"device": config.trainer.device, "digest": _digest(parts)}


class RememberedCounts:
    """The best counts so far for one machine and configuration, in a JSON file.

    A file that cannot be used is reported, counted and left unchanged; the run continues without
    it.

    Attributes:
        warnings: how often the file could not be used.
    """

    def __init__(self, config: Config) -> None:
        self._workload = _workload(config)
        self.path = Path(config.run.dir) / TUNED_FOLDER / f"{_digest(self._workload)}.json"
        self.warnings = 0
        self._usable = True

    def read(self) -> dict[str, int] | None:
        """The remembered counts; None where there are none."""
        self._usable = True
        try:
            counts = json.loads(self.path.read_bytes())["counts"]
            if not all(type(count) is int for count in counts.values()):
                raise TypeError("a count is not a whole number")
            return dict(counts)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"cannot be read ({error.strerror})")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            self._warn(f'expected {{"counts": {{"trainers": 2}}, ...}} ({error!r:.200})')
        return None

    def write(self, counts: Mapping[str, int], rate: float) -> bool:
        """Save counts and their rate per second; False when that failed."""
        self.read()
        if not self._usable:
            return False
        content = {**self._workload, "counts": dict(counts), "rate": rate, "at": time.time()}
        try:
            self.path.parent.mkdir(exist_ok=True)
            write_atomically(self.path, json.dumps(content, indent=1).encode())
        except OSError as error:
            self._warn(f"cannot be written ({error.strerror})")
            return False
        return True

    def _warn(self, reason: str) -> None:
        self._usable = False
        self.warnings += 1
        _LOGGER.warning(
            "event=tuned_not_used path=%s reason=%r detail='remove it to have it written again'",
            *(self.path, reason),
        )


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
