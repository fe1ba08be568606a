"""Requests policies newer than the current one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from aclearn.policies import Architecture
from aclearn.rollout import PolicySnapshot
from aclearn.types import DEFAULT_POLICY, PolicyId, PolicyVersion
from aclearn.wire import ArtifactReply, ErrorReply, Message, NoNewerWeights, Weights
from compress import ArtifactRuntime, RefusedArtifact, RefusedTensors
from services.policy.factory import make_runtime
from services.policy.shared_weights import SharedWeightsClient, shared_weights_of
from services.policy.sources import PolicySource, artifact_source, weights_source
from services.role.context import RoleContext
from services.role.monitor_client import MonitorClient
from services.role.request_client import PeerLink, RequestClient
from services.role.requests import RetryPolicy

_LOGGER = logging.getLogger(__name__)

#: Seconds without a connection or an answer before the next peer is asked: a dead peer stays listed
#: until it was silent for long.
_RETRY = RetryPolicy(
    answer_within_s=5.0,
    once=True,  # by then the request is outdated: a new one replaces it
    silent_after_s=5.0,
    reached_within_s=3.0,
    retry_first_s=0.05,
    retry_most_s=0.4,
)
_NEWER = "a newer policy"
#: Least time between two requests; and between two looks at shared weights, or two requests while
#: nothing else can be done.
ASK_EVERY_S, _LOOK_EVERY_S = 0.05, 0.01
#: Largest share of a role's time for swapping policies; costly swaps make requests rarer.
_SWAP_SHARE = 0.03
#: Longest pause between requests: an interrupted swap only looks costly. Also the pause after a
#: refusal, since the next policy may be refused too.
_ASK_AT_LATEST_S = 1.0


class PolicyClient:
    """Keeps the acting policy at the newest version of its source.

    `poll` does not wait, except for a fifth of a second when it opens a new trainer's buffer.
    Policies that do not fit, are damaged or are not finite are refused and counted; the old policy
    stays. In place of a refused artifact it requests the uncompressed policy.

    Args:
        ask_every_s: least time between two requests, if the peer tells no longer one; 0: at once.
        shared: a trainer's weights in shared memory, read without requests while it is open.
        policy: name of the policy.

    Attributes:
        acting: the acting policy, None before the first; replaced in one assignment, so another
            thread that reads it once has a consistent policy.
    """

    def __init__(
        self,
        link: PeerLink,
        source: PolicySource,
        shared: SharedWeightsClient | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        ask_every_s: float = ASK_EVERY_S,
        policy: str = DEFAULT_POLICY,
    ) -> None:
        self._policy = policy
        self._client = RequestClient[str](link, _RETRY, self._take_message, clock)
        self._source, self._shared = source, shared
        self._clock, self._ask_every_s = clock, ask_every_s
        self._told_s = 0.0
        self._next_ask = clock()
        self._refused: PolicyId | None = None
        self._wants_uncompressed = False
        self.acting: PolicySnapshot | None = None
        self.swaps = 0
        self.refused = 0
        self.state_restarts = 0

    @property
    def id(self) -> PolicyId:
        """The policy that acts."""
        acting, policy = self.acting, self._policy
        if acting is None:
            return PolicyId(policy=policy)
        return PolicyId(acting.at, acting.chain, policy)

    @property
    def at(self) -> PolicyVersion:
        """The acting version."""
        return self.id.at

    def close(self) -> None:
        """Ask for nothing more."""
        if self._client.link.client is not None:
            self._client.link.client.close()

    def wait(self, timeout_s: float) -> None:
        """Wait up to `timeout_s`, since nothing can be done before there is a newer policy.

        It ends with an answer. The next request or look is soon, whatever a swap costs.
        """
        soon = self._clock() + max(_LOOK_EVERY_S, self._told_s)
        self._next_ask = min(self._next_ask, soon)
        client = self._client.link.client
        if client is not None and self._client.requests.sent(_NEWER):
            client.transport.wait(timeout_s)
        else:
            time.sleep(min(timeout_s, _LOOK_EVERY_S))

    def gauges(self) -> dict[str, float]:
        """For heartbeats: policies swapped and refused so far, and swaps that lost the state."""
        return {
            "policy_swaps": float(self.swaps),
            "policy_refused": float(self.refused),
            "state_restarts": float(self.state_restarts),
        }

    def poll(self, monitor: MonitorClient) -> None:
        """Take an answer if there is one; look or ask when due."""
        link, shared = self._client.link, self._shared
        if self._client.poll(monitor) and shared is not None and link.peer is not None:
            shared.follow(link.peer)
        now = self._clock()
        if link.client is None or self._client.requests.sent(_NEWER) or now < self._next_ask:
            return
        known = self.id
        if self._refused and self._refused.at >= known.at and not self._wants_uncompressed:
            known = self._refused
        found = None if shared is None else shared.newer_than(known.at)
        if shared is not None and found is not None:
            self._client.cancel(_NEWER)
            offered = PolicyId(found[0], policy=self._policy)
            self._take(offered, partial(shared.load, *found), since=now)
        elif self._looks:
            self._next_ask = self._clock() + _LOOK_EVERY_S
        elif _NEWER not in self._client.requests:
            uncompressed = self._source.uncompressed if self._wants_uncompressed else None
            self._client.ask(_NEWER, (uncompressed or self._source.request)(known))

    @property
    def _least_s(self) -> float:
        """Least time between two requests: the peer may have more clients than it can serve."""
        return max(self._ask_every_s, self._told_s)

    @property
    def _looks(self) -> bool:
        """Whether it reads shared memory, so that nothing must be requested."""
        return self._shared is not None and self._shared.open

    def _take_message(self, message: Message) -> str:
        """Handle a peer's message; the next request follows after a pause."""
        if isinstance(message, Weights | ArtifactReply | NoNewerWeights) and self._ask_every_s:
            self._told_s = message.pause_s
        self._next_ask = self._clock() + self._least_s
        if isinstance(message, Weights | ArtifactReply):
            chain = message.chain if isinstance(message, ArtifactReply) else PolicyId().chain
            at = PolicyVersion(message.generation, message.version)
            offered = PolicyId(at, chain, message.policy)
            self._take(offered, partial(self._source.load, message), since=self._clock())
        elif not isinstance(message, NoNewerWeights | ErrorReply):
            _LOGGER.warning("event=unexpected_message kind=%s", type(message).__name__)
        return _NEWER

    def _take(self, offered: PolicyId, load: Callable[[], PolicySnapshot], *, since: float) -> None:
        """Swap the policy in; the next pause depends on the time `since`."""
        if not offered.replaces(self.id):
            return  # a late answer
        try:
            acting, before = load(), self.acting
        except (RefusedTensors, RefusedArtifact) as error:
            self.refused += 1
            self._next_ask = self._clock() + _ASK_AT_LATEST_S
            self._refused = offered  # the same again would be refused again
            self._wants_uncompressed = self._source.uncompressed is not None
            _LOGGER.error(
                "event=policy_refused version=%s chain=%s policy=%s reason=%r",
                *(*offered, str(error)),
            )
            return
        self.acting = acting
        self.swaps += 1
        if before is not None and before.own_state != acting.own_state:
            if not self.state_restarts:  # said once; the figure counts them
                _LOGGER.warning(
                    "event=state_restarts before=%s after=%s detail='the policies keep states of "
                    "other shapes or meaning: episodes go on with a state of zeros'",
                    *(before.chain, acting.chain),
                )
            self.state_restarts += 1
        if self._wants_uncompressed and self._refused:
            # in place of the refused chain's artifact of this version, too
            self._refused = offered._replace(chain=self._refused.chain)
        self._wants_uncompressed = False
        now = self._clock()
        pause_s = (now - since) / _SWAP_SHARE
        least_s = _LOOK_EVERY_S if self._looks else self._least_s
        self._next_ask = now + max(least_s, min(pause_s, _ASK_AT_LATEST_S))


