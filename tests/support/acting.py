"""A runtime with its newest version."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.rollout import Executable
from aclearn.types import OBSERVATION


def parameters_of(executable: Executable, observations: Any) -> NDArray[np.float32]:
    """Parameters `[N, P]` of observations `[N, *shape]`, or of leaf → `[N, *shape]`."""
    leaves = observations if isinstance(observations, dict) else {OBSERVATION: observations}
    return executable.step(leaves).parameters


class Acting:
    """A runtime and the newest executable that it loaded."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime

    def load(self, given: Any) -> Executable:
        self.executable: Executable = self.runtime.load(given)
        return self.executable

    def parameters(self, observations: Any) -> NDArray[np.float32]:
        return parameters_of(self.executable, observations)
