"""Which of many checkpoints stay, so that they lie evenly over a run."""

from __future__ import annotations

from collections.abc import Sequence


def thinned(labels: Sequence[int], count: int) -> list[int]:
    """The places of at most `count` labels that lie evenly between the first and the last one.

    Labels come one by one and grow: of those between the ends the one goes whose neighbours are
    nearest to each other. Where they come at an interval, no gap is three times as long as another;
    the gap before the last one may be shorter.
    """
    places = list(range(len(labels)))
    while len(places) > max(0, count):
        if len(places) <= 2:  # the newest stays
            del places[0]
            continue
        gaps = [
            labels[after] - labels[before]
            for before, after in zip(places, places[2:], strict=False)
        ]
        del places[1 + gaps.index(min(gaps))]
    return places
