"""Random episodes through builder, counter, wire checks and account: every step has one fate."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aclearn.learning import StepAccount, check_unroll
from aclearn.rollout import UnrollBuilder, UnrollCounter
from aclearn.types import ActionBatch, PolicyVersion, UnrollSpec

_EVENTS = st.sampled_from(["go on"] * 6 + ["terminated", "truncated", "life lost", "fault"])


class _Model:
    """One environment's steps as a list, each with its expected fate."""

    def __init__(self) -> None:
        self.fates: list[str] = []
        self.episode: list[int] = []
        self.ended = False

    def step(self, event: str) -> None:
        if event == "fault":
            for index in self.episode:
                self.fates[index] = "dropped"
        if event == "fault" or self.ended:
            self.fates.append("reset")
            self.episode = []
            self.ended = False
            return
        self.fates.append("valid")
        self.episode.append(len(self.fates) - 1)
        if event in ("terminated", "truncated"):
            self.ended = True
            self.episode = []

    def ship(self) -> list[str]:
        """The fates of the full unroll; sent steps cannot be dropped any more."""
        fates, self.fates, self.episode = self.fates, [], []
        return fates


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_step_is_learned_or_dropped_exactly_once(scripted_envs, data) -> None:
    groups = data.draw(st.integers(1, 2))
    B, T = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5))
    unrolls = data.draw(st.integers(1, 4))
    stack = data.draw(st.sampled_from([0, 1, 2, 4]))
    all_envs = [scripted_envs(B, stack=stack, seed=g) for g in range(groups)]
    unrolls_of = UnrollSpec(all_envs[0].spec, T)
    builders = [
        UnrollBuilder(unrolls_of, num_envs=B, clip_rewards=True, life_loss_ends=True)
        for _ in range(groups)
    ]
    models = [[_Model() for _ in range(B)] for _ in range(groups)]
    counter, account = UnrollCounter(), StepAccount()
    for envs, builder in zip(all_envs, builders, strict=True):
        builder.begin(envs.reset())
    taken = {"valid": 0, "dropped": 0}
    for _ in range(unrolls):
        for _ in range(T):
            for g, envs in enumerate(all_envs):
                events = data.draw(st.lists(_EVENTS, min_size=B, max_size=B))
                for model, event in zip(models[g], events, strict=True):
                    model.step(event)
                zeros = np.zeros(B, np.float32)
                step = envs.step(events)
                actions = zeros.astype(np.int32)
                builders[g].add(ActionBatch(actions, zeros, PolicyVersion(0, 1)), step)
                fates = [fate for model in models[g] for fate in model.fates]
                assert builders[g].steps == len(fates) - fates.count("reset")
        for g in range(groups):
            unroll = builders[g].take(counter)
            check_unroll(unroll, unrolls_of)
            fates_by_env = [model.ship() for model in models[g]]
            expected = np.array(fates_by_env).T == "valid"
            np.testing.assert_array_equal(unroll.valid, expected)
            steps = int(unroll.valid.sum())
            refusal = account.admit(
                "incarnation",
                counter.sequence,
                unroll.env_steps_before,
                unroll.env_steps_after,
                unroll.dropped,
                steps,
            )
            assert refusal is None
            account.check()
            for fate in taken:
                taken[fate] += sum(fates.count(fate) for fates in fates_by_env)
            assert counter.env_steps == taken["valid"] + taken["dropped"]
    assert account.env_steps == counter.env_steps
    assert account.in_flight_steps == taken["valid"]
    assert sum(account.dropped_steps.values()) == taken["dropped"]
    assert set(account.dropped_steps) <= {"env_fault"}
