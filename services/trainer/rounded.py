"""`trainer.as_actors`: the rounding of the compressor's chain, for the trainer's forward pass."""

from __future__ import annotations

from aclearn.config import Config
from aclearn.learning import Rounding
from aclearn.policies import Architecture
from services.policy.factory import make_ladder


def rounding_of(config: Config, architecture: Architecture) -> Rounding | None:
    """What actors round of a policy; None without `trainer.as_actors`."""
    if not config.trainer.as_actors:
        return None
    acting = architecture.acting()
    graph = make_ladder(config, acting)[0].plan(acting)
    if graph.precision == "fp32":
        raise AssertionError("the configuration asks for a chain that rounds")
    if graph.precision != "int8":
        stored = (each for each in graph.layers() if each.is_product or each.kind == "log_std")
        return Rounding(graph.precision, frozenset(layer.name for layer in stored))
    products = graph.integer_products()
    return Rounding(
        "int8",
        frozenset(layer.name for layer in products),
        exact_inputs=frozenset(graph.raw_products()),
        own_outputs=frozenset(each.name for each in products if graph.has_output_scale(each)),
        per_channel=graph.per_channel,
        weight_steps=63 if graph.reduced_range else 127,
    )
