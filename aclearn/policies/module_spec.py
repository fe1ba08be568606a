"""A torch module of the user's own as plain data, so that a process without torch can run it."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from aclearn.types import ObservationSpec

#: Characters of a graph at most: it travels in the header of each artifact.
MOST_ONNX_CHARACTERS = 40_000


@dataclass(frozen=True)
class ModuleSpec:
    """A torch module that `policy.architecture: module:Class` names.

    Attributes:
        arguments: keyword arguments of its constructor, as JSON.
        parameters: P, the numbers of the distribution of actions.
        tensors: name and shape of each parameter, in its own order.
        onnx: its graph without weights, `inputs` → `[N, acting]` float32, as `packed`; empty if its
            weights cannot be swapped, so that each version is exported.
        state: shapes of what it keeps from step to step, without the batch.
    """

    name: str
    arguments: str
    observation: ObservationSpec
    parameters: int
    critic: str
    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    onnx: str = field(default="", compare=False, repr=False)  # torch's versions differ in it
    state: tuple[tuple[int, ...], ...] = ()

    @property
    def state_units(self) -> tuple[int, ...]:
        """Numbers of each part of the state."""
        return tuple(map(prod, self.state))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of what its layer reads: the leaves, and the state's parts, flat `[N, n]`."""
        # with a colon: a leaf may be called state_0
        return (*self.observation, *(f"state:{i}" for i in range(len(self.state))))

    @property
    def acting(self) -> int:
        """Numbers that acting needs: the parameters, and after them the next state."""
        return self.parameters + sum(self.state_units)

    @property
    def values(self) -> int:
        """Numbers of the critic."""
        return self.parameters if self.critic == "q" else 1

    @property
    def keywords(self) -> dict[str, Any]:
        """The arguments."""
        found: dict[str, Any] = json.loads(self.arguments)
        return found

    @property
    def model(self) -> bytes:
        """The graph, serialised."""
        return zlib.decompress(base64.b64decode(self.onnx))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able data; `from_dict` is its inverse."""
        tensors = [[name, list(shape)] for name, shape in self.tensors]
        return {**vars(self), "observation": self.observation.to_dict(), "tensors": tensors}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModuleSpec:
        """The specification that `to_dict` described.

        Raises:
            ValueError, TypeError, KeyError: the data is invalid.
        """
        parts = {
            "observation": ObservationSpec.from_dict(data["observation"]),
            "tensors": tuple((str(name), tuple(shape)) for name, shape in data["tensors"]),
            "state": tuple(map(tuple, data["state"])),
        }
        return cls(**{**data, **parts})


def arguments_text(arguments: Mapping[str, Any]) -> str:
    """Arguments as JSON, equal ones as equal texts; raises TypeError for what JSON lacks."""
    return json.dumps(dict(arguments), sort_keys=True)


def packed(model: bytes) -> str:
    """A serialised ONNX graph as text."""
    return base64.b64encode(zlib.compress(model, 9)).decode()
