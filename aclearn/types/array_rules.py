"""Rules for fields of a message: values and sizes of plain ones, dtypes and dimensions of arrays.

A rule of a plain field returns its value, with NumPy's scalars as Python's, or raises `ValueError`.
The error names types and limits but never the value, which may be huge, deeply nested or private.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


class IntRule(NamedTuple):
    """An int from `low` to `high`."""

    low: int = -(2**63)
    high: int = 2**63 - 1

    def __call__(self, value: Any) -> int:
        """The int; one of NumPy's is converted."""
        number: int = value
        if type(value) is not int:
            if not isinstance(value, np.integer):
                raise _unexpected("an int", value)
            number = int(value)
        low, high = self
        if not low <= number <= high:
            raise ValueError(f"expected an int from {low} to {high}, got one outside")
        return number


class FloatRule(NamedTuple):
    """A finite float from `low` to `high`."""

    low: float = -math.inf
    high: float = math.inf

    def __call__(self, value: Any) -> float:
        """The float; whole numbers and NumPy's are converted."""
        number: float = value
        if type(value) is not float:
            if type(value) is not int and not isinstance(value, np.integer | np.floating):
                raise _unexpected("a float", value)
            number = float(value)
        if not math.isfinite(number):
            raise ValueError("expected a finite float, got NaN or infinity")
        low, high = self
        if not low <= number <= high:
            raise ValueError(f"expected a float from {low:g} to {high:g}, got one outside")
        return number


class BoolRule(NamedTuple):
    """True or False."""

    def __call__(self, value: Any) -> bool:
        """The flag; one of NumPy's is converted."""
        if not isinstance(value, bool | np.bool_):
            raise _unexpected("a bool", value)
        return bool(value)


class TextRule(NamedTuple):
    """A text of at most `max_bytes` in UTF-8; one line of printable characters, or any."""

    max_bytes: int
    printable: bool = False

    def __call__(self, value: Any) -> str:
        """The text."""
        if type(value) is not str:
            raise _unexpected("a str", value)
        # The first comparison bounds the cost of the second one.
        if len(value) > self.max_bytes or len(value.encode()) > self.max_bytes:
            raise ValueError(f"expected at most {self.max_bytes} bytes of text, got more")
        if self.printable and not value.isprintable():
            raise ValueError("expected one line of printable text, got control characters")
        return value


class NameRule(NamedTuple):
    """A name of at most `most` characters: a letter or digit, then also `_`, `.` and `-`."""

    most: int

    def __call__(self, value: Any) -> str:
        """The name."""
        if type(value) is not str or not _NAME.fullmatch(value):
            raise ValueError("expected a name of letters, digits and _.-, from a letter or digit")
        if len(value) > self.most:
            raise ValueError(f"expected a name of at most {self.most} characters, got more")
        return value


def _unexpected(expected: str, value: Any) -> ValueError:
    return ValueError(f"expected {expected}, got {type(value).__name__}")


class ArrayRule(NamedTuple):
    """The dtypes and numbers of dimensions (both ends included) that an array field accepts."""

    dtypes: tuple[str, ...]
    min_ndim: int
    max_ndim: int


Count = Annotated[int, IntRule(0)]

# which of a run's policies
PolicyName = Annotated[str, NameRule(32)]

# of a field that has one of several types
Scalar = int | float | bool | str

Text = Annotated[str, TextRule(48 * 1024)]

Observations = Annotated[NDArray[Any], ArrayRule(("uint8", "float32"), 2, 5)]

Frames = Annotated[NDArray[Any], ArrayRule(("uint8", "float32"), 3, 6)]

Int32Vector = Annotated[NDArray[np.int32], ArrayRule(("int32",), 1, 1)]

Float32Vector = Annotated[NDArray[np.float32], ArrayRule(("float32",), 1, 1)]

Int32Matrix = Annotated[NDArray[np.int32], ArrayRule(("int32",), 2, 2)]

# [T, B] or [T, B, n], and one step of these
SampledActions = Annotated[NDArray[Any], ArrayRule(("int32", "float32"), 2, 3)]

StepActions = Annotated[NDArray[Any], ArrayRule(("int32", "float32"), 1, 2)]

Int64Vector = Annotated[NDArray[np.int64], ArrayRule(("int64",), 1, 1)]

Float32Matrix = Annotated[NDArray[np.float32], ArrayRule(("float32",), 2, 2)]

Float32Cube = Annotated[NDArray[np.float32], ArrayRule(("float32",), 3, 3)]

ByteMatrix = Annotated[NDArray[np.uint8], ArrayRule(("uint8",), 2, 2)]

BoolVector = Annotated[NDArray[np.bool_], ArrayRule(("bool",), 1, 1)]
BoolMatrix = Annotated[NDArray[np.bool_], ArrayRule(("bool",), 2, 2)]

BoolCube = Annotated[NDArray[np.bool_], ArrayRule(("bool",), 3, 3)]

StateArray = Annotated[NDArray[np.float32], ArrayRule(("float32",), 1, 5)]

Tensor = Annotated[NDArray[np.float32], ArrayRule(("float32",), 0, 6)]

# bfloat16, which numpy lacks, is sent as its 16 bits in uint16
StoredTensor = Annotated[
    NDArray[Any], ArrayRule(("float32", "float16", "uint16", "int32", "int8", "uint8"), 0, 6)
]
