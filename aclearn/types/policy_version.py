"""The order of all weights of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class PolicyVersion:
    """Orders all weights of a run: a restarted trainer raises `epoch`, each publication `version`.

    (-1, -1) is older than everything that is published.
    """

    epoch: int = -1
    version: int = -1
