"""The order of all weights of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class PolicyVersion:
    """Orders all weights: a restarted trainer raises `generation`, each publication `version`.

    (-1, -1) is older than everything that is published.
    """

    generation: int = -1
    version: int = -1
