"""The ladder of chains: each rung has its links' state, all share the observations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from aclearn.types import Visited
from compress import Artifact, CompressorChain, Context, Policy
from services.policy.factory import uncompressed_chain, warn_of_idle_links


@dataclass(frozen=True)
class Rung:
    """A chain, and the context that keeps its links' state while another rung is current."""

    chain: CompressorChain
    context: Context


class Ladder:
    """Chains from the most compressed to the most faithful; the last is the uncompressed policy.

    Args:
        observations: number of visited observations that links get.
        to_compare: number of further ones for comparisons of artifacts.
        attend: of the rungs' contexts.
    """

    def __init__(
        self,
        chains: Sequence[CompressorChain],
        *,
        observations: int,
        to_compare: int,
        seed: int,
        clock: Callable[[], float],
        attend: Callable[[], None] = lambda: None,
    ) -> None:
        for chain in chains:
            warn_of_idle_links(chain)
            chain.load_modules()  # in the first compression they would be a gap of seconds
        self.rungs = [
            Rung(chain, Context(seed=seed, clock=clock, attend=attend)) for chain in chains
        ]
        self.current = 0
        # it may be made while a rung attends, and is quick
        self._uncompressed = Rung(uncompressed_chain(), Context(seed=seed, clock=clock))
        self._made: tuple[Policy, Artifact | None] | None = None
        self._for_links, self._to_compare = observations, to_compare
        self._observed = 0

    def seed(self, seed: int) -> None:
        """Draw all random numbers from another seed from now on."""
        for rung in (*self.rungs, self._uncompressed):
            rung.context.seed = seed

    @property
    def rung(self) -> Rung:
        """The current one."""
        return self.rungs[self.current]

    @property
    def uncompressed_chain(self) -> CompressorChain:
        """The chain of the uncompressed policy."""
        return self._uncompressed.chain

    @property
    def is_uncompressed(self) -> bool:
        """Whether the current rung is the uncompressed policy."""
        return self.rung.chain.id == self._uncompressed.chain.id

    def from_current(self) -> Sequence[Rung]:
        """The current rung and the more faithful ones, without the uncompressed policy."""
        last = self._uncompressed.chain.id
        return [rung for rung in self.rungs[self.current :] if rung.chain.id != last]

    def uncompressed(self, policy: Policy) -> Artifact | None:
        """The uncompressed policy as an artifact, made once; None if it was refused before.

        Raises:
            RefusedTensors: its parameters are not finite.
        """
        if self._made is None or self._made[0] is not policy:
            self._made = policy, None
            artifact = self._uncompressed.chain.compress(policy, self._uncompressed.context)
            self._made = policy, artifact
        return self._made[1]

    def observe(self, visited: Visited) -> None:
        """Keep the newest visited observations.

        The same share of each batch is held out for comparisons, so that both parts are equally
        recent. Sequences stay whole.
        """
        for_links, to_compare = self._for_links, self._to_compare
        count = visited.sequences
        numbers = self._observed + np.arange(count)
        held_out = numbers * to_compare % (for_links + to_compare) >= for_links
        self._observed += count
        known = self.rungs[0].context
        kept = _newest(known.visited, visited.take(~held_out), for_links)
        compared = _newest(known.held_out, visited.take(held_out), to_compare)
        for rung in self.rungs:
            rung.context.visited, rung.context.held_out = kept, compared


def _newest(known: Visited, more: Visited, count: int) -> Visited:
    all_ = Visited.joined([known, more])
    kept = len(all_.needed(count, np.arange(all_.sequences)[::-1]))
    return all_.take(slice(all_.sequences - kept, None))
