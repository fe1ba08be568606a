"""`run.flight_recorder`: the newest batches that a trainer learned, on disk."""

from __future__ import annotations

import logging
import platform
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from aclearn.files import FULL_DISK
from aclearn.learning import Batch, Learner, arrays_of
from aclearn.runs import BatchRing, Record

_LOGGER = logging.getLogger(__name__)

_CLOSE_WITHIN_S: Final = 1.0


class FlightRecorder:
    """Writes each batch before it is learned; a disk's failure ends it, and nothing else.

    A file of the ring begins with all that updates change, so that it needs no checkpoint. Several
    workers may call it; their batches are in the order in which they began.

    Args:
        ring: of this start of the trainer.
        learner: whose batches they are.
        folder: of the run.
        about: what the beginning of a file says beside the trainer's state.

    Attributes:
        batches: number of recorded ones that are there; 0 after a failure.
    """

    def __init__(
        self, ring: BatchRing, learner: Learner, *, folder: Path, about: dict[str, Any]
    ) -> None:
        self._ring, self._learner, self._folder, self._about = ring, learner, folder, about
        self._lock = threading.Lock()
        self._taken, self._beginning_bytes, self._ended = 0, 0, False
        self._workers: dict[int, int] = {}  # thread → its number
        self.batches = 0

    def take(self, batch: Batch, state: Callable[[], dict[str, Any]], updates: int) -> None:
        """Record a batch that the calling thread learns next.

        Args:
            state: gives the trainer's state, as in a checkpoint.
            updates: number of the trainer's updates until then.
        """
        with self._lock:
            if self._ended:
                return
            try:
                self._write(batch, state, updates)
            except OSError as error:
                # what the ring has would take the room of checkpoints
                self._end(f"{error.strerror} ({self._folder})", no_room=error.errno in FULL_DISK)

    def _write(self, batch: Batch, state: Callable[[], dict[str, Any]], updates: int) -> None:
        if self._ring.full:
            with self._learner.turn():
                data = {**state(), **self._about, "batch": self._taken}
                tensors = self._learner.state_tensors()
            self._beginning_bytes = self._ring.begin(Record(data, tensors))
        arrays, data = arrays_of(batch)
        generators = self._learner.state.generators.items()
        random = {name: generator.get_state().numpy() for name, generator in generators}
        random["torch"] = torch.get_rng_state().numpy()
        arrays |= {f"random/{name}": numbers for name, numbers in random.items()}
        about = {
            "batch": self._taken,
            "settings": self._learner.settings,
            "updates": updates,
            "worker": self._workers.setdefault(threading.get_ident(), len(self._workers)),
        }
        written = self._ring.append(Record({**about, **data}, arrays))
        self._taken, self.batches = self._taken + 1, self._ring.records
        if self._taken == 1:
            self._check_room(written)

    def _check_room(self, batch_bytes: int) -> None:
        needed = self._ring.bytes_of(batch_bytes, self._beginning_bytes)
        there = batch_bytes + self._beginning_bytes + shutil.disk_usage(self._folder).free
        if needed > there:
            self._end(
                f"run.flight_recorder: its batches need {needed / 1e9:.3g} GB, and "
                f"{self._folder} has room for {there / 1e9:.3g} GB; keep fewer, or set run.dir to "
                "a larger disk",
                no_room=True,
            )

    def _end(self, reason: str, *, no_room: bool) -> None:
        self._ended, self.batches = True, 0
        _LOGGER.warning("event=flight_recorder_ended batches=%d reason=%r", self._taken, reason)
        self._give_up(self._ring.remove if no_room else self._ring.close)

    def close(self) -> None:
        """Close the file; the ring stays. A disk that hangs is not waited for."""
        if self._lock.acquire(timeout=_CLOSE_WITHIN_S):
            self._ended = True
            self._give_up(self._ring.close)
            self._lock.release()

    def _give_up(self, ring: Callable[[], None]) -> None:
        """Close or remove the ring; a disk that fails costs nothing else."""
        try:
            ring()
        except OSError as error:
            _LOGGER.warning("event=flight_recorder_not_closed reason=%r", error.strerror)


def machine_of(device: torch.device) -> dict[str, str]:
    """What the bits of an update depend on beside its numbers."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return {
        "processor": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "device": gpu or device.type,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
