"""Links: what a compressor chain is made of, and the check that one keeps the contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from compress.errors import ChainError
from compress.graphs.policy_graph import PolicyGraph
from compress.policy import Context, Policy

#: Bytes of a chain's id and of a gauge's name at most: a message has no room for more.
MOST_NAME_BYTES = 1024


class Link(ABC):
    """One method of compression: takes a policy and a context, hands on a policy.

    A link of your own is one class: an `id`, a `plan` and a `compress`. Try it with
    `check_compressor`. State that it keeps from version to version (masks, a student, ranges
    of activations) belongs in `context.memory(self.state_key)`.

    Attributes:
        needs_observations: it cannot work before actors have visited some, and is not run then.
        ignores_input: its result does not depend on what the links before made; a chain does not
            run those.
        widths_from_weights: the widths follow from the weights; those of `plan` are an estimate.
        state_key: names the link's memory; the chain sets it to the link's place and id.
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
        """The graph that `compress` will make of such a graph.

        Raises:
            ChainError: it cannot work on this graph; says why.
        """

    @abstractmethod
    def compress(self, policy: Policy, context: Context) -> Policy:
        """The compressed policy; `policy` and its tensors stay as they are.

        Raises:
            NeedsObservations: it needs observations and there are none yet; `needs_observations`
                says so.
        """

    def gauges(self, memory: Mapping[str, Any]) -> dict[str, float]:
        """Numbers about the last version for the metrics, by name; none by default.

        Args:
            memory: the link's own, `context.memory(self.state_key)`.
        """
        return {}

    def refuse(self, reason: str) -> ChainError:
        """The error for `plan` to raise."""
        return ChainError(f"{self.id}: {reason}")

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
    """Whether it is text of printable characters without a space, and not too long to be sent."""
    return (
        isinstance(text, str)
        and text.isprintable()
        and 0 < len(text.encode()) <= MOST_NAME_BYTES
        and " " not in text
    )


def is_id(text: object) -> bool:
    """Whether a link may have it as its id: a word without ">", which joins ids to a chain's."""
    return is_word(text) and ">" not in str(text)