def make_policy_client(
    context: RoleContext,
    architecture: Architecture,
    kind: str,
    *,
    max_batch: int,
    threads: int = 1,
    device: str = "auto",
    uncompressed: bool = False,
    policy: str = DEFAULT_POLICY,
) -> PolicyClient:
    """A client of the compressor if there is one, else of the trainer, with its runtime.

    Args:
        kind: "onnx" or "torch", for the uncompressed policy; an artifact names its own.
        max_batch: most observations of a batch; a GPU captures this size.
        uncompressed: ask a compressor for the uncompressed policy, not for the current rung's.
        policy: name of the policy, of several.

    Raises:
        ConfigError: the GPU does not exist.
    """
    # deterministic runs: each role acts on the newest policy
    every_s = 0.0 if context.inline else ASK_EVERY_S
    clock = context.clocks.decisions
    make = partial(PolicyClient, clock=clock, ask_every_s=every_s, policy=policy)
    own = f"-{policy}" if context.config.policies else ""
    if context.config.compressor.rungs:
        artifacts = ArtifactRuntime(architecture, threads=threads)
        suffix = f"{own}-original" if uncompressed else own
        source = artifact_source(artifacts, state=architecture.state, uncompressed=uncompressed)
        link = PeerLink(context, "artifacts", context.index, suffix)
        return make(link, source)
    runtime = make_runtime(architecture, kind, threads=threads, device=device, max_batch=max_batch)
    share = context.config.trainer.share_weights
    shared = shared_weights_of(share, architecture, runtime, kind, policy)
    return make(PeerLink(context, "weights", suffix=own), weights_source(runtime), shared)
