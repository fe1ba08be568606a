"""Links: the elements of a compressor chain."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from aclearn.types.bounds import MOST_CHAIN_BYTES
from compress.errors import ChainError
from compress.graphs.policy_graph import PolicyGraph
from compress.policy import Context, Policy


class Link(ABC):
    """One method of compression: takes a policy and a context, returns a policy.

    A link of your own is one class with an `id`, a `plan` and a `compress`. Test it with
    `check_compressor`. State between versions (masks, a student, activation ranges) belongs in
    `context.memory(self.state_key)`.

    Attributes:
        needs_observations: the link runs only once there are visited observations.
        ignores_input: its result does not depend on the links before; a chain does not run those.
        widths_from_weights: the widths follow from the weights; those of `plan` are an estimate.
        state_key: key of the link's memory; the chain sets it to the link's position and id.
    """

    needs_observations: bool = False
    ignores_input: bool = False
    widths_from_weights: bool = False
    state_key: str = "link"

    @property
    @abstractmethod
    def id(self) -> str:
        """Name and settings in one word, e.g. "prune=0.5"; a part of the chain's id."""

    @abstractmethod
    def plan(self, graph: PolicyGraph) -> PolicyGraph:
        """The graph that `compress` will make of this graph.

        Raises:
            ChainError: the link cannot work on this graph; says why.
        """

    @abstractmethod
    def compress(self, policy: Policy, context: Context) -> Policy:
        """The compressed policy; `policy` and its tensors stay unchanged.

        Raises:
            NeedsObservations: there are no observations yet; only with `needs_observations`.
        """

    def load_modules(self) -> None:  # noqa: B027
        """Import what `compress` needs, so that the first version takes no longer than later ones.

        Called before a run's first version; a chain also works without it.
        """

    def gauges(self, memory: Mapping[str, Any]) -> dict[str, float]:
        """Metrics of the last version by name, from the link's own memory; none by default."""
        return {}

    def refuse(self, reason: str) -> ChainError:
        """The error for `plan` to raise."""
        return ChainError(f"{self.id}: {reason}")

    def require_layers(self, graph: PolicyGraph) -> None:
        """Raise `ChainError` for a network of the user's own, whose layers are unknown."""
        if graph.has_module:
            raise self.refuse(
                f"reads a network's layers, and {graph.architecture.name} is a module of yours; "
                "put distill=mlp or another of aclearn's networks before it, or compress the "
                "module yourself (compress.modules)"
            )

    def require_fp32(self, graph: PolicyGraph) -> None:
        """Raise `ChainError` unless the graph is fp32 and not yet static."""
        if graph.static:
            raise self.refuse(
                f"comes after {graph.runtime}, which makes a static graph; put it before"
            )
        if graph.precision != "fp32":
            raise self.refuse(
                f"comes after the quantisation to {graph.precision}, which it would undo; put it "
                "before"
            )


def is_word(text: object) -> bool:
    """Whether it is printable text without a space and short enough for a message."""
    return (
        isinstance(text, str)
        and text.isprintable()
        and 0 < len(text.encode()) <= MOST_CHAIN_BYTES
        and " " not in text
    )


def is_id(text: object) -> bool:
    """Whether it can be a link's id: a word without ">", which joins the ids of a chain."""
    return is_word(text) and ">" not in str(text)
