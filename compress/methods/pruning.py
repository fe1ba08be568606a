"""Structured pruning: whole filters and hidden units go, what stays is a smaller dense network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import ChainError, RefusedTensors
from compress.graphs.policy_graph import PolicyGraph
from compress.graphs.units import keep_units, narrowed, unit_counts
from compress.link import Link
from compress.methods.unit_importance import (
    Scores,
    activations,
    influences,
    magnitudes,
    most_important,
)
from compress.methods.widths import Widths
from compress.policy import Context, Policy

IMPORTANCES = ("magnitude", "activation")
SCOPES = ("layer", "global")


@dataclass
class _Choice:
    """What is remembered from version to version.

    Attributes:
        graph: digest of the graph that it was made for.
        generation: of the weights that it was made for.
        kept: the units that each layer keeps; chosen again now and then.
        age: versions since they were chosen.
        changes: what `reconstruction` said for these units; None before there are observations.
        changes_age: versions since then.
        seen: how many observations were drawn last; 0 before any were.
        looks: how often they were drawn.
    """

    graph: str
    generation: int
    kept: dict[str, NDArray[np.intp]]
    age: int = 0
    changes: dict[str, NDArray[np.float32]] | None = None
    changes_age: int = 0
    seen: int = 0
    looks: int = 0


class Pruning(Link):
    """Structured pruning by importance (AcceRL §2.2; Li et al. 2017 for filter norms).

    A filter goes with its feature map and with what every later layer made of it, the heads of the
    policy and the value included. Which units stay is the same from version to version, since a
    policy that loses other units every few seconds jumps; they are chosen again every
    `reselect_every` versions, and in a new generation, whose weights are not those of the version
    before.
    A residual section loses filters of each block's first convolution alone: the others are tied
    together by sums.

    Where there are observations, the layers that read removed units are corrected by what the units
    that stay can say of them (`reconstruction`), which keeps the pruned policy near its original.
    Dense layers lose little so: three quarters of the hidden units of a trained `accerl-original`
    cost 0.001 nats. Convolutions lose more, since a filter's neighbours do not see what it sees.

    Args:
        sparsity: share of the units that every hidden layer loses, 0 < sparsity < 1.
        per_layer: other shares for layers by name ("convolutions.0", "hidden.0") or for all of a
            kind ("convolutions", "hidden"); 0 leaves a layer as it is. A value's own tower follows
            the hidden layers in width.
        importance: "magnitude": the L2 norm of a unit's weights and bias. "activation": the root
            mean square of its activation (with compensation: its standard deviation, since a bias
            makes up for the mean) times the L2 norm of what the next layer makes of it.
        scope: "layer": each layer loses its share. "global": the least important units of all
            layers together go, importance counted in means of the unit's layer; every layer keeps a
            tenth at least. The widths are then decided with the units, and again with them: new
            weights, whose units are all of one norm, say nothing of them. Other widths make another
            graph, on which the links after this one begin anew, a student from nothing, and so they
            stay where none would change by more than a step of its rounding.
        round_to: widths are rounded up to multiples of this, which kernels compute faster, or of
            its half, its quarter, … where rounding would leave nothing to remove.
        compensate: correct the layers that read removed units.
        reselect_every: most versions between two choices of units within a generation, and of the
            widths where they follow from the weights.
        measure_every: most versions between two measurements of the corrections within a
            generation; they are measured with each choice as well.
        observations: how many are looked at, by a measurement and by a choice that goes by
            activations. What found fewer is done again once there are twice as many, or all of
            these.
        ridge: how much corrections cost (see `reconstruction`), more than 0.

    Raises:
        ChainError: a value outside of its range.
    """

    def __init__(
        self,
        sparsity: float = 0.5,
        *,
        per_layer: Mapping[str, float] | None = None,
        importance: str = "magnitude",
        scope: str = "layer",
        round_to: int = 8,
        compensate: bool = True,
        reselect_every: int = 50,
        measure_every: int = 50,
        observations: int = 512,
        ridge: float = 0.03,
    ) -> None:
        sparsity = _share("sparsity", sparsity)
        if per_layer is not None and not isinstance(per_layer, Mapping):
            raise ChainError(f"prune: per_layer: expected 'layer: sparsity', got {per_layer!r}")
        shares = {
            str(name): _share(f"per_layer[{name!r}]", share, zero=True)
            for name, share in (per_layer or {}).items()
        }
        for what, given, choices in (
            ("importance", importance, IMPORTANCES),
            ("scope", scope, SCOPES),
        ):
            if given not in choices:
                raise ChainError(
                    f"prune: {what} {given!r} is unknown; expected one of {', '.join(choices)}"
                )
        for what, count in (
            ("round_to", round_to),
            ("reselect_every", reselect_every),
            ("measure_every", measure_every),
            ("observations", observations),
        ):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ChainError(f"prune: {what}: expected an integer of 1 or more, got {count!r}")
        number = isinstance(ridge, (int, float)) and not isinstance(ridge, bool)
        if not number or not 0.0 < ridge < math.inf:
            raise ChainError(f"prune: ridge: expected a number above 0, got {ridge!r}")
        self._widths = Widths(sparsity, shares, scope == "global", round_to)
        self._ridge = float(ridge)
        self._importance, self._compensate = importance, compensate
        self._reselect_every, self._measure_every = reselect_every, measure_every
        self._observations = observations
        self.needs_observations = importance == "activation"
        self.widths_from_weights = scope == "global"

    @property
    def id(self) -> str:
        """E.g. "prune=0.5", "prune=0.5-activation-global", "prune=0.5-hidden.0=0.75"."""
        marks = [f"{name}={share:g}" for name, share in sorted(self._widths.per_layer.items())]
        marks += ["activation"] * (self._importance == "activation")
        marks += ["global"] * self._widths.ranked
        return "-".join([f"prune={self._widths.sparsity:g}", *marks])

    def plan(self, graph: PolicyGraph) -> PolicyGraph:
        """The same graph with fewer filters and hidden units.

        For the scope "global" the widths are an estimate: the weights decide them.
        """
        self.require_plain(graph)
        if graph.ranks:
            names = ", ".join(name for name, _ in graph.ranks)
            raise self.refuse(
                f"comes after low_rank, which has factored {names}; put low_rank after prune"
            )
        counts = unit_counts(graph.architecture.layers)
        if not counts:
            raise self.refuse("the policy has neither convolutions nor hidden layers to prune")
        layers = [name for name in counts if not name.startswith("value_hidden")]
        kinds = {name.split(".")[0] for name in layers}
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
        """The policy without the units that matter least, its value included.

        Raises:
            NeedsObservations: importance goes by activations and there are none yet.
            RefusedTensors: what decides about units, or corrects the layers that read them, is not
                finite; nothing of that version is remembered.
        """
        self.plan(policy.graph)
        choice = self._choice(policy, context)
        small, pruned = keep_units(policy.graph.architecture, policy.tensors, choice.kept)
        if choice.changes is not None:
            pruned |= {name: pruned[name] + change for name, change in choice.changes.items()}
        return policy.become(policy.graph.with_architecture(small), pruned)

    def _choice(self, policy: Policy, context: Context) -> _Choice:
        """What to keep of this version, and how to correct the rest; measured where that is due."""
        memory = context.memory(self.owner)
        graph = policy.graph.digest()
        known: _Choice | None = memory.get("choice")
        if known is not None and known.graph != graph:
            known = None
        before = known
        available = 0 if context.observations is None else len(context.observations)
        # what the first few said of hundreds of units must not act until the next one is due
        found = min(available, self._observations)
        many_more = (known is not None and 0 < known.seen < found) and (
            found >= 2 * known.seen or found == self._observations
        )
        by_activation = self._importance == "activation"
        # weights of a new generation are those of a checkpoint, or new ones: nobody knows how far
        # they are from those that the units were chosen for and the corrections measured on
        chosen = (
            known is None
            or known.age >= self._reselect_every
            or known.generation != policy.at.generation
            or (many_more and by_activation)
        )
        measured = (self._compensate and available > 0) and (
            known is None
            or chosen
            or many_more
            or known.changes is None
            or known.changes_age >= self._measure_every
        )
        looks = known.looks if known is not None else 0
        rng = np.random.default_rng((context.seed, looks))
        visited: NDArray[Any] | None = None
        if measured or (chosen and by_activation):
            visited = context.sample(self.id, self._observations, rng)
            looks += 1
        if known is None or chosen:
            scores = self._scores(policy, visited)
            widths = self._widths.of_scores(scores)
            if known is not None:
                former = {name: len(units) for name, units in known.kept.items()}
                counts = unit_counts(policy.graph.architecture.layers)
                widths = self._widths.settled(former, widths, counts)
            kept = {name: most_important(scores[name], widths[name]) for name in scores}
            known = _Choice(graph, policy.at.generation, kept)
        if measured:
            # imported here: to read and plan a chain needs no torch
            from compress.methods.reconstruction import reconstruction

            assert visited is not None
            known.changes = reconstruction(policy, known.kept, visited, ridge=self._ridge, rng=rng)
            known.changes_age = 0
        # from here on nothing is refused: what was seen in vain must leave no trace
        if before is not None and any(
            not np.array_equal(units, before.kept[name]) for name, units in known.kept.items()
        ):
            context.breaks += 1
        if visited is not None:
            known.seen = len(visited)
        known.looks = looks
        known.age += 1
        known.changes_age += 1
        memory["choice"] = known
        return known

    def _scores(self, policy: Policy, visited: NDArray[Any] | None) -> Scores:
        if self._importance == "magnitude":
            scores = magnitudes(policy)
        else:
            assert visited is not None  # drawn whenever units are chosen
            given = activations(policy, visited)
            with np.errstate(invalid="ignore"):  # ∞ − ∞ is one of the scores that are refused
                scores = influences(policy, given, compensated=self._compensate)
        for name, values in scores.items():
            if not np.isfinite(values).all():
                raise RefusedTensors(f"{self.id}: how important units of {name} are is not finite")
        return scores


def _share(what: str, given: Any, *, zero: bool = False) -> float:
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not number or not (0.0 < given < 1.0 or (zero and given == 0.0)):
        least = "0 or more" if zero else "more than 0"
        raise ChainError(
            f"prune: {what}: expected the share of units to remove, {least} and less than 1, got "
            f"{given!r}"
        )
    return float(given)
