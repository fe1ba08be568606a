"""Whether a compressor chain's id means compression."""

from __future__ import annotations

#: Links that change a policy's runtime but not its function.
_UNCHANGED = {"none", "fuse", "onnx", "torchscript"}


def is_compressed(chain: str) -> bool:
    """Whether a link of this chain changes the policy's function; not in "none" and "fuse>onnx"."""
    return not set(chain.split(">")) <= _UNCHANGED
