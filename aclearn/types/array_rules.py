"""Rules for fields of a message: dtypes and dimensions, least values, sizes."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class IntRule(NamedTuple):
    """The least and the largest value that an int field accepts."""

    low: int
    high: int = 2**63 - 1


class FloatRule(NamedTuple):
    """The least and the largest value that a float field accepts."""

    low: float
    high: float


class TextRule(NamedTuple):
    """The most UTF-8 bytes that a text field accepts; line breaks are allowed."""

    max_bytes: int


class NameRule(NamedTuple):
    """The most characters that a name accepts: a letter or digit, then also `_`, `.` and `-`."""

    most: int


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

BoolMatrix = Annotated[NDArray[np.bool_], ArrayRule(("bool",), 2, 2)]

BoolCube = Annotated[NDArray[np.bool_], ArrayRule(("bool",), 3, 3)]

StateArray = Annotated[NDArray[np.float32], ArrayRule(("float32",), 1, 5)]

Tensor = Annotated[NDArray[np.float32], ArrayRule(("float32",), 0, 6)]

# bfloat16, which numpy lacks, is sent as its 16 bits in uint16
StoredTensor = Annotated[
    NDArray[Any], ArrayRule(("float32", "float16", "uint16", "int32", "int8", "uint8"), 0, 6)
]
