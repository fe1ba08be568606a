"""Checks of arguments: each raises `ValueError` naming the argument, what it expected and got."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def check_time_major(
    *,
    floats: dict[str, Tensor],
    bools: dict[str, Tensor] | None = None,
    actions: dict[str, Tensor] | None = None,
    vectors: dict[str, Tensor] | None = None,
) -> None:
    """Raise `ValueError` unless all tensors are time-major, of one [T, B] and on one device.

    Args:
        floats: argument name → float32 [T, B], T ≥ 1 and B ≥ 1; the first one is the reference.
        bools: argument name → bool [T, B].
        actions: argument name → int64 [T, B].
        vectors: argument name → float32 [T, B, A], all of one A ≥ 1.
    """
    first, reference = next(iter(floats.items()))
    if not isinstance(reference, Tensor) or reference.ndim != 2 or 0 in reference.shape:
        raise ValueError(
            f"{first}: expected a tensor of shape [T, B] with T >= 1 and B >= 1, "
            f"got {_describe(reference)}"
        )
    wide = next(iter((vectors or {}).values()), None)
    length = wide.shape[2] if isinstance(wide, Tensor) and wide.ndim == 3 else 0
    for group, dtype, more in (
        (floats, torch.float32, ()),
        (bools, torch.bool, ()),
        (actions, torch.int64, ()),
        (vectors, torch.float32, (length,)),
    ):
        for name, tensor in (group or {}).items():
            if (
                not isinstance(tensor, Tensor)
                or tensor.dtype != dtype
                or tensor.shape != (*reference.shape, *more)
                or tensor.device != reference.device
                or 0 in more
            ):
                shape = (*reference.shape, *(size or "A" for size in more))
                raise ValueError(
                    f"{name}: expected {_name(dtype)} of shape ({', '.join(map(str, shape))}) on "
                    f"{reference.device} (as {first}), got {_describe(tensor)}"
                )


def check_bar(name: str, bar: float | None) -> None:
    """Raise `ValueError` unless `bar` is a positive number, or None for no clipping."""
    # `is None`, never truthiness: a bar of 0 is an error and must not mean "no clipping".
    if bar is not None and not bar > 0:
        raise ValueError(f"{name}: expected a positive number, or None for no clipping, got {bar}")


def check_positive(name: str, value: float) -> None:
    """Raise `ValueError` unless `value` is above 0."""
    if not value > 0:
        raise ValueError(f"{name}: expected a positive number, got {value}")


def check_range(low: float, high: float | None) -> None:
    """Raise `ValueError` unless 0 ≤ low < high; a `high` of None is no bound."""
    if not 0.0 <= low < (math.inf if high is None else high):
        raise ValueError(f"low, high: expected 0 <= low < high, got {low} and {high}")


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
