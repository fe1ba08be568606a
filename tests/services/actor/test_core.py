"""The actor's loop: the memory of a policy through the steps of its environments."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from aclearn.config import Config, EnvConfig
from aclearn.rollout import UnrollCounter
from aclearn.telemetry import WaitMeter
from aclearn.types import ActionBatch, PolicyVersion
from services.actor.core import Actor
from services.actor.env_groups import make_groups


class Counting:
    """Actions at random of a policy that counts, in its state, the observations of an episode."""

    predictions = 0

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.asked: list[np.ndarray] = []  # the state that came with each request

    def request(self, group, observations, state) -> None:
        self._width = len(next(iter(observations.values())))
        self._state = state
        self.asked.append(state[0][:, 0] if state else np.zeros(self._width))

    def collect(self, group, proceed) -> ActionBatch:
        (count,) = self._state or (np.zeros((self._width, 1), np.float32),)
        actions = self.rng.integers(2, size=self._width, dtype=np.int32)
        log_prob = np.zeros(self._width, np.float32)
        return ActionBatch(
            actions, log_prob, PolicyVersion(0, 0), state=self._state, next_state=(count + 1,)
        )

    def poll(self) -> None:
        """Nothing is due."""

    def gauges(self) -> dict[str, float]:
        return {}


def test_a_policys_memory_goes_on_from_step_to_step_and_is_zero_where_an_episode_starts() -> None:
    config = Config(env=EnvConfig(id="CartPole-v1"))
    [group] = make_groups(config, actor_index=0)[:1]
    resets, receive = [], group.env.recv

    def recv():
        step = receive()
        resets.append(step.reset)
        return step

    group.env.recv = recv
    actions = Counting()
    sender = SimpleNamespace(send=lambda *_: True, poll=lambda: None, gauges=dict)
    actor = Actor(
        [group],
        actions=actions,
        counter=UnrollCounter(),
        sender=sender,
        proceed=lambda: len(resets) < 200,
        meter=WaitMeter(),
    )
    actor.run()
    group.env.close()
    expected = np.zeros(len(actions.asked[0]))
    np.testing.assert_array_equal(actions.asked[0], expected)
    for reset, asked in zip(resets, actions.asked[1:], strict=False):
        expected = np.where(reset, 0, expected + 1)
        np.testing.assert_array_equal(asked, expected)
    assert sum(reset.any() for reset in resets) > 5
