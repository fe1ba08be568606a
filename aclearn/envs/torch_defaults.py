"""Keeps torch's defaults of environments apart from ours, where both run in one process."""

from __future__ import annotations

import sys
from typing import Any


class TorchDefaults:
    """A context for an environment's code: torch's default dtype, device and gradient mode.

    What the code sets there holds again in the next such context, and not outside of it: a network
    in the same process computes in float32. It costs nothing while torch is not loaded.
    """

    def __init__(self) -> None:
        self._inside: tuple[Any, ...] | None = None
        self._outside: tuple[Any, ...] | None = None

    def __enter__(self) -> None:
        self._outside = _read()
        if self._inside is not None and self._outside is not None:
            _write(self._inside, self._outside)

    def __exit__(self, *_: object) -> None:
        self._inside = _read()
        if self._inside is not None:
            _write(self._outside or _of_a_new_process(), self._inside)


#: Of all environments of a process: torch has one set of defaults for all of them too.
ENVIRONMENTS = TorchDefaults()


def _read() -> tuple[Any, ...] | None:
    """Default dtype and device, and whether gradients are computed; None without torch."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_default_device"):  # not loaded, or half
        return None
    return torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()


def _of_a_new_process() -> tuple[Any, ...]:
    torch = sys.modules["torch"]
    return torch.float32, torch.device("cpu"), True


def _write(wanted: tuple[Any, ...], present: tuple[Any, ...]) -> None:
    if wanted == present:
        return
    torch = sys.modules["torch"]
    dtype, device, gradients = wanted
    torch.set_default_dtype(dtype)
    # a default device, even the CPU, makes every call of torch slower; None is the CPU too
    torch.set_default_device(None if device.type == "cpu" else device)
    torch.set_grad_enabled(gradients)
