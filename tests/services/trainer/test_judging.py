"""A version that is set aside is judged, sent and saved with the same weights."""

from __future__ import annotations

import time

import numpy as np

from aclearn.config import Config, EnvConfig, RunConfig, TrainerConfig
from aclearn.envs import read_spec
from aclearn.errors import CheckpointError
from aclearn.runs import RunFolder, kept_in, load_best, load_newest, save_checkpoint
from aclearn.types import PolicyVersion
from aclearn.wire import Judgement, JudgementReply, JudgeRequest, NoNewerWeights, WeightsToJudge
from services.trainer import build
from services.trainer.checkpoints import TrainerCheckpoints
from services.trainer.judging import Judging
from tests.services.trainer.test_trainer import admit, learn
from tests.support.clock import Clock


def _parts(
    tmp_path,
    *,
    judge="evaluator",
    every_steps=None,
    spread=0,
    generation=0,
    clock=time.monotonic,
):
    config = Config(
        run=RunConfig(name="r", seed=3),
        env=EnvConfig(id="CartPole-v1"),
        policy={"architecture": "mlp", "hidden": [16]},
        actors={"unroll_length": 5},
        trainer=TrainerConfig(amp="off", device="cpu"),
    )
    trainer = build.make_trainer(config, read_spec(config.env), generation=generation)
    folder = RunFolder.create(tmp_path, "r", "")
    checkpoints = TrainerCheckpoints(
        trainer, folder, RunConfig(), judge=judge, test="a", spread=spread, clock=clock
    )
    checkpoints.restore_or_start()
    judging = Judging(
        trainer,
        every_steps=every_steps,
        offer_best=checkpoints.offer_judged,
        keep=checkpoints.keep,
    )
    trainer.publish()
    return trainer, checkpoints, judging, folder


def _next(judging, trainer, known, number):
    """The next version that is set aside after the known one; learns one batch for it."""
    assert isinstance(judging.answer(JudgeRequest(0, known)), NoNewerWeights)
    learn(trainer, admit(trainer, number))
    given = judging.answer(JudgeRequest(0, known))
    assert isinstance(given, WeightsToJudge)
    published = trainer.published.newer_than(PolicyVersion())
    assert published.at.version == given.version
    for name, array in given.tensors.items():
        np.testing.assert_array_equal(array, published.tensors[name])
    return given


def test_the_best_checkpoint_has_the_weights_that_were_judged_whatever_was_learned_since(
    tmp_path,
) -> None:
    trainer, checkpoints, judging, folder = _parts(tmp_path)
    first = judging.answer(JudgeRequest(-1, -1))
    assert (first.generation, first.version, first.env_steps) == (0, 0, 0)  # what it began with
    given = _next(judging, trainer, 0, 0)
    assert given.env_steps == trainer.account.env_steps
    for number in (1, 2):
        learn(trainer, admit(trainer, number))
    assert judging.answer(Judgement(0, given.version, 9.0)) == JudgementReply(known=True)
    checkpoints.write_if_due()  # at once: a judgement is not repeated
    assert load_best(folder.checkpoints_dir).state["judged"]["return_mean"] == 9.0
    checkpoints.write()

    best, newest = load_best(folder.checkpoints_dir), load_newest(folder.checkpoints_dir)
    assert best.state["judged"] == {"by": "evaluator", "test": "a", "return_mean": 9.0}
    assert best.state["counters"]["policy_version"] == given.version == 1
    assert newest.state["counters"]["policy_version"] == 3
    for name, array in given.tensors.items():
        np.testing.assert_array_equal(best.tensors[f"weights/{name}"], array)
        assert not np.array_equal(newest.tensors[f"weights/{name}"], array)
    # a trainer can continue from it
    again = TrainerCheckpoints(
        build.make_trainer(trainer._config, trainer.saved._spec),
        folder,
        RunConfig(),
        judge="evaluator",
        test="a",
    )
    assert again.restore_or_start() and again.best_return == 9.0


def test_a_worse_one_a_repeated_one_and_one_of_another_trainer_leave_the_best(tmp_path) -> None:
    trainer, checkpoints, judging, folder = _parts(tmp_path)
    for number, mean in enumerate((5.0, 4.0)):
        given = _next(judging, trainer, number, number)
        for _ in range(2):
            judging.answer(Judgement(0, given.version, mean))
    unknown = JudgementReply(known=False)
    assert judging.answer(Judgement(1, given.version, 100.0)) == unknown
    assert judging.answer(Judgement(0, 1, 100.0)) == unknown  # another one is aside
    checkpoints.copy_best()
    checkpoints.write()
    best = load_best(folder.checkpoints_dir)
    assert (best.state["counters"]["policy_version"], checkpoints.best_return) == (1, 5.0)


def test_means_of_another_judge_are_not_compared(tmp_path) -> None:
    trainer, checkpoints, judging, folder = _parts(tmp_path, judge="training")
    given = _next(judging, trainer, 0, 0)
    judging.answer(Judgement(0, given.version, 100.0))
    checkpoints.copy_best()
    assert checkpoints.best_return is None  # training judges
    checkpoints.offer_best(7.0)
    checkpoints.copy_best()
    checkpoints.write()
    for judge, best in (("training", 7.0), ("evaluator", None)):
        again = TrainerCheckpoints(
            build.make_trainer(trainer._config, trainer.saved._spec),
            folder,
            RunConfig(),
            judge=judge,
        )
        again.restore_or_start()
        assert again.best_return == best


