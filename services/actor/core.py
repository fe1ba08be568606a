"""The actor: steps groups of environments and ships what happened as unrolls."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from aclearn.rollout import UnrollCounter
from aclearn.telemetry import WaitMeter
from aclearn.types import zeroed
from aclearn.wire import Heartbeat
from services.actor.action_sources import ActionSource, LocalActions
from services.actor.env_groups import Group
from services.actor.unroll_sender import UnrollSender
from services.runtime.monitor_client import MOST_EPISODES
from services.runtime.role_metrics import RoleMetrics


class Actor:
    """The loop over groups: while one group's environments step, another's actions are chosen.

    Args:
        groups: with their environments not yet reset.
        actions: where actions come from.
        counter: gives unrolls their place.
        sender: ships them.
        proceed: called between any two steps and while waiting; False ends the loop.
        meter: measures where the time goes.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        *,
        actions: ActionSource,
        counter: UnrollCounter,
        sender: UnrollSender,
        proceed: Callable[[], bool],
        meter: WaitMeter,
    ) -> None:
        self._groups, self._actions = groups, actions
        self._counter, self._sender = counter, sender
        self._proceed, self._meter = proceed, meter
        self._metrics = RoleMetrics(meter)
        for group in groups:
            group.env.between_attempts = self._sign_of_life
        self._returns: deque[float] = deque(maxlen=MOST_EPISODES)
        self._episodes = 0

    @property
    def env_steps(self) -> int:
        """Agent steps taken, those of unfinished unrolls included."""
        return self._counter.env_steps + sum(group.builder.steps for group in self._groups)

    def run(self) -> None:
        """Act until `proceed` says stop."""
        for index, group in enumerate(self._groups):
            observations = group.env.reset()
            group.builder.begin(observations)
            self._actions.request(index, observations, ())
        while True:
            for index, group in enumerate(self._groups):
                if not (self._step(index, group) and self._look_around()):
                    return

    def close(self) -> None:
        """Ask for nothing more; the environments stay open."""
        self._actions.close()

    def _sign_of_life(self) -> None:
        # what it answers is asked again after the step
        self._proceed()

    def _look_around(self) -> bool:
        """What is due between two steps; False when the actor must stop."""
        with self._meter.part("wire"):
            if not self._proceed():
                return False
            self._sender.poll()
        self._actions.poll()
        return True

    def _step(self, index: int, group: Group) -> bool:
        """One turn of a group: take its steps' results and ask, or take the answer and step."""
        if group.choice is None:
            choice = self._actions.collect(index, self._proceed)
            if choice is None:
                return False
            group.choice = choice
            with self._meter.waiting("emulator"):
                group.env.send(choice.actions)
            return True
        with self._meter.waiting("emulator"):
            step = group.env.recv()
        choice, group.choice = group.choice, None
        self._actions.request(index, step.observations, zeroed(choice.next_state, step.reset))
        with self._meter.part("encode"):
            group.builder.add(choice, step)
            for episode in group.episodes.update(step):
                self._returns.append(episode.return_)
                self._episodes += 1
            if not group.builder.full:
                return True
            unroll = group.builder.take(self._counter)
        with self._meter.part("wire"):
            return self._sender.send(self._counter.sequence, unroll, self._proceed)

    def heartbeat(self) -> Heartbeat:
        """What the actor says of itself; hands over the episodes that ended since the last one."""
        returns = list(self._returns)
        self._returns.clear()
        counters = {
            "env_steps": self.env_steps,
            "episodes": self._episodes,
        }
        if isinstance(self._actions, LocalActions):
            counters["predictions"] = self._actions.predictions
        return self._metrics.heartbeat(
            counters=counters,
            gauges={
                "env_faults": float(sum(sum(group.env.faults.values()) for group in self._groups)),
                **self._sender.gauges(),
                **self._actions.gauges(),
            },
            dropped=self._counter.dropped,
            episode_returns=returns,
        )
