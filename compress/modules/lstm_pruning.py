"""Hidden units of an LSTM as channels that Torch-Pruning can remove."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from compress.errors import ChainError


def check_lstm(name: str, lstm: nn.LSTM) -> None:
    """Raise `ChainError` unless the LSTM has one layer, one direction and no projection."""
    what = [
        f"{lstm.num_layers} layers" * (lstm.num_layers != 1),
        "two directions" * lstm.bidirectional,
        "a projection" * (lstm.proj_size > 0),
    ]
    if found := ", ".join(filter(None, what)):
        raise ChainError(
            f"{name}: an LSTM with {found} cannot be pruned; expected one layer, one direction and "
            "no projection, or its name in ignored (a stack is as many LSTMs of one layer)"
        )


def keep_lstm_units(lstm: nn.LSTM, kept: Tensor) -> None:
    """Remove all other hidden units in place, as if their outputs were always 0.

    A unit has a row in each of the four gates (torch's order: input, forget, cell, output) and a
    column in the recurrent weights. `kept` has their numbers `[H']`, ascending.
    """
    size = lstm.hidden_size
    rows = torch.cat([kept + gate * size for gate in range(4)])
    _replace(lstm, "weight_ih_l0", _of(lstm, "weight_ih_l0")[rows])
    _replace(lstm, "weight_hh_l0", _of(lstm, "weight_hh_l0")[rows][:, kept])
    for name in ("bias_ih_l0", "bias_hh_l0")[: 2 * lstm.bias]:
        _replace(lstm, name, _of(lstm, name)[rows])
    lstm.hidden_size = len(kept)


def keep_lstm_inputs(lstm: nn.LSTM, kept: Tensor) -> None:
    """Keep only the inputs `[I']` of an LSTM of any kind, in place."""
    for direction in ("", "_reverse")[: 1 + lstm.bidirectional]:
        name = f"weight_ih_l0{direction}"
        _replace(lstm, name, _of(lstm, name)[:, kept])
    lstm.input_size = len(kept)


def unit_norms(lstm: nn.LSTM) -> Tensor:
    """Squared L2 norms `[H]` of each hidden unit's weights, without biases."""
    rows = torch.cat([_of(lstm, "weight_ih_l0"), _of(lstm, "weight_hh_l0")], dim=1)
    return rows.square().sum(1).reshape(4, lstm.hidden_size).sum(0)


@contextmanager
def one_operation_each(module: nn.Module) -> Iterator[None]:
    """In this block autograd records each LSTM of a module as one operation.

    Torch-Pruning would read its products and gates as layers of the module.
    """
    found = [part for part in module.modules() if isinstance(part, nn.LSTM)]
    for lstm in found:
        lstm.forward = _opaque(lstm)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for lstm in found:
            del lstm.forward


def pruning_function(library: Any) -> Any:
    """Torch-Pruning's interface to an LSTM; the library's own omits three of the gates."""

    class Lstm(library.BasePruningFunc):  # type: ignore[misc]
        TARGET_MODULES = nn.LSTM

        def prune_out_channels(self, layer: nn.LSTM, idxs: list[int]) -> nn.LSTM:
            keep_lstm_units(layer, _others(layer.hidden_size, idxs))
            return layer

        def prune_in_channels(self, layer: nn.LSTM, idxs: list[int]) -> nn.LSTM:
            keep_lstm_inputs(layer, _others(layer.input_size, idxs))
            return layer

        def get_out_channels(self, layer: nn.LSTM) -> int:
            return layer.hidden_size

        def get_in_channels(self, layer: nn.LSTM) -> int:
            return layer.input_size

    return Lstm()


def importance(library: Any) -> Any:
    """L2 norms of all of a channel's weights, an LSTM's gates included."""

    class Magnitude(library.importance.GroupMagnitudeImportance):  # type: ignore[misc]
        def __call__(self, group: Any) -> Tensor | None:
            others: Tensor | None = super().__call__(group)
            own = []
            for item in group:
                dependency = item.dep
                if isinstance(dependency.layer, nn.LSTM) and dependency.pruning_fn.__name__ == (
                    "prune_out_channels"
                ):
                    norms = unit_norms(dependency.layer)[item.idxs]
                    roots = torch.tensor(item.root_idxs, dtype=torch.long)
                    own.append(torch.zeros_like(norms).index_add(0, roots, norms))
            if not own:
                return others
            mean = torch.stack([each / each.mean() for each in own]).mean(0)
            return mean if others is None else (mean + others) / 2

    return Magnitude(p=2)


def _others(count: int, removed: list[int]) -> Tensor:
    stays = torch.ones(count, dtype=torch.bool)
    stays[removed] = False
    return stays.nonzero().squeeze(1)


def _of(lstm: nn.LSTM, name: str) -> Tensor:
    return lstm.get_parameter(name).detach()


def _replace(lstm: nn.LSTM, name: str, values: Tensor) -> None:
    setattr(lstm, name, nn.Parameter(values.clone()))


def _opaque(lstm: nn.LSTM) -> Any:
    class Whole(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            output, (h, c) = nn.LSTM.forward(lstm, x)
            return output, h, c

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Any:
            raise RuntimeError("only the graph is read")

    def forward(x: Tensor, state: Any = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        if state is not None:
            raise ChainError(
                "an LSTM was called with a state, whose width would have to change with its units; "
                "expected example_inputs with which it starts from zeros (no state)"
            )
        output, h, c = Whole.apply(x)  # type: ignore[no-untyped-call]
        return output, (h, c)

    return forward
