"""Checks of arguments: each raises `ValueError` naming the argument, what it expected and got."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def check_time_major(
    *, floats: dict[str, Tensor], bools: dict[str, Tensor] | None = None
) -> torch.Size:
    """The common shape [T, B] of time-major tensors.

    Args:
        floats: argument name → tensor that must be float32; the first one sets shape and device.
        bools: argument name → tensor that must be bool.

    Raises:
        ValueError: rank other than 2, T or B of 0, a wrong dtype, or different shapes or devices.
    """
    first, reference = next(iter(floats.items()))
    if not isinstance(reference, Tensor) or reference.ndim != 2 or 0 in reference.shape:
        raise ValueError(
            f"{first}: expected a tensor of shape [T, B] with T >= 1 and B >= 1, "
            f"got {_describe(reference)}"
        )
    for group, dtype in ((floats, torch.float32), (bools or {}, torch.bool)):
        for name, tensor in group.items():
            if (
                not isinstance(tensor, Tensor)
                or tensor.dtype != dtype
                or tensor.shape != reference.shape
                or tensor.device != reference.device
            ):
                raise ValueError(
                    f"{name}: expected {_name(dtype)} of shape {tuple(reference.shape)} on "
                    f"{reference.device} (as {first}), got {_describe(tensor)}"
                )
    return reference.shape


def check_bar(name: str, bar: float | None) -> None:
    """Raise `ValueError` unless `bar` is a positive number, or None for no clipping."""
    # `is None`, never truthiness: a bar of 0 is an error and must not mean "no clipping".
    if bar is not None and not bar > 0:
        raise ValueError(f"{name}: expected a positive number, or None for no clipping, got {bar}")


def check_fraction(name: str, value: float) -> None:
    """Raise `ValueError` unless `value` lies in [0, 1]."""
    if math.isnan(value) or not 0.0 <= value <= 1.0:
        raise ValueError(f"{name}: expected a number from 0 to 1, got {value}")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _describe(value: object) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{_name(value.dtype)} of shape {tuple(value.shape)} on {value.device}"
