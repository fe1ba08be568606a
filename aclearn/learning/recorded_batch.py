"""A batch as named arrays, from which the same batch is made again, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.errors import CheckpointError
from aclearn.learning.batch import Batch
from aclearn.learning.gradient_worker import GradientWorker
from aclearn.types import ObservationSpec, Unroll

Arrays = dict[str, NDArray[Any]]

#: Fields of an unroll that are no arrays.
_PLAIN: Final = (
    *("generation", "env_steps_before", "env_steps_after", "dropped"),
    *("chains", "policy", "actor", "first_row"),
)
#: Fields of an unroll and of a batch that have several arrays by name.
_MAPPINGS: Final = ("observations", "history", "reset_history")
#: What a trainer adds to an assembled batch.
_ADDED: Final = ("acting_log_prob",)


def arrays_of(batch: Batch) -> tuple[Arrays, dict[str, Any]]:
    """The arrays of a batch that is not prepared, and what JSON can hold of it.

    Those of actors are their unrolls, in which each frame is there once; a GPU is waited for.
    """
    arrays: Arrays = {}
    orders: dict[str, list[int]] = {}
    fields = {name: getattr(batch, name) for name in _ADDED} if batch.unrolls else vars(batch)
    tensors = {name: value for name, value in fields.items() if isinstance(value, Tensor)}
    if batch.unrolls:
        for number, unroll in enumerate(batch.unrolls):
            arrays |= {f"unroll/{number}/{name}": array for name, array in unroll.arrays()}
    else:
        tensors |= {f"observations.{name}": leaf for name, leaf in batch.observations.items()}
        tensors |= {f"state.{number}": part for number, part in enumerate(batch.state)}
        given = {"versions": batch.versions, "origins": batch.origins}
        arrays |= {f"batch/{name}": array for name, array in given.items() if array is not None}
    for name, tensor in tensors.items():
        # in their order in memory, on which the bits of a convolution may depend
        order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
        if order != list(range(tensor.dim())):
            orders[f"batch/{name}"] = order
        arrays[f"batch/{name}"] = tensor.detach().permute(order).contiguous().cpu().numpy()
    plain = [{name: getattr(unroll, name) for name in _PLAIN} for unroll in batch.unrolls]
    return arrays, {"unrolls": plain, "orders": orders, "all_valid": batch.all_valid}


def batch_of(
    arrays: Mapping[str, NDArray[Any]],
    data: Mapping[str, Any],
    worker: GradientWorker,
    observation: ObservationSpec,
    device: torch.device,
) -> Batch:
    """The batch that gave these arrays and data, on a device.

    Args:
        worker: assembles it, as the trainer's has done.

    Raises:
        CheckpointError: something is missing, or does not fit.
    """
    try:
        fields: dict[str, Any] = {
            name.removeprefix("batch/"): _tensor(array, data["orders"].get(name), device)
            for name, array in arrays.items()
            if name.startswith("batch/")
        }
        if plain := data["unrolls"]:
            unrolls = [_unroll(arrays, number, each) for number, each in enumerate(plain)]
            return replace(worker.assemble(unrolls, observation), **fields)
        by_name = _nested(fields)
        leaves = by_name["observations"]
        by_name["observations"] = {name: leaves[name] for name in observation}
        host = {
            name: np.array(arrays[f"batch/{name}"])
            for name in ("versions", "origins")
            if f"batch/{name}" in arrays
        }
        return Batch(**{**by_name, **host}, all_valid=data["all_valid"])
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        raise CheckpointError(f"a recorded batch does not fit this run: {error!r}") from error


def _tensor(array: NDArray[Any], order: list[int] | None, device: torch.device) -> Tensor:
    tensor = torch.from_numpy(np.array(array)).to(device)
    return tensor if order is None else tensor.permute(*np.argsort(order).tolist())


def _unroll(arrays: Mapping[str, NDArray[Any]], number: int, plain: Mapping[str, Any]) -> Unroll:
    prefix = f"unroll/{number}/"
    own = {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
    missing: dict[str, Any] = {"history": {}, "reset_history": {}, "reset_index": None}
    return Unroll(**{**missing, **_nested(own), **plain})


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays by field, those of mappings and of the state together, whatever their order."""
    fields: dict[str, Any] = {}
    for name, value in sorted(flat.items(), key=lambda item: (len(item[0]), item[0])):
        field, _, key = name.partition(".")
        if field in _MAPPINGS:
            fields.setdefault(field, {})[key] = value
        elif field == "state":
            fields["state"] = (*fields.get("state", ()), value)
        else:
            fields[field] = value
    return fields
