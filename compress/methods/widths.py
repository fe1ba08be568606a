"""Widths of a pruned policy: how many filters and hidden units each layer keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from compress.methods.unit_importance import Scores

#: Least share of units that each layer keeps in a ranking over all layers.
_LEAST_SHARE = 0.1


def kind_of_layer(name: str) -> str:
    """What layers of one kind are called: "convolutions" of `camera:convolutions.0`."""
    return name.rpartition(":")[2].partition(".")[0]


@dataclass(frozen=True)
class Widths:
    """The rule for how many units layers lose.

    Attributes:
        sparsity: share of units that each layer loses, or all layers together, in (0, 1).
        per_layer: other shares for layers by name or by kind, 0 ≤ share < 1. A layer of the value's
            own tower follows its counterpart.
        ranked: units of all layers without a share of their own are ranked together.
    """

    sparsity: float
    per_layer: Mapping[str, float]
    ranked: bool
    round_to: int

    def by_share(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Kept units of each layer when each loses its share of `counts`."""
        widths = {}
        for name, count in counts.items():
            layer = name.removeprefix("value_") if name.startswith("value_hidden") else name
            of_kind = self.per_layer.get(kind_of_layer(layer), self.sparsity)
            of_kind = self.per_layer.get(layer.partition(".")[0], of_kind)
            share = self.per_layer.get(layer, of_kind)
            widths[name] = kept_width(count, removed_count(count, share), self.round_to)
        return widths

    def of_scores(self, scores: Scores) -> dict[str, int]:
        """Kept units of each layer, given the importance of each unit."""
        widths = self.by_share({name: len(values) for name, values in scores.items()})
        if not self.ranked:
            return widths
        ranked = {
            name: values
            for name, values in scores.items()
            if not {name, name.partition(".")[0], kind_of_layer(name)} & set(self.per_layer)
            and not name.startswith("value_hidden")
        }
        for name, removed in globally_removed(ranked, self.sparsity).items():
            widths[name] = kept_width(len(ranked[name]), removed, self.round_to)
            if f"value_{name}" in widths:
                widths[f"value_{name}"] = widths[name]
        return widths

    def settled(
        self, before: Mapping[str, int], widths: Mapping[str, int], counts: Mapping[str, int]
    ) -> dict[str, int]:
        """The widths before, unless one of the new ones differs by more than its rounding step.

        With another graph, later links start again, a student from random weights. A layer near a
        multiple must not alternate between two widths. Rounding goes up, so the larger of two
        widths may exceed the smaller by up to its step.
        """

        def near(name: str) -> bool:
            less, more = sorted((before[name], widths[name]))
            return more - less <= rounding_of(more, counts[name], self.round_to)

        return dict(before if all(map(near, before)) else widths)


def removed_count(count: int, sparsity: float) -> int:
    """Units to remove of `count`, rounded down; at least one stays."""
    # 0.29 · 100 is 28.999999999999996
    return min(count - 1, math.floor(count * sparsity + 1e-9))


def kept_width(count: int, removed: int, round_to: int) -> int:
    """A width that removes at most `removed` of `count` units, a rounded one where there is one."""
    kept = count - removed
    step = round_to
    while step > 1 and removed:
        rounded = -(-kept // step) * step
        if rounded < count:
            return rounded
        step //= 2
    return kept


def rounding_of(width: int, count: int, round_to: int) -> int:
    """The multiple that `kept_width` rounded up to for this width of `count` units."""
    step = round_to
    while step > 1 and (width == count or width % step):
        step //= 2
    return step


def globally_removed(scores: Scores, sparsity: float) -> dict[str, int]:
    """How many units each layer loses when those of all layers are ranked together.

    Importance is divided by the mean of the unit's layer, since layers differ in scale.
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
