"""Order of all weights of a run, and of the policies made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

DEFAULT_POLICY: Final = "default"
"""Name of the policy of a run that has one."""


@dataclass(frozen=True, order=True)
class PolicyVersion:
    """Orders all weights: a restarted trainer raises `generation`, each publication `version`.

    (-1, -1) precedes all published versions.
    """

    generation: int = -1
    version: int = -1


class PolicyId(NamedTuple):
    """An acting policy: version of its weights, id of the chain that compressed them, its name.

    The chain "none" means the trainer's weights themselves.
    """

    at: PolicyVersion = PolicyVersion()
    chain: str = "none"
    policy: str = DEFAULT_POLICY

    def replaces(self, other: PolicyId) -> bool:
        """Whether it is the same policy with newer weights, or another chain at this version."""
        newer = self.at > other.at or (self.at == other.at and self.chain != other.chain)
        return newer and self.policy == other.policy


#: Links of a chain that change a policy's runtime but not its function.
_UNCHANGED = {"none", "fuse", "onnx", "torchscript"}


def is_compressed(chain: str) -> bool:
    """Whether a link of this chain changes the policy's function; not in "none" and "fuse>onnx"."""
    return not set(chain.split(">")) <= _UNCHANGED
