"""One array of a message: its header entry, and its bytes, checked and not copied."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.errors import WireError
from aclearn.wire.schema import ArrayField

Part = bytes | memoryview

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("aclearn.wire sends the memory of arrays and needs a little-endian CPU")

_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(name)
    for name in ("uint8", "int8", "uint16", "bool", "int32", "int64", "float32", "float16")
}
_DTYPE_NAMES: dict[np.dtype[Any], str] = {dtype: name for name, dtype in _DTYPES.items()}
# A shape may have a 0 beside a huge dimension, for which NumPy raises errors of its own.
_MAX_ELEMENTS = 2**40


def encode_array(kind: str, field: ArrayField, array: Any) -> tuple[tuple[str, list[int]], Part]:
    """An array's dtype and dims for the header, and a view of its memory (of a copy, if strided).

    Raises:
        ValueError: the field does not allow such an array.
    """
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{kind}.{field.name}: expected an array, got {type(array).__name__}")
    dtype = _DTYPE_NAMES.get(array.dtype)
    if dtype is None or dtype not in field.dtypes:
        raise ValueError(
            f"{kind}.{field.name}: expected dtype {' or '.join(sorted(field.dtypes))}, "
            f"got {array.dtype}"
        )
    if not field.min_ndim <= array.ndim <= field.max_ndim:
        raise ValueError(
            f"{kind}.{field.name}: expected {field.min_ndim} to {field.max_ndim} dimensions, "
            f"got shape {array.shape}"
        )
    # reshape copies when, and only when, the array is not contiguous.
    return (dtype, list(array.shape)), array.reshape(-1).view(np.uint8).data


def decode_array(
    where: str, field: ArrayField, dtype_name: Any, dims: Any, data: Part
) -> NDArray[Any]:
    """The array in `data`, as a read-only view.

    Raises:
        WireError: "bad_array" if the field does not allow dtype or dims, "wrong_size" if they do
            not match the number of bytes.
    """
    if type(dtype_name) is not str or dtype_name not in field.dtypes:
        raise WireError("bad_array", f"{where}: expected dtype {' or '.join(sorted(field.dtypes))}")
    if type(dims) is not list or not field.min_ndim <= len(dims) <= field.max_ndim:
        expected = f"{field.min_ndim} to {field.max_ndim} dimensions"
        raise WireError("bad_array", f"{where}: expected {expected}")
    if not all(type(dim) is int and dim >= 0 for dim in dims):
        raise WireError("bad_array", f"{where}: expected dimensions that are ints of at least 0")
    if math.prod(dim or 1 for dim in dims) > _MAX_ELEMENTS:
        raise WireError("bad_array", f"{where}: more than {_MAX_ELEMENTS} elements")
    dtype, elements = _DTYPES[dtype_name], math.prod(dims)
    expected_bytes = elements * dtype.itemsize
    if expected_bytes != len(data):
        words = f"{dtype_name} {dims} is {expected_bytes} bytes, the frame has {len(data)}"
        raise WireError("wrong_size", f"{where}: {words}")
    if elements == 0:
        array: NDArray[Any] = np.empty(dims, dtype)
        array.flags.writeable = False
        return array
    if dtype_name == "bool" and np.frombuffer(data, np.uint8).max() > 1:
        raise WireError("bad_array", f"{where}: a bool that is neither 0 nor 1")
    array = np.frombuffer(data, dtype).reshape(dims)
    if not array.flags.aligned:
        # libzmq places small frames in its receive buffer at any offset.
        array = array.copy()
    array.flags.writeable = False
    return array
