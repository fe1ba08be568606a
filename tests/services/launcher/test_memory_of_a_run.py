"""Memories of a whole run: no state goes from one life to another, whatever fails meanwhile."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from aclearn.learning.batch import assemble_batch
from aclearn.learning.networks import Networks
from aclearn.learning.surrogate import _unroll
from aclearn.policies.network import load_tensors
from aclearn.policies.policy_module import zeroed_state
from aclearn.types import Unroll, is_compressed
from aclearn.wire import Weights, decode
from services.policy.factory import architecture_of
from services.roles import ACTOR
from tests.support.whole_run import WholeRun

_OWN = "tests.support.own_networks:Remembers"
#: So small that no weight changes, while versions do.
_NOTHING = 1e-30
_LEARNS = {
    "policy": {"memory": {"kind": "lstm", "size": 8}},
    "optimiser": {"learning_rate": _NOTHING},
    "actors": {"envs_per_group": 3},
}


class Fragile(gymnasium.Wrapper):
    """CartPole that raises in its 40th step, once made again too."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 40:
            raise RuntimeError("the pole is lost")
        return super().step(action)


class Listener:
    """The unrolls of a run by incarnation, in order, and the weights by version."""

    def __init__(self, run: WholeRun) -> None:
        self.unrolls: dict[str, list[Unroll]] = defaultdict(list)
        self.weights: dict[int, dict[str, np.ndarray]] = {}
        observe = run.faults.observe

        def listen(sender: str, receiver: str, frames: list[bytes]) -> None:
            observe(sender, receiver, frames)
            envelope = decode(frames)
            if isinstance(envelope.message, Unroll):
                self.unrolls[envelope.incarnation].append(envelope.message)
            elif isinstance(envelope.message, Weights):
                self.weights[envelope.message.version] = envelope.message.tensors

        run.faults.observe = listen

    def check(self, run: WholeRun) -> int:
        """Assert that each unroll goes on where the one before ended; the number of steps."""
        architecture = architecture_of(run._config, run._spec)
        networks = Networks(architecture, device=torch.device("cpu"))
        steps = 0
        for unrolls in self.unrolls.values():
            state: Any = None
            for unroll in unrolls:
                # those of its first step: where weights learn, it has one version
                load_tensors(networks.network, self.weights[int(unroll.versions.flat[0])])
                batch = assemble_batch([unroll], observation=run._spec.observation)
                if state is None:
                    assert not any(part.any() for part in batch.state), "it begins with zeros"
                    known = torch.ones(batch.width, dtype=torch.bool)
                else:
                    for found, expected in zip(batch.state, state, strict=True):
                        torch.testing.assert_close(found[known], expected[known])
                output = _unroll(batch, networks)
                policy = networks.distribution(output.parameters, batch.step_masks)
                found, expected = policy.log_prob(batch.actions), batch.behaviour_log_prob
                valid = batch.valid
                torch.testing.assert_close(found[valid], expected[valid], atol=1e-5, rtol=0)
                state = zeroed_state(output.state, batch.starts[-1])
                # the trainer does not follow the steps of an episode that failed
                known = valid[-1] | ~valid[-2]
                steps += int(valid.sum())
        return steps


@pytest.mark.parametrize("inference", ["local", "predictor"])
def test_states_go_on_in_each_life_and_in_no_other(start, inference) -> None:
    settings = {**_LEARNS, "actors": {**_LEARNS["actors"], "inference": inference}}
    settings["actors"]["max_env_faults"] = 1000
    run = start(run={"max_updates": 60}, env={"id": f"{__name__}:Fragile"}, **settings)
    listener = Listener(run)
    if inference == "predictor":
        for nth in (20, 41, 83):  # lost answers: the actor asks again
            run.faults.drop("ActReply", nth=nth)
        run.faults.duplicate("ActReply", nth=60)
        run.faults.duplicate("ActRequest", nth=70)
        run.faults.drop("ActRequest", nth=100)
    run.run_until(lambda: len(listener.unrolls) >= 2 and run.passed["Unroll"] > 20, "some unrolls")
    run.kill("actor-0")
    run.run_until(lambda: run.passed["Unroll"] > 30, "the other actor goes on")
    run.start(ACTOR, 0)
    run.run_until(lambda: len(listener.unrolls) == 3 and run.passed["Unroll"] > 60, "it is back")
    unrolls = [unroll for each in listener.unrolls.values() for unroll in each]
    versions = {*np.concatenate([unroll.versions for unroll in unrolls])}
    assert len(versions) > 3  # policies were swapped in mid-episode
    assert listener.check(run) > 500
    assert run.heartbeats["actor-1"].gauges["env_faults"] > 0
    assert run.refused == {}


