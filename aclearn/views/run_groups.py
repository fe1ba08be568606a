"""Groups of runs with the same settings, and labels that tell the groups apart. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from aclearn.views.curve import Curve

#: Most keys in a label, unless more are needed to tell the groups apart.
_MOST_KEYS: Final = 4
#: Most characters of a value in a label.
_MOST_CHARACTERS: Final = 40
_MISSING: Final = "(missing)"


class Group(NamedTuple):
    """Runs that differ by their seeds and names only.

    Attributes:
        label: the keys with which it differs from the other groups; the name of a single one.
    """

    label: str
    curves: list[Curve]


def group_runs(curves: Sequence[Curve], *, each: bool = False) -> list[Group]:
    """The groups, in the order of their first runs.

    A run whose configuration cannot be read is a group of its own, as with `each` all are.
    """
    names = _names(curves)
    if each:
        return [Group(name, [curve]) for name, curve in zip(names, curves, strict=True)]
    members = dict[object, list[int]]()
    for n, curve in enumerate(curves):
        members.setdefault(frozenset(curve.settings.items()) or n, []).append(n)
    known = [curves[group[0]].settings for group in members.values() if curves[group[0]].settings]
    labels = iter(_labels(known))
    made = []
    for group in members.values():
        inside = [curves[n] for n in group]
        label = next(labels) if inside[0].settings else ""
        made.append(Group(label or _common([names[n] for n in group], inside), inside))
    return made


def _labels(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """The differing keys of each, and their values; "" for a single one."""
    keys = dict.fromkeys(key for each in settings for key in each)
    different = [key for key in keys if len({each.get(key) for each in settings}) > 1]
    # those first that tell the most apart, and the environment before all
    different.sort(key=lambda key: -len({each.get(key) for each in settings}))
    different.sort(key=lambda key: key != "env.id")
    shown = min(_MOST_KEYS, len(different))
    while shown < len(different) and not _tell_apart(settings, different[:shown]):
        shown += 1
    left = f" and {len(different) - shown} keys more" if shown < len(different) else ""
    short = [key.rpartition(".")[2] for key in different]
    words = [
        key if short.count(last) > 1 or key == "env.id" else last
        for key, last in zip(different, short, strict=True)
    ]
    return [
        " ".join(
            f"{word}={value if len(value) <= _MOST_CHARACTERS else value[:_MOST_CHARACTERS] + '…'}"
            for word, value in zip(words, _values(each, different[:shown]), strict=False)
        )
        + left
        for each in settings
    ]


def _tell_apart(settings: Sequence[Mapping[str, str]], keys: Sequence[str]) -> bool:
    return len({_values(each, keys) for each in settings}) == len(settings)


def _values(settings: Mapping[str, str], keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(settings.get(key, _MISSING) for key in keys)


def _names(curves: Sequence[Curve]) -> list[str]:
    """The runs' names; those of the same name are told apart by their folders."""
    names = [curve.name for curve in curves]
    return [
        name if names.count(name) == 1 else str(curve.path)
        for name, curve in zip(names, curves, strict=True)
    ]


def _common(names: Sequence[str], curves: Sequence[Curve]) -> str:
    """What the names of several runs have in common."""
    if len(names) == 1:
        return names[0]
    parents = {curve.path.resolve().parent for curve in curves}
    stems = {re.sub(r"[-_.]?\d+$", "", curve.name) for curve in curves}
    if stems == {"seed"} and len(parents) == 1:
        return parents.pop().name  # the folder of --seeds
    return stems.pop() if len(stems) == 1 else f"{names[0]} and {len(names) - 1} more"
