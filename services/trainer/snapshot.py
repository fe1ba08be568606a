"""The contents of a checkpoint, in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from aclearn.learning import StepAccount
from aclearn.runs.checkpoint import prefix_of, tensors_of
from aclearn.types import PolicyVersion

_LENGTH_BYTES = 8


@dataclass(frozen=True)
class Snapshot:
    """A trainer's state; `judged` in it marks the best.

    That of several policies has the tensors of each under `policy/<name>/`, and its state under
    `policies`; the sums of all are beside them.
    """

    tensors: dict[str, NDArray[Any]]
    state: dict[str, Any]

    @property
    def at(self) -> PolicyVersion:
        """Generation and version of the weights."""
        return PolicyVersion(self.state["generation"], self.state["counters"]["policy_version"])

    @property
    def updates(self) -> int:
        """Updates of the weights, of all policies together: one may stand still for long."""
        states = self.state.get("policies", {"": self.state}).values()
        return sum(int(state["counters"]["updates"]) for state in states)

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

    @classmethod
    def joined(
        cls, parts: Mapping[str, Snapshot], *, learning: Sequence[str], digest: str
    ) -> Snapshot:
        """The snapshots of several policies as one.

        Args:
            learning: those that the sums are of.
            digest: of all architectures.
        """
        tensors = {
            f"{prefix_of(name)}{key}": tensor
            for name, part in parts.items()
            for key, tensor in part.tensors.items()
        }
        states = [parts[name].state for name in learning]
        least = min((state["counters"] for state in states), key=lambda each: each["updates"])
        state = {
            "architecture": digest,
            "generation": states[0]["generation"],
            "counters": least,
            "account": {
                key: sum(state["account"][key] for state in states)
                for key in ("env_steps", "learned_steps")
            },
            "policies": {name: part.state for name, part in parts.items()},
            "judged": None,
        }
        return cls(tensors, state)

    def tensors_of(self, policy: str) -> dict[str, NDArray[Any]]:
        """The tensors of one of several policies, by their names in a run of it alone."""
        return tensors_of(policy, self.tensors)

    def of_policy(self, policy: str) -> Snapshot:
        """The snapshot of one of several policies, as of a run of it alone."""
        if "policies" not in self.state:
            return self
        return Snapshot(self.tensors_of(policy), self.state["policies"][policy])

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
