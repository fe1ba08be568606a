"""The newest published weights."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aclearn.types import PolicyVersion


@dataclass(frozen=True)
class PublishedWeights:
    """One version and its tensors, which never change."""

    at: PolicyVersion
    tensors: Mapping[str, NDArray[np.float32]]


class ParameterStore:
    """Holds the newest published weights. Thread-safe; the swap is one reference assignment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: PublishedWeights | None = None

    def publish(self, at: PolicyVersion, tensors: Mapping[str, NDArray[np.float32]]) -> None:
        """Make `tensors` the newest weights; the caller must not write to them any more.

        Raises:
            ValueError: `at` is not newer than the published version.
        """
        with self._lock:
            if self._newest is not None and at <= self._newest.at:
                raise ValueError(f"version {at} is not newer than the published {self._newest.at}")
            self._newest = PublishedWeights(at, tensors)

    def newer_than(self, known: PolicyVersion) -> PublishedWeights | None:
        """The newest weights if they are newer than `known`, else None."""
        newest = self._newest
        return newest if newest is not None and newest.at > known else None

    @property
    def at(self) -> PolicyVersion:
        """The newest version, (-1, -1) before the first publication."""
        newest = self._newest
        return PolicyVersion() if newest is None else newest.at
