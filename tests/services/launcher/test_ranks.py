"""Whole runs of several ranks in lock-step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from aclearn.config import config_of_keys
from aclearn.control import Directive, SetEntropyCost, SetLearningRate, SetWorkers
from aclearn.envs import read_spec
from aclearn.errors import RankLost
from aclearn.learning import StepAccount, TrainingQueue
from aclearn.learning.ranks import Group
from aclearn.learning.update_report import Sums
from aclearn.runs import load_best
from aclearn.types import Unroll
from services.monitor.directive_channel import USER, USER_RANK
from services.trainer.build import make_trainer
from tests.support.ranks import run_ranks
from tests.support.whole_run import WholeRun

_TWO = {"trainer": {"processes": 2}, "run": {"max_updates": 8}}


def _assert_account(run: WholeRun) -> dict[str, Any]:
    summary, state = run.summary(), run.checkpoint().state
    known = summary["learned_steps"] + summary["in_flight_steps"]
    assert summary["env_steps"] == known + sum(summary["dropped_steps"].values())
    assert state["account"]["learned_steps"] == summary["learned_steps"] > 0
    return summary


def test_two_ranks_learn_the_bits_of_a_process_that_adds_their_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: dict[int, list[list[Unroll]]] = {}
    take = TrainingQueue.take

    def recording(queue, count, *, timeout_s):
        if unrolls := take(queue, count, timeout_s=timeout_s):
            taken.setdefault(id(queue), []).append(unrolls)
        return unrolls

    monkeypatch.setattr(TrainingQueue, "take", recording)
    run = WholeRun(tmp_path, **_TWO)
    spec, config = run._spec, run._config
    run.run()
    _assert_account(run)
    alone = config.model_copy(
        update={"trainer": config.trainer.model_copy(update={"processes": 1})}
    )
    learner = make_trainer(alone, spec).learner
    workers = [learner.make_worker() for _ in taken]
    for unrolls, _ in zip(zip(*taken.values(), strict=False), range(8), strict=False):
        batches = [w.assemble(u, spec.observation) for w, u in zip(workers, unrolls, strict=True)]
        steps = batches[0].steps + batches[1].steps
        one, other = (
            learner.differentiate(batch, worker, steps)
            for batch, worker in zip(batches, workers, strict=True)
        )
        for mine, its in zip(*(worker.gradients() for worker in workers), strict=True):
            mine.add_(its)
        sums = Sums(one.names, one.values + other.values)
        _, applied = learner.apply(workers[0], sums, steps, steps)
        assert applied
    saved = run.checkpoint()
    assert saved.state["counters"]["updates"] == 8 == int(learner.state.updates)
    for name, values in learner.state_tensors().items():
        if not name.startswith("random/"):
            np.testing.assert_array_equal(saved.tensors[name], values, err_msg=name)


@pytest.mark.parametrize("average_every", [None, 3])
def test_ranks_in_lockstep_are_reproducible_and_go_on_with_another_number(
    tmp_path: Path, average_every: int | None
) -> None:
    settings = {"trainer": {"processes": 2, "average_every": average_every}}
    runs = [WholeRun(tmp_path / name, **settings, run={"max_updates": 7}) for name in "ab"]
    torch.manual_seed(0)  # no rank may draw from torch's own numbers
    ended = [run.run() for run in runs]
    runs[0].assert_same_checkpoint(runs[1])
    for summary, run in zip(ended, runs, strict=True):
        assert summary["updates"] == 7 and _assert_account(run) == summary
        ledgers = run.checkpoint().state["ledgers"]
        assert sum(each["learned_steps"] for each in ledgers) == summary["learned_steps"]
        assert min(each["learned_steps"] for each in ledgers) > 0
    learned = ended[0]["learned_steps"]
    for ranks in (1, 3, 2):
        bound = runs[0].summary()["updates"] + 3
        more = {"processes": ranks, "average_every": average_every if ranks > 1 else None}
        run = WholeRun(
            tmp_path / "a",
            resume=True,
            trainer=more,
            actors={"processes": 3},
            run={"max_updates": bound},
        )
        summary = run.run()
        assert summary["updates"] == bound and summary["learned_steps"] > learned
        learned = summary["learned_steps"]
        _assert_account(run)


@pytest.mark.parametrize("average_every", [1, 3, 1000])
def test_ranks_that_average_end_at_the_bound_of_rank_0_with_the_mean_of_all(
    start, average_every: int
) -> None:
    # `target_kl` ends the passes of each rank where its own batch says so
    trainer = {"processes": 2, "average_every": average_every, "epochs": 4, "minibatches": 1}
    run = start(
        trainer=trainer,
        loss={"kind": "ppo", "target_kl": 1e-4},
        optimiser={"learning_rate": 0.01},
        run={"max_updates": 21},
    )
    trainers = [run.roles[f"trainer-{rank}"]._trainer for rank in (0, 1)]
    assert run.run(most_rounds=1500)["updates"] == 21
    made = [trainer.counters.updates for trainer in trainers]
    assert made[0] != made[1] and made == [int(t.learner.state.updates) for t in trainers]
    assert trainers[0].counters.batches == trainers[1].counters.batches
    saved = run.checkpoint()
    for trainer in trainers:
        for name, values in trainer.learner.tensors().items():
            np.testing.assert_array_equal(saved.tensors[f"weights/{name}"], values, err_msg=name)
    assert _assert_account(run)["learned_steps"] == saved.tensors["totals"][2]
    assert [trainer.account.in_flight_steps for trainer in trainers] == [0, 0]


def test_ranks_average_after_the_same_batch_whatever_the_updates_of_each(
    start, monkeypatch
) -> None:
    run = start(trainer={"processes": 2, "average_every": 2}, run={"max_updates": 5})
    trainers = [run.roles[f"trainer-{rank}"]._trainer for rank in (0, 1)]
    learn, batches = trainers[1].learner.learn, []

    def stopped_first(*args: Any, **options: Any) -> Any:
        batches.append(args[0])  # the first one is stopped before its first update
        return learn(*args, **options) if len(batches) > 1 else []

    monkeypatch.setattr(trainers[1].learner, "learn", stopped_first)
    run.run_until(lambda: trainers[0].counters.batches == 2, "a mean")
    mine, its = (trainer.learner.tensors() for trainer in trainers)
    assert trainers[1].counters.batches == 1
    for name, values in mine.items():
        np.testing.assert_array_equal(its[name], values, err_msg=name)
    assert run.run()["updates"] == 5


@pytest.mark.parametrize("average_every", [None, 3])
@pytest.mark.parametrize("what", ["weights", "updates"])
def test_a_rank_that_has_drifted_away_is_named_and_nothing_more_is_learned(
    start, average_every: int | None, what: str
) -> None:
    run = start(trainer={"processes": 2, "average_every": average_every}, run={"max_updates": 50})
    first, second = (run.roles[f"trainer-{rank}"]._trainer for rank in (0, 1))
    run.run_until(lambda: first.counters.batches == 6, "some batches")
    if what == "weights":
        with torch.no_grad():  # a bit
            second.learner.state.parameters[0].view(torch.int32).flatten()[3] += 1
    else:
        second.counters.updates += 1
        second.rounds.batches += 3
    learned = first.learner.state.learned_steps.item()
    with pytest.raises(
        RankLost, match=r"trainer-1 has drifted .* of trainer-0 \w{16} at update 6;"
    ):
        for _ in range(200):
            run.round()
    assert first.learner.state.learned_steps.item() == learned


def test_a_bound_of_steps_is_that_of_all_ranks(start) -> None:
    run = start(run={"max_env_steps": 400}, trainer={"processes": 2})
    summary = run.run()
    assert 400 <= summary["accounted_env_steps"] < 400 + 2 * 2 * 4 * 8
    parts = [ledger["env_steps"] for ledger in run.checkpoint().state["ledgers"]]
    assert len(parts) == 2 and max(parts) < 300
    _assert_account(run)


def test_rank_0_saves_the_best_policy_with_the_accounts_of_all(start) -> None:
    run = start(
        run={"max_updates": 100, "checkpoint_every_s": 1.0},
        trainer={"processes": 2},
        monitor={"heartbeat_every_s": 1 / 16},
    )
    run.run()
    best = load_best(run.path / "checkpoints")
    assert best is not None and len(best.state["ledgers"]) == 2
    total = sum(ledger["learned_steps"] for ledger in best.state["ledgers"])
    # every learned step is in the account of its rank at that update
    assert total == best.tensors["totals"][2] > 0


def test_a_rank_that_fails_within_a_batch_takes_the_others_along(start, monkeypatch) -> None:
    run = start(run={"max_updates": 50}, trainer={"processes": 2})
    run.run_until(lambda: run.checkpoint() is not None, "a checkpoint")
    role = run.roles["trainer-1"]
    learner = role._trainer.learner

    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("on purpose")

    monkeypatch.setattr(learner, "differentiate", fail)
    with pytest.raises(RankLost, match=r"failed within a batch: ValueError: on purpose"):
        for _ in range(200):
            run.round()
    assert {"trainer-0", "trainer-1"}.isdisjoint(run.roles)


def test_a_rank_that_fails_in_a_copy_takes_the_others_along(start) -> None:
    run = start(run={"max_updates": 50}, trainer={"processes": 2})

    def fail() -> None:
        raise ValueError("on purpose")

    run.roles["trainer-0"]._trainer.rounds.when_whole(fail)
    with pytest.raises(RankLost, match=r"failed within a batch: ValueError: on purpose"):
        for _ in range(200):
            run.round()


def test_a_batch_that_a_worker_gives_back_at_the_end_is_dropped(start, monkeypatch) -> None:
    run = start(run={"max_updates": 50}, trainer={"processes": 2})
    role = run.roles["trainer-0"]
    trainer, end = role._trainer, role._loop.end
    trainer.account.produced("in its hands", 5)

    def meets_until_now() -> bool:
        trainer._waiting = SimpleNamespace(new_steps=5)
        return end()

    monkeypatch.setattr(role._loop, "end", meets_until_now)
    role._end()
    assert trainer.account.in_flight_steps == 0


@pytest.mark.parametrize(("ranks", "average_every"), [(2, None), (3, None), (2, 3)])
def test_a_checkpoint_without_the_others_has_the_account_of_its_weights(
    start, ranks: int, average_every: int | None
) -> None:
    run = start(
        trainer={"processes": ranks, "average_every": average_every},
        actors={"processes": 3},
        run={"max_updates": 50},
    )
    first = run.roles["trainer-0"]
    run.run_until(lambda: first._trainer.counters.updates == 7, "some updates")
    first._checkpoints.write()  # as at an end while another rank hangs
    saved = run.checkpoint()
    ledgers = saved.state["ledgers"]
    assert len(ledgers) == ranks and ledgers[0] == first._trainer.account.state()
    assert StepAccount.joined(ledgers) == saved.state["account"]
    assert saved.state["account"]["learned_steps"] == saved.tensors["totals"][2]
    elsewhere = sum(ledger["env_steps"] for ledger in ledgers[1:])
    assert elsewhere == first._trainer.account.elsewhere >= ledgers[1]["learned_steps"] > 0


def test_resident_environments_are_saved_where_another_rank_leaves_a_run_that_goes_on(
    start,
) -> None:
    pytest.importorskip("warp")
    run = start(
        resident={"envs": 16, "device": "cpu", "devices": 2},
        actors={"processes": 2, "envs_per_group": 16, "unroll_length": 8},
        trainer={"device": "cpu", "amp": "off", "unrolls_per_batch": 2},
    )
    first, second = (run.roles[f"trainer-{rank}"] for rank in (0, 1))
    run.run_until(lambda: first._trainer.counters.updates == 5, "some updates")
    left: list[None] = []

    def leaves(timeout_s: float) -> bool:
        if not left:
            left.append(second._trainer.rounds.leave())
        return True

    second.step = leaves
    with pytest.raises(RankLost, match="another trainer of this run has left"):
        for _ in range(200):
            run.round()
    saved = run.checkpoint()
    assert saved.label == first._trainer.counters.updates >= 5
    assert saved.state["account"]["learned_steps"] == saved.tensors["totals"][2]


def test_each_rank_has_random_numbers_of_torch_of_its_own() -> None:
    processes = {"trainer.processes": 3, "actors.processes": 3}
    config = config_of_keys({"env.id": "CartPole-v1", "run.seed": 5, **processes})
    spec = read_spec(config.env)

    def shared(group: Group) -> int:
        make_trainer(config, spec, group=group).share()
        return torch.initial_seed()

    seeds = run_ranks("lockstep", 3, shared)
    assert len(set(seeds)) == 3 and seeds[0] == config.run.seed


@pytest.mark.parametrize("kind", ["ppo", "sac"])
def test_resident_environments_of_two_devices_learn_together(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("warp")
    settings: dict[str, Any] = {
        "env": {"id": "Pendulum-v1" if kind == "sac" else "CartPole-v1"},
        "resident": {"envs": 16, "device": "cpu", "devices": 2},
        "actors": {"processes": 2, "envs_per_group": 16, "unroll_length": 8},
        "trainer": {"device": "cpu", "amp": "off", "unrolls_per_batch": 2},
        "loss": {"kind": kind},
        "run": {"max_updates": 12},
    }
    if kind == "sac":
        settings |= {"replay": {"start": 128, "batch": 32}, "env": {"id": "Pendulum-v1"}}
    runs = [WholeRun(tmp_path / name, **settings) for name in "ab"]
    for run in runs:
        summary = run.run()
        assert summary["updates"] == 12 and _assert_account(run) == summary
        ledgers = run.checkpoint().state["ledgers"]
        assert min(ledger["learned_steps"] for ledger in ledgers) > 0
    runs[0].assert_same_checkpoint(runs[1])


def test_ranks_keep_one_worker_each_whatever_a_plug_in_wants(start) -> None:
    run = start(run={"max_updates": 50}, trainer={"processes": 2})
    run.monitor.state._channel.issue(Directive("trainer", SetWorkers(3)), by="test")
    run.run_until(
        lambda: run.monitor.state._channel.gauges()["monitor_directives_refused"] == 2,
        "both ranks refuse",
    )
    assert [run.roles[f"trainer-{rank}"]._loop._pool.size for rank in (0, 1)] == [1, 1]


def test_an_evaluator_judges_a_version_with_the_accounts_of_all_ranks(start) -> None:
    run = start(
        run={"max_updates": 40, "judge": "evaluator"},
        trainer={"processes": 2},
        evaluator={"every_steps": 200, "episodes": 2},
    )
    summary = run.run()
    assert summary["evaluator_evaluations"] >= 2
    best = load_best(run.path / "checkpoints")
    assert best is not None and best.state["judged"]["by"] == "evaluator"
    total = sum(ledger["learned_steps"] for ledger in best.state["ledgers"])
    assert total == best.tensors["totals"][2]


def test_a_batch_without_a_step_keeps_no_other_rank_waiting(start, monkeypatch) -> None:
    run = start(run={"max_updates": 4}, trainer={"processes": 2})
    trainer = run.roles["trainer-1"]._trainer
    take, emptied = trainer.source.next, []

    def empty_first(timeout_s, worker):
        batch = take(timeout_s, worker)
        if batch is not None and not emptied:
            emptied.append(int(batch.steps))
            trainer.account.dropped("shutdown", emptied[0])
            return replace(batch, valid=torch.zeros_like(batch.valid))
        return batch

    monkeypatch.setattr(trainer.source, "next", empty_first)
    assert run.run()["updates"] == 4 and emptied
    _assert_account(run)


def test_all_ranks_learn_with_what_a_user_sets_from_the_same_update_on(start) -> None:
    run = start(run={"max_updates": 30}, trainer={"processes": 2})
    channel = run.monitor.state._channel
    for payload in (SetLearningRate(0.125), SetEntropyCost(0.5)):
        channel.issue(Directive("trainer-0", payload), by=USER, rank=USER_RANK)
    learners = [run.roles[f"trainer-{rank}"]._trainer.learner for rank in (0, 1)]
    run.run()  # ranks that drift apart end it
    for learner in learners:
        assert learner.state.optimiser.param_groups[0]["first_lr"] == 0.125
        assert learner.objective.config.entropy_cost == 0.5
    assert run.summary()["reason"] == "max_updates"
    assert channel.gauges()["monitor_directives_refused"] == 0
