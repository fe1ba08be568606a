"""The contents of a checkpoint, in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from aclearn.learning import StepAccount
from aclearn.types import PolicyVersion

_LENGTH_BYTES = 8


@dataclass(frozen=True)
class Snapshot:
    """A trainer's state; `judged` in it marks the best."""

    tensors: dict[str, NDArray[Any]]
    state: dict[str, Any]

    @property
    def at(self) -> PolicyVersion:
        """Generation and version of the weights."""
        return PolicyVersion(self.state["generation"], self.state["counters"]["policy_version"])

    @property
    def updates(self) -> int:
        """Updates of the weights."""
        return int(self.state["counters"]["updates"])

    @property
    def env_steps(self) -> int:
        """Agent steps of the account."""
        return int(self.state["account"]["env_steps"])

    def ledgers(self, ranks: int) -> list[dict[str, Any]]:
        """The account of each rank; another number of ranks begins with the sum in rank 0.

        Actors of a run with another number of ranks are new ones, so no account need know them.
        """
        saved: list[dict[str, Any]] = self.state.get("ledgers", [])
        if len(saved) == ranks:
            return saved
        account = self.state["account"]
        empty = StepAccount(policy=account["policy"]).state()
        return [account, *[empty] * (ranks - 1)]

    def judged(self, return_mean: float, by: Mapping[str, Any]) -> Snapshot:
        """A copy that is marked as the best, with its mean return and by whom it is."""
        return Snapshot(self.tensors, self.state | {"judged": {**by, "return_mean": return_mean}})

    def packed(self) -> bytes:
        """It as bytes, for another rank."""
        text = json.dumps(self.state).encode()
        whole = {name: np.array(tensor, order="C") for name, tensor in self.tensors.items()}
        return len(text).to_bytes(_LENGTH_BYTES) + text + safetensors.numpy.save(whole)

    @classmethod
    def unpacked(cls, packed: bytes) -> Snapshot:
        """The one that gave `packed`."""
        end = _LENGTH_BYTES + int.from_bytes(packed[:_LENGTH_BYTES])
        return cls(safetensors.numpy.load(packed[end:]), json.loads(packed[_LENGTH_BYTES:end]))
