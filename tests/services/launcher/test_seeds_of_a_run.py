"""No start of a run plays what an earlier one played."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from services.evaluator.evaluate import evaluate
from services.role.seeds import Seeds, Use
from services.roles import ACTOR, COMPRESSOR, PREDICTOR, TRAINER
from tests.support.whole_run import WholeRun

_ALL_FIVE = {
    "actors": {
        "processes": 2,
        "envs_per_group": 2,
        "unroll_length": 4,
        "inference": "predictor",
    },
    "compressor": {"chain": ["int8", "onnx"], "every_s": 0.125},
}
_MIXED = {
    "actors": {"processes": 2, "envs_per_group": 2, "unroll_length": 4, "original_share": 0.25},
    "compressor": {"chain": ["int8", "onnx"], "every_s": 0.125},
}


@pytest.mark.parametrize(
    ("groups", "uses"),
    [
        (_ALL_FIVE, {Use.PREDICTIONS, Use.COMPRESSION}),
        (_MIXED, {Use.ACTIONS, Use.POLICY_MIX, Use.COMPRESSION}),
    ],
    ids=["predictor", "mixed policies"],
)
def test_neither_a_resumed_run_nor_a_restarted_role_repeats_random_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: dict[str, Any], uses: set[Use]
) -> None:
    begun: list[int] = []  # seeds of environments
    drawn: Counter[tuple[Use, float]] = Counter()
    reset, generator = CartPoleEnv.reset, Seeds.generator

    def seen_reset(env: Any, *, seed: int | None = None, options: Any = None) -> Any:
        begun.extend([] if seed is None else [seed])
        return reset(env, seed=seed, options=options)

    def seen_generator(seeds: Seeds, use: Use, *which: int) -> np.random.Generator:
        drawn[use, generator(seeds, use, *which).random()] += use is not Use.ENVIRONMENTS
        return generator(seeds, use, *which)

    monkeypatch.setattr(CartPoleEnv, "reset", seen_reset)
    monkeypatch.setattr(Seeds, "generator", seen_generator)
    for part in range(2):
        run = WholeRun(tmp_path, resume=part > 0, run={"max_updates": 20 * part + 20}, **groups)
        run.run_until(lambda: len(begun) % 12 == 4, "all actors have begun")
        # roles die and come back under the same trainer, and then the trainer
        for role in (PREDICTOR, COMPRESSOR, ACTOR):
            if f"{role.name}-0" in run.roles:
                run.kill(f"{role.name}-0")
                run.start(role)
        run.run_until(lambda: len(begun) % 12 == 6, "an actor has begun again")
        run.kill("trainer-0")
        run.start(TRAINER)
        beats = run.heartbeats
        run.run_until(lambda b=beats: b["trainer-0"].counters["generation"] % 2, "it is back")
        for number in range(2):
            run.kill(f"actor-{number}")
            run.start(ACTOR, number)
        run.run_until(lambda: len(begun) % 12 == 10, "all actors have begun again")
        begun.extend([-part - 1] * 2)  # of 12
        assert run.run()["generation"] == 2 * part + 1
    training = [seed for seed in begun if seed >= 0]
    assert len(set(training)) == len(training) == 20
    assert max(drawn.values()) == 1
    assert uses | {Use.ENVIRONMENTS, Use.OBSERVATIONS} == {use for use, _ in drawn}

    # an evaluation plays the same episodes each time, and none of the training
    del begun[:]
    evaluated = [evaluate(run.path, episodes=4).returns for _ in range(2)]
    assert evaluated[0] == evaluated[1]
    assert len(set(begun)) == 4 and not set(begun) & set(training)


def test_resident_environments_of_another_number_begin_other_episodes(tmp_path: Path) -> None:
    pytest.importorskip("aclearn.resident")
    begun = []
    for part, envs in enumerate((8, 6, 8)):
        groups: dict[str, Any] = {
            "resident": {"envs": envs, "device": "cpu"},
            "actors": {"envs_per_group": 16, "unroll_length": 8},
        }
        run = WholeRun(tmp_path, resume=part > 0, run={"max_updates": 4 * part + 4}, **groups)
        trainer = run.roles["trainer-0"]._trainer
        assert trainer.generation == part
        begun.append(trainer.source.envs.buffers.observations[-1].numpy().copy())
        run.run()
    rows = np.concatenate(begun)
    assert len(np.unique(rows, axis=0)) == 8 + 6 + 8
