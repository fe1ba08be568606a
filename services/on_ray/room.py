"""How many processes the nodes of a cluster have room for: pure arithmetic."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_SET = re.compile(r"(!?)in\((.*)\)")


@dataclass(frozen=True)
class Node:
    """A node of a cluster, with all that it has."""

    id: str
    address: str
    cpus: float
    gpus: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """Its address and what it has."""
        gpus = f" and {self.gpus:g} GPUs" if self.gpus else ""
        return f"{self.address}: {self.cpus:g} CPUs{gpus}"


@dataclass(frozen=True)
class Need:
    """What a process takes.

    Attributes:
        labels: of nodes that it may run on, as in Ray's `label_selector`.
        node_id: of the only node that it may run on; None for any.
    """

    num_cpus: float
    num_gpus: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)
    node_id: str | None = None

    @property
    def words(self) -> str:
        """What it takes."""
        gpus = f" and {self.num_gpus:g} GPUs" if self.num_gpus else ""
        where = "".join(f", {key}: {value}" for key, value in self.labels.items())
        return f"{self.num_cpus:g} CPUs{gpus}{where}"


@dataclass(frozen=True)
class Room:
    """What is left for processes of one kind.

    Attributes:
        count: of them.
        unplaced: the needs that no node has room for.
    """

    count: int
    unplaced: Sequence[Need]


def room_for(
    need: Need, nodes: Sequence[Node], taken: Sequence[tuple[Need, str | None]] = ()
) -> Room:
    """The number of processes with `need` that fit beside those of `taken`.

    Args:
        taken: needs, each with the id of its node; None if it has none yet.
    """
    free = {node.id: [node.cpus, node.gpus] for node in nodes}
    unplaced: list[Need] = []
    # those with a node first: the others fill what is left
    for other, at in sorted(taken, key=lambda each: (each[1] is None, each[0].node_id is None)):
        if at is None:
            able = [node for node in nodes if admits(node, other) and _fits(free[node.id], other)]
            if not able:
                unplaced.append(other)
                continue
            at = max(able, key=lambda node: free[node.id][0]).id
        if at in free:
            free[at][0] -= other.num_cpus
            free[at][1] -= other.num_gpus
    return Room(sum(_times(free[node.id], need) for node in nodes if admits(node, need)), unplaced)


def _fits(free: Sequence[float], need: Need) -> bool:
    return free[0] >= need.num_cpus and free[1] >= need.num_gpus


def _times(free: Sequence[float], need: Need) -> int:
    times = [
        (has + 1e-9) // takes
        for has, takes in zip(free, (need.num_cpus, need.num_gpus), strict=True)
        if takes
    ]
    return max(0, int(min(times))) if times else 0


def admits(node: Node, need: Need) -> bool:
    """Whether a process with this need may be on a node, as far as its labels say."""
    return need.node_id in (None, node.id) and all(
        _matches(wanted, node.labels.get(key)) for key, wanted in need.labels.items()
    )


def _matches(wanted: str, value: str | None) -> bool:
    """Whether a label has a wanted value: `a`, `!a`, `in(a,b)` or `!in(a,b)`."""
    if found := _SET.fullmatch(wanted):
        among = value in [each.strip() for each in found[2].split(",")]
        return among != bool(found[1])
    return value != wanted[1:] if wanted.startswith("!") else value == wanted
