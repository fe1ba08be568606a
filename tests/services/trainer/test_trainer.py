"""The trainer's core: workers learn in parallel, every step is accounted for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from aclearn.config import Config, EnvConfig, RunConfig, TrainerConfig, config_of_keys
from aclearn.envs import read_spec
from aclearn.errors import ConfigError
from aclearn.learning import GradientWorker, TrainingQueue
from aclearn.learning.batch import assemble_batch
from aclearn.policies.network import PolicyNetwork
from aclearn.telemetry import WaitMeter
from aclearn.types import PolicyVersion, Unroll
from services.role.worker_pool import WorkerPool
from services.trainer import build
from services.trainer.server import make_step
from services.trainer.trainer import Trainer
from tests.support.waiting import DEADLINE_S

T, B = 5, 4


def make_trainer(
    *,
    deterministic: bool = False,
    max_updates: int | None = None,
    loss: dict[str, Any] | None = None,
    policy: dict[str, Any] | None = None,
    queue: TrainingQueue[Unroll] | None = None,
    **trainer,
) -> Trainer:
    trainer = {"device": "cpu", **trainer}
    config = Config(
        run=RunConfig(name="r", seed=3, deterministic=deterministic, max_updates=max_updates),
        env=EnvConfig(id="CartPole-v1"),
        policy={"architecture": "mlp", "hidden": [16], **(policy or {})},
        actors={"unroll_length": T},
        trainer=TrainerConfig(amp="off", **trainer),
        **({} if loss is None else {"loss": loss}),
    )
    trainer = build.make_trainer(config, read_spec(config.env), queue=queue)
    trainer.publish()
    return trainer


def make_unroll(number: int) -> Unroll:
    """The `number`-th unroll of one actor; its steps follow those of the one before."""
    rng = np.random.default_rng(number)
    no = np.zeros((T, B), np.bool_)
    return Unroll(
        generation=0,
        env_steps_before=number * T * B,
        env_steps_after=(number + 1) * T * B,
        dropped={},
        chains=["none"],
        versions=np.zeros(T, np.int64),
        observations={"observation": rng.standard_normal((T + 1, B, 4)).astype(np.float32)},
        actions=rng.integers(0, 2, (T, B)).astype(np.int32),
        behaviour_log_prob=np.full((T, B), -0.69, np.float32),
        rewards=np.ones((T, B), np.float32),
        terminated=no,
        truncated=no,
        valid=~no,
        history={},
        reset_index=None,
        reset_history={},
    )


def admit(trainer: Trainer, number: int) -> Unroll:
    unroll = make_unroll(number)
    before, after = unroll.env_steps_before, unroll.env_steps_after
    assert trainer.account.admit("actor", number, before, after, {}, T * B) is None
    return unroll


def learn(trainer: Trainer, *unrolls: Unroll, worker: GradientWorker | None = None) -> None:
    worker = worker or trainer.learner.own_worker
    observation = trainer.learner.architecture.observation
    trainer.learn(worker.assemble(unrolls, observation), worker)


def check_account(trainer: Trainer, *, admitted: int, dropped: dict[str, int]) -> None:
    counters, reasons, _ = trainer.account.counters()
    assert counters["env_steps"] == admitted * T * B
    assert reasons == dropped
    in_flight = counters["in_flight_steps"]
    assert counters["env_steps"] == counters["learned_steps"] + sum(reasons.values()) + in_flight
    assert in_flight == 0


def test_four_workers_learn_every_batch_once_and_publish_rising_versions(tools) -> None:
    queue = TrainingQueue[Unroll](max_bytes=1 << 26, max_items=8)
    trainer = make_trainer(queue=queue, unrolls_per_batch=2)
    versions: list[PolicyVersion] = []
    publish = trainer.published.publish

    def watched(at: PolicyVersion, tensors) -> None:
        versions.append(at)
        publish(at, tensors)

    trainer.published.publish = watched
    pool = WorkerPool(lambda: make_step(trainer), name="trainer")
    try:
        for number in range(240):
            pool.resize((1, 4, 2, 3)[number // 10 % 4])
            unroll = admit(trainer, number)
            tools.wait_until(lambda unroll=unroll: queue.offer(unroll, 1), "the queue has room")
        tools.wait_until(lambda: trainer.counters.batches == 120, "all batches are learned")
        pool.check()
    finally:
        queue.close()
        assert pool.close(30)
    assert trainer.counters.updates == 120
    check_account(trainer, admitted=240, dropped={})
    assert versions == sorted(set(versions))
    assert versions[-1] == trainer.published.at == PolicyVersion(0, 120)
    newest = trainer.published.newer_than(PolicyVersion())
    for name, array in trainer.learner.tensors().items():
        np.testing.assert_array_equal(newest.tensors[name], array)


def test_a_worker_s_step_tells_whether_there_was_a_batch() -> None:
    queue = TrainingQueue[Unroll](max_bytes=1 << 26, max_items=8)
    trainer = make_trainer(queue=queue, unrolls_per_batch=2)
    step = make_step(trainer)
    for number in range(2):
        queue.offer(admit(trainer, number), 1)
    assert step(WaitMeter()) is True
    queue.close()
    assert step(WaitMeter()) is False
    assert trainer.counters.batches == 1


@pytest.mark.parametrize("fails_at", [0, 1, 2, 3])
def test_what_was_learned_before_a_failure_is_not_dropped_too(fails_at) -> None:
    # two minibatches, each used twice: only the first use of a minibatch accounts for its steps
    trainer = make_trainer(minibatches=2, epochs=2)
    apply, calls = trainer.learner.apply, []

    def breaks(*arguments, **options):
        calls.append(None)
        if len(calls) == fails_at + 1:
            raise ValueError("broken on purpose")
        return apply(*arguments, **options)

    trainer.learner.apply = breaks
    with pytest.raises(ValueError, match="on purpose"):
        learn(trainer, admit(trainer, 0))
    half = T * B // 2
    lost = max(0, 2 - fails_at) * half
    check_account(trainer, admitted=1, dropped={"worker_failed": lost} if lost else {})


@pytest.mark.parametrize("kind", ["ppo", "impact"])
@pytest.mark.parametrize("stops", [True, False])
def test_the_loss_may_end_a_batch_after_its_first_pass(kind, stops) -> None:
    target_kl = 1e-9 if stops else 100.0
    loss = {"kind": kind, "target_kl": target_kl}
    trainer = make_trainer(loss=loss, minibatches=2, epochs=5)
    for number in range(3):
        learn(trainer, admit(trainer, number))
    # every step is learned once, and the second minibatch has moved from the first policy
    assert trainer.counters.updates == (3 * 2 if stops else 3 * 2 * 5)
    assert trainer.counters.ended_batches == (3 if stops else 0)
    check_account(trainer, admitted=3, dropped={})


def test_each_step_of_a_shuffled_batch_enters_the_statistics_of_observations_once() -> None:
    trainer = make_trainer(
        loss={"kind": "ppo"}, policy={"normalise_observations": True}, minibatches=3, epochs=4
    )
    unrolls = [admit(trainer, number) for number in range(2)]
    learn(trainer, *unrolls)
    seen = np.concatenate([u.observations["observation"][:-1] for u in unrolls]).reshape(-1, 4)
    [found] = [a for name, a in trainer.learner.tensors().items() if name.endswith(".mean")]
    np.testing.assert_allclose(found, seen.mean(0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["ppo", "impact", "a2c", "actor_critic"])
def test_a_trainer_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(kind) -> None:
    def make() -> Trainer:
        return make_trainer(loss={"kind": kind}, minibatches=2, epochs=3)

    whole = make()
    for number in range(6):
        learn(whole, admit(whole, number))
        if number == 2:
            snapshot = whole.snapshot()
    expected = whole.learner.state_tensors()

    again = make()
    again.restore(snapshot)
    for number in range(3, 6):
        learn(again, admit(again, number))
    found = again.learner.state_tensors()
    assert set(found) == set(expected)
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


@pytest.mark.parametrize(("most", "dropped_halves"), [(1, 3), (2, 2), (3, 2), (5, 1)])
def test_it_makes_exactly_the_updates_that_the_run_may_have(most, dropped_halves) -> None:
    # two batches of two minibatches, each used twice: eight updates without the bound
    trainer = make_trainer(max_updates=most, minibatches=2, epochs=2)
    unrolls = [admit(trainer, number) for number in range(2)]
    for unroll in unrolls:
        learn(trainer, unroll)
    assert trainer.counters.updates == most
    check_account(trainer, admitted=2, dropped={"max_updates": dropped_halves * T * B // 2})
    # its last batch is published, and no more is admitted
    assert trainer.published.at == PolicyVersion(0, -(-most // 4))
    assert trainer.account.admit("actor", 2, 2 * T * B, 3 * T * B, {}, T * B) == "max_updates"


def test_several_workers_together_make_exactly_the_updates_that_the_run_may_have() -> None:
    trainer = make_trainer(max_updates=33, minibatches=2, epochs=2)
    unrolls = [admit(trainer, number) for number in range(30)]

    def learn_all(part: list[Unroll]) -> None:
        worker = trainer.learner.make_worker()
        for unroll in part:
            learn(trainer, unroll, worker=worker)

    with ThreadPoolExecutor(3) as pool:
        for future in [pool.submit(learn_all, unrolls[i::3]) for i in range(3)]:
            future.result()
    assert trainer.counters.updates == 33
    counters, dropped, _ = trainer.account.counters()
    assert counters["learned_steps"] + dropped["max_updates"] == 30 * T * B


def test_a_checkpoint_is_of_one_moment_while_workers_learn(tmp_path) -> None:
    trainer = make_trainer()
    unrolls = [admit(trainer, number) for number in range(80)]
    looked_at = []

    def learn_all(part: list[Unroll]) -> None:
        worker = trainer.learner.make_worker()
        for unroll in part:
            learn(trainer, unroll, worker=worker)

    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(learn_all, unrolls[i::2]) for i in range(2)]
        while not all(future.done() for future in futures):
            with trainer.learner.lock:
                tensors, state = trainer.learner.state_tensors(), trainer.saved.described()
            step = {int(array) for name, array in tensors.items() if name.endswith("/step")}
            # Adam's own count of steps is the number of updates, in every parameter alike
            assert step <= {state["counters"]["updates"]}
            looked_at.append(state["counters"]["updates"])
        for future in futures:
            future.result()
    assert looked_at == sorted(looked_at)
    assert trainer.counters.updates == 80


def test_a_replay_memory_without_room_for_a_batch_is_refused_at_the_start() -> None:
    keys = {"env.id": "CartPole-v1", "loss.kind": "dqn", "trainer.device": "cpu"}
    sizes = {"actors.envs_per_group": 1024, "replay.max_bytes": 1024 * 1024}
    config = config_of_keys(keys | sizes)
    with pytest.raises(ConfigError, match=r"replay\.max_bytes: .* 2048 unrolls"):
        build.make_trainer(config, read_spec(config.env))


def test_what_is_to_be_reproducible_is_computed_on_the_cpu_also_where_there_is_a_gpu(
    monkeypatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    trainer = make_trainer(deterministic=True, device="auto")
    assert {p.device.type for p in trainer.learner.network.parameters()} == {"cpu"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_four_workers_on_a_gpu_learn_every_batch_once(tools) -> None:
    trainer = make_trainer(device="cuda", minibatches=2, epochs=2)
    batches = [[admit(trainer, number)] for number in range(12)]

    def work(index: int) -> None:
        worker = trainer.learner.make_worker()
        for batch in batches[index::4]:
            learn(trainer, *batch, worker=worker)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work, index) for index in range(4)]:
            future.result(timeout=DEADLINE_S)
    check_account(trainer, admitted=12, dropped={})
    assert trainer.counters.updates == 12 * 2 * 2
    for array in trainer.learner.tensors().values():
        assert np.isfinite(array).all()


@pytest.mark.parametrize("memory", [None, "gru"])
def test_flat_observations_are_differentiated_all_at_once(memory, monkeypatch) -> None:
    rows: list[int] = []
    unroll = PolicyNetwork.unroll

    def watched(network, leaves, state, starts):
        rows.append(starts.shape[1])
        return unroll(network, leaves, state, starts)

    monkeypatch.setattr(PolicyNetwork, "unroll", watched)
    trainer = make_trainer(policy={"memory": {"kind": memory}})
    width = 400
    batch = assemble_batch(
        [make_unroll(0)] * (width // B), observation=trainer.saved._spec.observation
    )
    state = tuple(torch.zeros(width, n) for n in trainer.learner.architecture.state)
    trainer.account.admit("actor", 0, 0, T * width, {}, T * width)
    trainer.learn(replace(batch, state=state))
    assert rows == [width]


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_set_holds_for_the_next_update_and_for_living_workers(workers: int) -> None:
    def learned(configured: float, **set: float) -> Trainer:
        trainer = make_trainer(loss={"entropy_cost": configured})
        made = [trainer.make_worker() for _ in range(workers)]
        trainer.set(**set)
        learn(trainer, admit(trainer, 0), worker=made[-1])
        return trainer

    expected = learned(0.5).learner.tensors()
    found = learned(0.01, entropy_cost=0.5).learner.tensors()
    for name, weights in expected.items():
        np.testing.assert_array_equal(found[name], weights)
    rates = learned(0.5, learning_rate=1e-12).learner
    first = make_trainer(loss={"entropy_cost": 0.5}).learner.tensors()
    for name, weights in rates.tensors().items():
        np.testing.assert_allclose(weights, first[name], atol=1e-9)


def test_a_later_trainer_learns_with_what_was_set_before_anybody_tells_it() -> None:
    first = make_trainer()
    first.set(learning_rate=0.125, entropy_cost=0.5)
    again = make_trainer()
    again.restore(first.snapshot())
    assert again.learner.settings == {"learning_rate": 0.125, "entropy_cost": 0.5}
    assert again.learner.state.optimiser.param_groups[0]["first_lr"] == 0.125
    assert again.learner.objective.config.entropy_cost == 0.5


def test_a_loss_without_an_entropy_cost_refuses_one() -> None:
    trainer = make_trainer(loss={"kind": "dqn"})
    with pytest.raises(ValueError, match=r"loss\.kind dqn has no entropy_cost"):
        trainer.set(entropy_cost=0.1)