def test_means_of_another_test_are_not_compared(tmp_path) -> None:
    trainer, checkpoints, _, folder = _parts(tmp_path)
    _offer(checkpoints, trainer, 9.0)
    checkpoints.write_if_due()
    for test, best in (("a", 9.0), ("b", None)):
        again = TrainerCheckpoints(trainer, folder, RunConfig(), judge="evaluator", test=test)
        again.restore_or_start()
        assert again.best_return == best
    _offer(again, trainer, 3.0)
    again.write_if_due()
    best = load_best(folder.checkpoints_dir).state["judged"]
    assert best == {"by": "evaluator", "test": "b", "return_mean": 3.0}


def test_versions_are_set_aside_at_an_interval_of_steps(tmp_path) -> None:
    trainer, _, judging, _ = _parts(tmp_path, every_steps=50)  # of unrolls of 20 steps
    known, found = -1, []
    for number in range(9):
        given = judging.answer(JudgeRequest(0, known))
        if isinstance(given, WeightsToJudge):
            known = given.version
            found.append(given.env_steps)
            judging.answer(JudgeRequest(0, known))
        learn(trainer, admit(trainer, number))
    assert found == [0, 60, 120]


def test_an_evaluator_of_a_later_trainer_judges_what_is_published_after_its_request(
    tmp_path,
) -> None:
    trainer, _, judging, _ = _parts(tmp_path, generation=1)
    for number in range(3):  # while the evaluator waits for its interval
        learn(trainer, admit(trainer, number))
    assert isinstance(judging.answer(JudgeRequest(0, 7)), NoNewerWeights)
    learn(trainer, admit(trainer, 3))
    given = judging.answer(JudgeRequest(0, 7))
    assert (given.generation, given.version) == (1, 4)


def test_a_new_evaluator_judges_a_new_version_but_the_first_one_what_the_run_began_with(
    tmp_path,
) -> None:
    trainer, _, judging, _ = _parts(tmp_path)
    learn(trainer, admit(trainer, 0))
    new = JudgeRequest(-1, -1)
    assert judging.answer(new).version == 0
    learn(trainer, admit(trainer, 1))
    for _ in range(2):
        assert isinstance(judging.answer(new), NoNewerWeights)
    learn(trainer, admit(trainer, 2))
    assert judging.answer(new).version == 3


def test_a_request_while_a_version_is_copied_sets_no_second_one_aside(tmp_path) -> None:
    trainer, checkpoints, judging, _ = _parts(tmp_path)
    judging.answer(JudgeRequest(0, 0))
    later = []
    trainer.rounds.when_whole = later.append  # as with other ranks, and while the copy is made
    learn(trainer, admit(trainer, 0))
    assert isinstance(judging.answer(JudgeRequest(0, 0)), NoNewerWeights)
    (copy,) = later
    copy()
    given = judging.answer(JudgeRequest(0, 0))
    learn(trainer, admit(trainer, 1))
    assert len(later) == 1
    judging.answer(Judgement(0, given.version, 9.0))
    del trainer.rounds.when_whole
    checkpoints.copy_best()
    assert checkpoints.best_return == 9.0


def test_a_best_that_comes_while_the_one_before_is_written_is_written_too(
    tmp_path, monkeypatch
) -> None:
    trainer, checkpoints, _, folder = _parts(tmp_path)
    offered = [5.0, 6.0]

    def save(*arguments, mark, **options) -> None:
        if mark == "best" and offered:  # as another thread in a meeting of ranks
            _offer(checkpoints, trainer, offered.pop(0))
        save_checkpoint(*arguments, mark=mark, **options)

    monkeypatch.setattr("services.trainer.checkpoints.save_checkpoint", save)
    _offer(checkpoints, trainer, 4.0)
    for expected in (4.0, 5.0, 6.0):
        checkpoints.write_if_due()
        assert load_best(folder.checkpoints_dir).state["judged"]["return_mean"] == expected


def _offer(checkpoints, trainer, mean) -> None:
    checkpoints.offer_judged(mean, trainer.snapshot(whole=False))
    checkpoints.copy_best()


def test_a_best_that_cannot_be_written_waits_for_the_next_attempt(tmp_path, monkeypatch) -> None:
    clock = Clock()
    trainer, checkpoints, _, folder = _parts(tmp_path, clock=clock)
    tried = []

    def fail(*arguments, **options) -> None:
        tried.append(clock.now)
        raise CheckpointError("the disk is full")

    with monkeypatch.context() as failing:
        failing.setattr("services.trainer.checkpoints.save_checkpoint", fail)
        begin = clock.now
        checkpoints.offer_judged(9.0, trainer.snapshot(whole=False))
        for after_s in (0.0, 1.0, 10.0, 11.0):
            clock.now = begin + after_s
            checkpoints.write_if_due()
    assert tried == [begin, begin + 10.0]
    assert checkpoints.heartbeat_fields()["note"] == "the disk is full"
    clock.now = begin + 20.0
    checkpoints.write_if_due()
    assert checkpoints.heartbeat_fields()["note"] == ""
    assert load_best(folder.checkpoints_dir).state["judged"]["return_mean"] == 9.0


def test_kept_policies_are_written_at_once_and_a_run_resumes_from_the_newest(tmp_path) -> None:
    trainer, checkpoints, judging, folder = _parts(tmp_path, spread=2)
    checkpoints.write_if_due()
    for number in range(4):
        _next(judging, trainer, number, number)
        checkpoints.write_if_due()
    learn(trainer, admit(trainer, 4))
    checkpoints.write()
    kept = kept_in(folder.checkpoints_dir)
    assert [each.mark for each in kept] == ["", "kept", "kept", ""]
    assert [each.env_steps for each in kept] == [0, 0, 80, 100]
    assert load_newest(folder.checkpoints_dir).label == 5
