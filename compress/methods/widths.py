"""How many filters and hidden units a pruned policy keeps in each layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from compress.methods.unit_importance import Scores

#: Share of a layer's units that a ranking over all layers leaves at least.
_LEAST_SHARE = 0.1


@dataclass(frozen=True)
class Widths:
    """The rule by which layers lose units.

    Attributes:
        sparsity: share of its units that a layer loses, or all layers together, more than 0 and
            less than 1.
        per_layer: other shares for layers by name or by kind, 0 ≤ share < 1. A layer of the value's
            own tower goes by its counterpart's.
        ranked: units of all layers that have no share of their own are ranked together.
        round_to: widths are rounded up to multiples of this (`kept_width`).
    """

    sparsity: float
    per_layer: Mapping[str, float]
    ranked: bool
    round_to: int

    def by_share(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Units that each layer keeps of its count when each loses its share."""
        widths = {}
        for name, count in counts.items():
            layer = name.removeprefix("value_")
            of_kind = self.per_layer.get(layer.split(".")[0], self.sparsity)
            share = self.per_layer.get(layer, of_kind)
            widths[name] = kept_width(count, removed_count(count, share), self.round_to)
        return widths

    def of_scores(self, scores: Scores) -> dict[str, int]:
        """Units that each layer keeps, given how important each of its units is."""
        widths = self.by_share({name: len(values) for name, values in scores.items()})
        if not self.ranked:
            return widths
        ranked = {
            name: values
            for name, values in scores.items()
            if not {name, name.split(".")[0]} & set(self.per_layer) and not name.startswith("value")
        }
        for name, removed in globally_removed(ranked, self.sparsity).items():
            widths[name] = kept_width(len(ranked[name]), removed, self.round_to)
            if f"value_{name}" in widths:
                widths[f"value_{name}"] = widths[name]
        return widths

    def settled(
        self, before: Mapping[str, int], widths: Mapping[str, int], counts: Mapping[str, int]
    ) -> dict[str, int]:
        """The widths before, where no other one is further away than rounding takes it.

        With another graph the links behind begin from the start, a student from random weights:
        no layer at the edge of a multiple may go to and fro. Rounding goes up, so
        that of two widths the larger one may be a unit away from the smaller, and as far as its
        step from what was asked.
        """

        def near(name: str) -> bool:
            less, more = sorted((before[name], widths[name]))
            return more - less <= rounding_of(more, counts[name], self.round_to)

        return dict(before if all(map(near, before)) else widths)


def removed_count(count: int, sparsity: float) -> int:
    """How many of `count` units a share is, rounded down; one at least stays."""
    # 0.29 · 100 is 28.999999999999996
    return min(count - 1, math.floor(count * sparsity + 1e-9))


def kept_width(count: int, removed: int, round_to: int) -> int:
    """A width that removes `removed` of `count` units at most, a round one where there is one."""
    kept = count - removed
    step = round_to
    while step > 1 and removed:
        rounded = -(-kept // step) * step
        if rounded < count:
            return rounded
        step //= 2
    return kept


def rounding_of(width: int, count: int, round_to: int) -> int:
    """What `kept_width` has rounded to multiples of to get this width of `count` units.

    Before it was rounded up the width may have been less, by less than that.
    """
    step = round_to
    while step > 1 and (width == count or width % step):
        step //= 2
    return step


def globally_removed(scores: Scores, sparsity: float) -> dict[str, int]:
    """How many units each layer loses when those of all layers are ranked together.

    Importance counts in means of the unit's layer: layers differ in scale, and what matters is
    which units their own layer could best do without.
    """
    total = sum(len(values) for values in scores.values())
    ranking = []
    for place, (name, values) in enumerate(scores.items()):
        mean = float(values.mean())
        shares = values / mean if mean > 0.0 else values
        ranking += [(float(share), place, name) for share in shares]
    left = {
        name: len(values) - math.ceil(_LEAST_SHARE * len(values)) for name, values in scores.items()
    }
    removed = dict.fromkeys(scores, 0)
    quota = math.floor(total * sparsity + 1e-9)
    for _, _, name in sorted(ranking):
        if quota and removed[name] < left[name]:
            removed[name] += 1
            quota -= 1
    return removed
