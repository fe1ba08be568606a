"""Structured pruning: whole filters and hidden units are removed; the rest is a dense network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from aclearn.config import Group, Whole
from aclearn.types import Visited
from compress.errors import RefusedTensors
from compress.graphs.policy_graph import PolicyGraph
from compress.graphs.units import cells, keep_units, narrowed, unit_counts
from compress.methods.unit_importance import (
    Scores,
    activations,
    in_their_places,
    influences,
    magnitudes,
    most_important,
)
from compress.methods.widths import Widths, kind_of_layer
from compress.policy import Context, Policy
from compress.settings import ConfiguredLink


@dataclass
class _Choice:
    """State between versions; ages are in versions.

    Attributes:
        graph: its digest.
        kept: units by layer.
        changes: `reconstruction` for these units; None before there are observations.
        seen: number of observations drawn last; 0 before the first draw.
        looks: number of draws.
        restarts: those of the context when the units were chosen.
    """

    graph: str
    generation: int
    kept: dict[str, NDArray[np.intp]]
    age: int = 0
    changes: dict[str, NDArray[np.float32]] | None = None
    changes_age: int = 0
    seen: int = 0
    looks: int = 0
    restarts: int = 0


_Share = Annotated[float, Field(ge=0.0, lt=1.0)]


class PruningSettings(Group):
    """Settings of `prune`."""

    sparsity: float = Field(
        default=0.5, gt=0.0, lt=1.0, description="share of its units that each hidden layer loses"
    )
    per_layer: dict[str, _Share] = Field(
        default={},
        description="other shares for layers (`hidden.0`, `convolutions.1`, `memory.0`) or kinds "
        "of layers (`hidden`, `convolutions`, `sections`, `memory`); 0 keeps all units; separate "
        "value layers follow `hidden`",
    )
    importance: Literal["magnitude", "activation"] = Field(
        default="magnitude",
        description="magnitude: L2 norm of a unit's weights and bias; activation: root mean "
        "square of its activation (with `compensate` its standard deviation) times the L2 norm of "
        "its outgoing weights",
    )
    scope: Literal["layer", "global"] = Field(
        default="layer",
        description="layer: each layer loses its share; global: the least important units of all "
        "layers, relative to their layer's mean; each layer keeps at least a tenth",
    )
    round_to: Whole = Field(
        default=8,
        ge=1,
        description="widths are rounded up to multiples of this, which are faster, or of its "
        "half, its quarter, … if nothing could be removed otherwise",
    )
    compensate: bool = Field(
        default=True,
        description="correct the layers that read removed units, by a fit on visited observations",
    )
    reselect_every: Whole = Field(
        default=50, ge=1, description="most versions between two selections of units"
    )
    measure_every: Whole = Field(
        default=50, ge=1, description="most versions between two fits of the correction"
    )
    observations: Whole = Field(
        default=512,
        ge=1,
        description="observations for a fit, and for a selection by activation; repeated when "
        "there are twice as many, or all of these",
    )
    ridge: float = Field(default=0.03, gt=0.0, description="ridge penalty of the fit")


class Pruning(ConfiguredLink[PruningSettings]):
    """Structured pruning by importance (AcceRL §2.2; Li et al. 2017 for filter norms).

    A filter is removed with its feature map and with the weights that read it; a unit of a memory's
    cell with its part of each gate and of the state. Versions keep the same units, since other
    units change the policy abruptly. Units are selected again every `reselect_every` versions and
    in a new generation; those of a cell that stay keep their place in the state. Filters that a
    residual sum reads stay.

    With the scope "global" each selection also decides the widths. Other widths make another graph,
    on which later links start again; so widths stay unless one changes by more than its rounding.

    Ridge regression on visited observations compensates for pruned units. It keeps dense layers
    near the original; convolutions lose more, since other filters do not see what a removed one
    saw.
    """

    name = "prune"
    model = PruningSettings

    def __init__(self, *main: Any, **settings: Any) -> None:
        super().__init__(*main, **settings)
        given, ranked = self.settings, self.settings.scope == "global"
        self._widths = Widths(given.sparsity, given.per_layer, ranked, given.round_to)
        self.needs_observations = given.importance == "activation"
        self.widths_from_weights = ranked

    @property
    def id(self) -> str:
        """E.g. "prune=0.5", "prune=0.5-activation-global", "prune=0.5-hidden.0=0.75"."""
        marks = [f"{name}={share:g}" for name, share in sorted(self._widths.per_layer.items())]
        marks += ["activation"] * (self.settings.importance == "activation")
        marks += ["global"] * self._widths.ranked
        return "-".join([f"prune={self._widths.sparsity:g}", *marks])

    def plan(self, graph: PolicyGraph) -> PolicyGraph:
        """The graph with fewer filters and hidden units.

        With the scope "global" the widths are an estimate: the weights decide them.
        """
        self.require_fp32(graph)
        self.require_layers(graph)
        if graph.ranks:
            names = ", ".join(name for name, _ in graph.ranks)
            raise self.refuse(
                f"comes after low_rank, which has factored {names}; put low_rank after prune"
            )
        counts = unit_counts(graph.architecture.layers)
        if not counts:
            raise self.refuse("the policy has neither convolutions nor hidden layers to prune")
        layers = [name for name in counts if not name.startswith("value_hidden")]
        kinds = {kind for name in layers for kind in (kind_of_layer(name), name.split(".")[0])}
        for name in self._widths.per_layer:
            if name in layers or name in kinds:
                continue
            hint = "; the value's own tower follows hidden" if name in counts else ""
            if name.startswith("sections."):
                hint = "; sums tie a section's other filters together, so that they stay"
            raise self.refuse(
                f"per_layer: {name!r} is no layer that can be pruned; expected one of "
                f"{', '.join(layers)}{hint}"
            )
        return graph.with_architecture(narrowed(graph.architecture, self._widths.by_share(counts)))

    def compress(self, policy: Policy, context: Context) -> Policy:
        """The policy without its least important units, with its value.

        Raises:
            NeedsObservations: importance is by activation and there are none yet.
            RefusedTensors: scores or corrections are not finite; that version leaves no state.
        """
        self.plan(policy.graph)
        choice = self._choice(policy, context)
        small, pruned = keep_units(policy.graph.architecture, policy.tensors, choice.kept)
        if choice.changes is not None:
            pruned |= {name: pruned[name] + change for name, change in choice.changes.items()}
        return policy.become(policy.graph.with_architecture(small), pruned)

    def _choice(self, policy: Policy, context: Context) -> _Choice:
        """The units to keep and the corrections of this version, measured where that is due."""
        memory = context.memory(self.state_key)
        graph = policy.graph.digest()
        known: _Choice | None = memory.get("choice")
        if known is not None and known.graph != graph:
            known = None
        before = known
        available = len(context.visited)
        # a measurement on few observations is repeated early
        found = min(available, self.settings.observations)
        many_more = (known is not None and 0 < known.seen < found) and (
            found >= 2 * known.seen or found == self.settings.observations
        )
        by_activation = self.settings.importance == "activation"
        # weights of a new generation may be far from those that the units were chosen for
        chosen = (
            known is None
            or known.age >= self.settings.reselect_every
            or known.generation != policy.at.generation
            or known.restarts != context.restarts
            or (many_more and by_activation)
        )
        measured = (self.settings.compensate and available > 0) and (
            known is None
            or chosen
            or many_more
            or known.changes is None
            or known.changes_age >= self.settings.measure_every
        )
        looks = known.looks if known is not None else 0
        rng = np.random.default_rng((context.seed, looks))
        visited: Visited | None = None
        if measured or (chosen and by_activation):
            visited = context.sample(self.id, self.settings.observations, rng)
            looks += 1
        if known is None or chosen:
            scores = self._scores(policy, visited)
            widths, layers = self._widths.of_scores(scores), policy.graph.architecture.layers
            if known is not None:
                former = {name: len(units) for name, units in known.kept.items()}
                widths = self._widths.settled(former, widths, unit_counts(layers))
            kept = {name: most_important(scores[name], widths[name]) for name in scores}
            if known is not None:
                # actors keep the state at a swap: it must mean the same where it can
                for name in kept.keys() & {cell.name for cell in cells(layers)}:
                    kept[name] = in_their_places(kept[name], known.kept[name])
            known = _Choice(graph, policy.at.generation, kept, restarts=context.restarts)
        if measured:
            # imported here: reading and planning a chain needs no torch
            from compress.methods.reconstruction import reconstruction

            assert visited is not None
            known.changes = reconstruction(
                policy, known.kept, visited, ridge=self.settings.ridge, rng=rng
            )
            known.changes_age = 0
        # state is written only here, after everything that can raise
        if before is not None and any(
            not np.array_equal(units, before.kept[name]) for name, units in known.kept.items()
        ):
            context.breaks += 1
        if visited is not None:
            known.seen = found  # whole sequences may be more
        known.looks = looks
        known.age += 1
        known.changes_age += 1
        memory["choice"] = known
        return known

    def _scores(self, policy: Policy, visited: Visited | None) -> Scores:
        if self.settings.importance == "magnitude":
            scores = magnitudes(policy)
        else:
            assert visited is not None  # drawn whenever units are chosen
            given = activations(policy, visited)
            with np.errstate(invalid="ignore"):  # ∞ − ∞ is refused below
                scores = influences(policy, given, compensated=self.settings.compensate)
        for name, values in scores.items():
            if not np.isfinite(values).all():
                raise RefusedTensors(f"{self.id}: the importance of units of {name} is not finite")
        return scores
