"""The worker counts that tuners found best, remembered for later runs."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aclearn.config import Config
from aclearn.launch.resources import usable_cores
from aclearn.runs import write_atomically

_LOGGER = logging.getLogger(__name__)

TUNED_FILE = "tuned.json"

#: Groups of the configuration that say what is computed and by whom: they decide which counts are
#: best, where the others (loss, optimiser, run and so on) do not.
_DECIDING_GROUPS = ("env", "policy", "actors", "predictor", "compressor", "trainer")

#: Where a tuned count is configured.
_CONFIGURED_AT = {
    "predictors": ("predictor", "workers"),
    "trainers": ("trainer", "workers"),
    "actors": ("actors", "processes"),
}

#: Settings that are remembered; the oldest is forgotten first.
_MOST_SETTINGS = 1000

#: Longest wait for another run that writes the same file, in seconds.
_LOCK_WITHIN_S = 2.0


@dataclass(frozen=True)
class TunedKey:
    """For what a setting was the best.

    Attributes:
        cpus: that this process may use.
        device: of the trainer, as configured. What "auto" comes to takes torch to know, which the
            monitor does not load: a machine that gains or loses its GPU keeps its entry.
        digest: of the configuration's parts that decide which counts are best.
    """

    host: str
    cpus: int
    device: str
    digest: str


def tuned_key(config: Config) -> TunedKey:
    """The key of this machine and configuration."""
    parts: dict[str, Any] = {
        name: getattr(config, name).model_dump(mode="json") for name in _DECIDING_GROUPS
    }
    for count in config.tuner.counts:
        # what the tuner leaves alone is part of the question that it answers, this is the answer
        group, key = _CONFIGURED_AT[count]
        parts[group].pop(key, None)
    parts["tuner"] = [sorted(set(config.tuner.counts)), config.tuner.objective]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    return TunedKey(socket.gethostname(), usable_cores(), config.trainer.device, digest)


class TunedSettings:
    """The best counts found so far, for each machine and configuration, in one JSON file.

    A file that cannot be used is reported, counted and left as it is; the run goes on without it.

    Attributes:
        warnings: how often the file could not be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.warnings = 0

    def find(self, key: TunedKey) -> dict[str, int] | None:
        """The counts that are remembered for `key`, None when there are none."""
        settings = self._read()
        for entry in settings or []:
            if all(entry.get(name) == value for name, value in asdict(key).items()):
                return dict(entry["counts"])
        return None

    def remember(self, key: TunedKey, counts: Mapping[str, int], rate: float) -> bool:
        """Put the counts in place of what was remembered for `key`; False when that failed.

        Args:
            key: for what they are the best.
            counts: by name.
            rate: estimated rate of the objective, per second; for who reads the file.
        """
        with _locked(self._path.parent):
            return self._put(key, counts, rate)

    def _put(self, key: TunedKey, counts: Mapping[str, int], rate: float) -> bool:
        settings = self._read()
        if settings is None:
            return False
        named = asdict(key)
        others = [e for e in settings if any(e.get(n) != value for n, value in named.items())]
        entry = {**named, "counts": dict(counts), "rate": rate, "written_at": time.time()}
        content = {"settings": [*others, entry][-_MOST_SETTINGS:]}
        try:
            write_atomically(self._path, json.dumps(content, indent=1).encode())
        except OSError as error:
            self._warn(f"cannot be written ({error.strerror})")
            return False
        return True

    def _read(self) -> list[dict[str, Any]] | None:
        """Its entries; empty without a file, None when there is one that cannot be used."""
        try:
            content = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return []
        except OSError as error:
            self._warn(f"cannot be read ({error.strerror})")
            return None
        except (ValueError, RecursionError) as error:
            self._warn(f"is no JSON ({error}); remove it, and it will be written anew")
            return None
        settings = content.get("settings") if isinstance(content, dict) else None
        if not isinstance(settings, list) or not all(map(_is_entry, settings)):
            self._warn(
                'expected {"settings": [{"host": ..., "counts": {"trainers": 2}}, ...]}; '
                "remove it, and it will be written anew"
            )
            return None
        return settings

    def _warn(self, reason: str) -> None:
        self.warnings += 1
        _LOGGER.warning("event=tuned_not_used path=%s reason=%r", self._path, reason)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Nobody else's between reading and writing: runs that share the folder may end together.

    Where the lock cannot be had the body runs without it: what may be lost is one entry.
    """
    descriptor = None
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        deadline = time.monotonic() + _LOCK_WITHIN_S
        while time.monotonic() < deadline:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
    except OSError as error:  # no such folder, or one that knows no locks
        _LOGGER.warning("event=tuned_not_locked folder=%s reason=%r", folder, error.strerror)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _is_entry(entry: Any) -> bool:
    counts = entry.get("counts") if isinstance(entry, dict) else None
    return isinstance(counts, dict) and all(
        isinstance(count, int) and not isinstance(count, bool) for count in counts.values()
    )
