"""The actor and the policy of a lock-step run."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import numpy as np

from aclearn.config import Config
from aclearn.distributions import distribution_of
from aclearn.learning import PublishedWeights, RecentObservations
from aclearn.policies import Architecture
from aclearn.rollout import PolicySnapshot, UnrollCounter, act
from aclearn.types import OBSERVATION, PolicyVersion, State, Unroll, zeroed
from aclearn.wire import Heartbeat
from compress import ArtifactRuntime, PolicyRuntime, RefusedArtifact
from services.actor.env_groups import Group, make_groups
from services.compressor.core import Compressor
from services.runtime.policy_factory import make_chain, make_runtime
from services.runtime.role_metrics import RoleMetrics

_LOGGER = logging.getLogger(__name__)

#: Observations that a version is compressed with.
_OBSERVATIONS = 128


class LockstepPolicy:
    """The policy that acts, uncompressed or through the configured chain.

    Args:
        config: of the run.
        architecture: of the uncompressed policy.

    Attributes:
        acting: the policy that acts; None before the first.
        distribution: of its actions.
        swaps: how often it was replaced.
        refused: how often an artifact was refused.
    """

    def __init__(self, config: Config, architecture: Architecture) -> None:
        self.acting: PolicySnapshot | None = None
        self.distribution = distribution_of(architecture.action_spec)
        self.swaps = 0
        self.refused = 0
        self._runtime: PolicyRuntime | None = None
        self._compressor: Compressor | None = None
        self._compressed = ArtifactRuntime(architecture)
        if config.compressor.chain:
            self._compressor = Compressor(
                make_chain(config, architecture),
                architecture,
                config.compressor,
                seed=config.run.seed,
                clock=lambda: 0.0,  # a budget of time would make the result depend on it
            )
        else:
            self._runtime = make_runtime(architecture, config.actors.runtime, device="cpu")

    @property
    def at(self) -> PolicyVersion:
        """The version that acts."""
        return PolicyVersion() if self.acting is None else self.acting.at

    def take(self, newest: PublishedWeights, recent: RecentObservations) -> None:
        """Act on newer weights from now on."""
        if self._runtime is not None:
            self.acting = PolicySnapshot(self._runtime.load(newest.tensors), newest.at)
            self.swaps += 1
        elif self._compressor is not None:
            observations = recent.sample(_OBSERVATIONS)
            if observations:
                self._compressor.observe(observations[OBSERVATION])
            self._compressor.compress(newest.at, newest.tensors)
            self._take_artifact(self._compressor)

    def gauges(self) -> dict[str, float]:
        """For a heartbeat: as an actor's policy client says them."""
        return {"policy_swaps": float(self.swaps), "policy_refused": float(self.refused)}

    def _take_artifact(self, compressor: Compressor) -> None:
        """Act on the newest artifact; where it is refused, on the uncompressed policy.

        Where that is refused too the old policy goes on, as it does for a live actor.
        """
        for uncompressed in (False, True):
            artifact = compressor.newer_than(self.at, uncompressed=uncompressed)
            if artifact is None:
                return
            try:
                executable = self._compressed.load(artifact)
            except RefusedArtifact as error:
                self.refused += 1
                _LOGGER.error("event=policy_refused version=%s reason=%r", artifact.at, str(error))
                continue
            self.acting = PolicySnapshot(
                executable, artifact.at, artifact.chain, artifact.min_action_prob
            )
            self.swaps += 1
            return


@dataclass
class LockstepActor:
    """All environments of the run, stepped group after group with one policy.

    Args:
        config: of the run.
        policy: acts.
    """

    config: Config
    policy: LockstepPolicy
    returns: list[float] = field(default_factory=list)
    predictions: int = 0
    episodes: int = 0

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng((self.config.run.seed, 0, 1))
        self.counter = UnrollCounter()
        self.groups: list[Group] = []
        for index in range(self.config.actors.processes):
            self.groups += make_groups(self.config, actor_index=index)
        self._observations = [group.env.reset() for group in self.groups]
        self._states = [State() for _ in self.groups]
        for group, observations in zip(self.groups, self._observations, strict=True):
            group.builder.begin(observations)
        self._turn = 0

    def collect(self) -> tuple[int, Unroll]:
        """The next group's unroll with its sequence number."""
        index = self._turn
        self._turn = (index + 1) % len(self.groups)
        group = self.groups[index]
        while not group.builder.full:
            assert self.policy.acting is not None  # lock-step publishes before it acts
            choice = act(
                self.policy.acting,
                self.policy.distribution,
                self._observations[index],
                self._states[index],
                self._rng,
            )
            group.env.send(choice.actions)
            step = group.env.recv()
            group.builder.add(choice, step)
            self.predictions += len(choice.actions)
            self._observations[index] = step.observations
            self._states[index] = zeroed(choice.next_state, step.reset)
            for episode in group.episodes.update(step):
                self.returns.append(episode.return_)
                self.episodes += 1
        unroll = group.builder.take(self.counter)
        return self.counter.sequence, unroll

    @property
    def env_steps(self) -> int:
        """Agent steps taken."""
        return self.counter.env_steps + sum(group.builder.steps for group in self.groups)

    def take_heartbeat(self) -> Heartbeat:
        """What an actor would say of itself; hands over the ended episodes."""
        returns, self.returns = self.returns, []
        return RoleMetrics(meter=None).heartbeat(
            counters={
                "env_steps": self.env_steps,
                "episodes": self.episodes,
                "predictions": self.predictions,
            },
            gauges=self.policy.gauges(),
            dropped=self.counter.dropped,
            episode_returns=returns,
        )

    def close(self) -> None:
        """Close the environments."""
        for group in self.groups:
            group.env.close()
