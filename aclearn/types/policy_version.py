"""Order of all weights of a run, and of the policies made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, order=True)
class PolicyVersion:
    """Orders all weights: a restarted trainer raises `generation`, each publication `version`.

    (-1, -1) precedes all published versions.
    """

    generation: int = -1
    version: int = -1


class PolicyId(NamedTuple):
    """An acting policy: the version of its weights, and the id of the chain that compressed them.

    "none" means the trainer's weights themselves.
    """

    at: PolicyVersion = PolicyVersion()
    chain: str = "none"

    def replaces(self, other: PolicyId) -> bool:
        """Whether it has newer weights, or another chain at the same version."""
        return self.at > other.at or (self.at == other.at and self.chain != other.chain)