@pytest.mark.parametrize(
    ("loss", "inference"), [("actor_critic", "local"), ("ppo", "local"), ("a2c", "predictor")]
)
def test_a_run_with_a_memory_is_reproducible_and_goes_on(start, tmp_path, loss, inference) -> None:
    settings: dict[str, Any] = {
        "policy": {"memory": {"kind": "gru", "size": 8}},
        "actors": {"inference": inference, "wait_for_weights": inference == "local"},
        "loss": {"kind": loss},
    }
    if loss == "ppo":  # sequences in two parts, twice
        settings["trainer"] = {"minibatches": 2, "epochs": 2}
    runs = []
    for name in ("one", "other"):
        runs.append(start(tmp_path / name, run={"max_updates": 16}, **settings))
        summary = runs[-1].run()
        assert summary["updates"] == 16
    runs[1].assert_same_checkpoint(runs[0])
    more = start(tmp_path / "one", resume=True, run={"max_updates": 24}, **settings)
    assert more.run()["updates"] == 24 and more.refused == {}


def test_steps_of_the_burn_in_are_dropped_by_that_name(start) -> None:
    settings = {**_LEARNS, "trainer": {"burn_in_steps": 1}}
    run = start(run={"max_updates": 40}, **settings)
    summary = run.run()
    # unrolls have 4 steps, and few steps of CartPole are resets
    share = summary["dropped_steps"]["burn_in"] / summary["learned_steps"]
    assert share == pytest.approx(1 / 3, abs=0.05)


_ENVS = "tests.support.space_envs"


@pytest.mark.parametrize(
    ("env", "policy"),
    [
        ({"id": f"{_ENVS}:Gates", "action_mask": "info"}, {}),
        ({"id": f"{_ENVS}:Locks", "action_mask": "info"}, {"separate_value": False}),
        ({"id": f"{_ENVS}:Senses", "ignore": ["note"]}, {}),
        ({"id": f"{_ENVS}:Match"}, {}),
        ({"id": f"{_ENVS}:Reach"}, {}),
        ({"id": "Pendulum-v1"}, {"normalise_observations": True}),
        ({"id": f"{_ENVS}:Senses", "ignore": ["note"]}, {"architecture": _OWN, "hidden": None}),
    ],
    ids=["masks", "masks of choices", "leaves", "choices", "mixed", "normalised", "own"],
)
def test_states_go_on_whatever_is_seen_and_done(start, env, policy) -> None:
    if "architecture" not in policy:
        policy = policy | {"memory": {"kind": "lstm", "size": 8}}
    normalises = {"normalise_returns": True} if "normalise_observations" in policy else {}
    run = start(
        env=env,
        policy=policy,
        loss=normalises,
        actors={"processes": 1, "envs_per_group": 3, "wait_for_weights": True},
        trainer={"unrolls_per_batch": 1},
        run={"max_updates": 20},
    )
    listener = Listener(run)
    assert run.run()["updates"] == 20 and run.refused == {}
    versions = [u.versions for unrolls in listener.unrolls.values() for u in unrolls]
    assert len({*map(int, np.concatenate(versions).flat)}) > 10
    assert all((each == each.flat[0]).all() for each in versions)
    assert listener.check(run) > 100


def test_a_pruned_memory_and_the_full_one_keep_their_states_apart_in_one_group(start) -> None:
    """Half of the episodes are the uncompressed policy's; the others have states of 4 units."""
    settings = {**_LEARNS, "compressor": {"chain": [{"prune": 0.5}, "onnx"], "every_s": 0.125}}
    settings["actors"] = {**_LEARNS["actors"], "original_share": 0.5}
    run = start(run={"max_updates": 40}, **settings)
    listener = Listener(run)
    assert run.run()["updates"] == 40 and run.refused == {}
    architecture = architecture_of(run._config, run._spec)
    networks = Networks(architecture, device=torch.device("cpu"))
    load_tensors(networks.network, next(iter(listener.weights.values())))
    counts = [0, 0]
    for unrolls in listener.unrolls.values():
        before = None
        for unroll in unrolls:
            batch = assemble_batch([unroll], observation=run._spec.observation)
            output = _unroll(batch, networks)
            policy = networks.distribution(output.parameters, batch.step_masks)
            found, expected = policy.log_prob(batch.actions), batch.behaviour_log_prob
            index = np.zeros_like(unroll.actions)
            index = index if unroll.chain_index is None else unroll.chain_index
            of_full = np.array([not is_compressed(chain) for chain in unroll.chains])[index]
            full = torch.from_numpy(of_full) & batch.valid
            torch.testing.assert_close(found[full], expected[full], atol=1e-5, rtol=0)
            pruned = ~torch.from_numpy(of_full) & batch.valid
            counts[0] += int(full.sum())
            counts[1] += int(((found - expected)[pruned].abs() > 1e-4).sum())
            if before is not None:  # behind a step of the pruned policy
                assert not any(part[~before].any() for part in unroll.state)
            before = of_full[-1]
    assert min(counts) > 50
