"""Pulls policies: "I have this version, give me newer, or nothing"."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from aclearn.errors import AclearnError
from aclearn.policies import Architecture
from aclearn.rollout import PolicySnapshot
from aclearn.types import PolicyId, PolicyVersion
from aclearn.wire import ErrorReply, Message, NoNewerWeights
from compress import ArtifactRuntime, RefusedArtifact, RefusedTensors
from services.runtime.monitor_client import MonitorClient
from services.runtime.peer_link import PeerLink
from services.runtime.policy_factory import make_runtime
from services.runtime.policy_sources import ArtifactSource, PolicySource, make_weights_source
from services.runtime.request_client import RequestClient
from services.runtime.requests import RetryPolicy
from services.runtime.role_context import RoleContext

_LOGGER = logging.getLogger(__name__)

#: After so many seconds without a connection, or with a request without an answer, the next peer is
#: asked if there is one: a peer that died is listed until it has been silent for long. A compressor
#: does not answer while it compresses, and the first time takes longest.
_RETRY = RetryPolicy(
    answer_within_s=10.0,
    once=True,  # what is known may have changed: a new question takes its place
    silent_after_s=10.0,
    reached_within_s=5.0,
    retry_first_s=0.05,
    retry_most_s=0.4,
)
_NEWER = "a newer policy"
#: Least time between two questions, and between two looks where no peer has to be asked.
_ASK_EVERY_S, _LOOK_EVERY_S = 0.05, 0.01
#: Swapping policies may take this share of a role's time; with costly swaps it asks less often.
_SWAP_SHARE = 0.03
#: But never less often than this: a swap that was interrupted only looks costly. After a refusal it
#: waits so long, since what comes next may be refused too.
_ASK_AT_LATEST_S = 1.0


class PolicyClient:
    """Keeps the policy that acts at the newest version of its source.

    `poll` does not wait, except for a fifth of a second when it opens a new trainer's buffer.

    What does not fit, is damaged or not finite is refused and counted; the old policy goes on. In
    place of a refused artifact the uncompressed policy is asked for: there may be no newer version
    before a role acts on this one.

    Attributes:
        acting: the policy that acts, None before the first; replaced in one assignment, so another
            thread that reads it once has one policy whole.
        swaps: how often it was replaced.
        refused: how often a policy was refused.
    """

    def __init__(
        self,
        link: PeerLink,
        source: PolicySource,
        *,
        clock: Callable[[], float] = time.monotonic,
        ask_every_s: float = _ASK_EVERY_S,
    ) -> None:
        self._client = RequestClient[str](link, _RETRY, self._take_message, clock)
        self._source, self._clock, self._ask_every_s = source, clock, ask_every_s
        self._next_ask = clock()
        self._refused: PolicyId | None = None
        self._wants_uncompressed = False
        self.acting: PolicySnapshot | None = None
        self.swaps = 0
        self.refused = 0

    @property
    def id(self) -> PolicyId:
        """The policy that acts."""
        return PolicyId() if self.acting is None else PolicyId(self.acting.at, self.acting.chain)

    @property
    def at(self) -> PolicyVersion:
        """The version that acts."""
        return self.id.at

    def gauges(self) -> dict[str, float]:
        """For the role's heartbeat: policies swapped in and refused since its start."""
        return {"policy_swaps": float(self.swaps), "policy_refused": float(self.refused)}

    def poll(self, monitor: MonitorClient) -> None:
        """Take an answer if there is one, and look or ask when it is time."""
        link = self._client.link
        if self._client.poll(monitor) and link.peer is not None:
            self._source.follow(link.peer)
        now = self._clock()
        if link.client is None or self._client.requests.sent(_NEWER) or now < self._next_ask:
            return
        known = self.id
        if self._refused and self._refused.at >= known.at and not self._wants_uncompressed:
            known = self._refused
        found = self._source.look(known.at)
        if found is not None:
            self._client.cancel(_NEWER)
            self._take(PolicyId(found[0]), found[1], since=now)
        elif self._source.silent:
            self._next_ask = self._clock() + _LOOK_EVERY_S
        elif _NEWER not in self._client.requests:
            uncompressed = self._wants_uncompressed
            self._client.ask(_NEWER, self._source.question(known, uncompressed=uncompressed))

    def _take_message(self, message: Message) -> str:
        """Whatever the peer says, the next question follows after a pause."""
        self._next_ask = self._clock() + self._ask_every_s
        offered = self._source.id_of(message)
        if offered is not None:
            self._take(offered, message, since=self._clock())
        elif not isinstance(message, NoNewerWeights | ErrorReply):
            _LOGGER.warning("event=unexpected_message kind=%s", type(message).__name__)
        return _NEWER

    def _take(self, offered: PolicyId, found: Any, *, since: float) -> None:
        """Swap it in; the next one comes after a pause for all that was done `since`."""
        if not offered.replaces(self.id):
            return  # an answer that was overtaken
        try:
            self.acting = self._source.load(offered.at, found)
        except (RefusedTensors, RefusedArtifact) as error:
            self._refuse(offered, error)
            return
        self.swaps += 1
        self._wants_uncompressed = False
        now = self._clock()
        pause_s = (now - since) / _SWAP_SHARE
        least_s = _LOOK_EVERY_S if self._source.silent else self._ask_every_s
        self._next_ask = now + min(max(least_s, pause_s), _ASK_AT_LATEST_S)

    def _refuse(self, offered: PolicyId, error: AclearnError) -> None:
        self.refused += 1
        self._next_ask = self._clock() + _ASK_AT_LATEST_S
        self._refused = offered  # the same again would be refused again
        self._wants_uncompressed = self._source.compressed
        _LOGGER.error("event=policy_refused version=%s chain=%s reason=%r", *offered, str(error))


def make_policy_client(
    context: RoleContext,
    architecture: Architecture,
    kind: str,
    *,
    max_batch: int,
    threads: int = 1,
    device: str = "auto",
) -> PolicyClient:
    """A client of the compressor if there is one, else of the trainer, with its runtime.

    Args:
        context: of the role that acts.
        architecture: of the uncompressed policy.
        kind: "onnx" or "torch", for the uncompressed policy; an artifact brings its own.
        max_batch: most observations of a batch; what a GPU captures.
        threads: of the runtime.
        device: where the uncompressed policy runs in torch.

    Raises:
        ConfigError: the named GPU is not there.
    """
    # where roles take turns, each acts on the newest policy that there is
    every_s = 0.0 if context.inline else _ASK_EVERY_S
    make = partial(PolicyClient, clock=context.clock, ask_every_s=every_s)
    if context.config.compressor.rungs:
        source = ArtifactSource(ArtifactRuntime(architecture, threads=threads))
        link = PeerLink(context, "artifacts", context.index)
        return make(link, source)
    runtime = make_runtime(architecture, kind, threads=threads, device=device, max_batch=max_batch)
    weights = make_weights_source(context.config, architecture, runtime, kind)
    return make(PeerLink(context, "weights"), weights)
