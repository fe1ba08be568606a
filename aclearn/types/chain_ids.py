"""What the id of a compressor chain says: how a policy is run, and whether it is another one."""

from __future__ import annotations

#: Links that change how a policy is run, and nothing of what it computes.
_UNCHANGED = {"none", "fuse", "onnx", "torchscript"}


def is_compressed(chain: str) -> bool:
    """Whether a link of this chain changes the policy; "none" and "fuse>onnx" leave it as it is."""
    return not set(chain.split(">")) <= _UNCHANGED
