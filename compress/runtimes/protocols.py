"""The protocol of runtimes."""

from __future__ import annotations

from typing import Protocol

from aclearn.rollout import Executable
from compress.graphs.policy_graph import Tensors


class PolicyRuntime(Protocol):
    """Makes executables of the uncompressed policy's weights."""

    def load(self, tensors: Tensors) -> Executable:
        """The version with these weights, those of the value included.

        Raises:
            RefusedTensors: they do not fit or are not finite.
        """
