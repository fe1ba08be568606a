"""Whole runs of several policies: what is shown, judged, and done with each of them later."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnxruntime
import pytest
from PIL import Image

import aclearn
from aclearn.config import MAX_PROCESSES
from aclearn.errors import AclearnError
from aclearn.runs import load_best
from aclearn.types import CLOSED_REPORTED
from aclearn.wire import PolicyNumbers, decode, encode
from services.commands.compress import compress_run
from services.role.metrics import RoleMetrics, joined_numbers
from tests.support import cli
from tests.support.agents_env import Uneven
from tests.support.whole_run import WholeRun


class Drawn(Uneven):
    """`Uneven` whose step t is drawn in the grey 20·t, 25 pictures a second."""

    metadata: ClassVar[dict[str, Any]] = {"name": "drawn", "render_fps": 25}

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode

    def render(self) -> Any:
        assert self.render_mode == "rgb_array"
        return np.full((30, 40, 3), 20 * self._step, np.uint8)


_ENV = {"id": f"{__name__}:Drawn"}
_POLICIES = {"slow": {"agents": "long"}, "fast": {"agents": "sh*"}}
_EVALUATOR = {"every_steps": 40, "episodes": 3, "greedy": True}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> WholeRun:
    """A run with an evaluator and a target that is met, which has ended."""
    made = WholeRun(
        tmp_path_factory.mktemp("shown"),
        env=_ENV,
        policies=_POLICIES,
        evaluator=_EVALUATOR,
        run={"max_updates": 60, "metrics_every_s": 0.25, "target_return": {"slow": 0.5}},
    )
    made.run()
    return made


def test_lines_and_summary_have_returns_losses_and_evaluations_by_policy(run) -> None:
    summary = run.summary()
    slow, fast = (summary["policies"][name] for name in _POLICIES)
    for part, length in ((slow, 8.0), (fast, 4.0)):
        assert part["episode_length_mean"] == length and part["episodes_in_mean"] > 0
        assert {"policy_loss", "value_loss", "entropy", "learning_rate"} <= part.keys()
        assert any(name.startswith("behaviour_kl") for name in part)
        dropped = sum(part["dropped_steps"].values())
        assert part["env_steps"] == part["learned_steps"] + part["in_flight_steps"] + dropped
        assert part["evaluator_return_mean"] is not None
    assert summary["env_steps"] == slow["env_steps"] + fast["env_steps"]
    # "slow" alone is in the target: its means are the run's, and decide
    assert summary["return_mean_100"] == slow["return_mean_100"]
    assert summary["evaluator_return_mean"] == slow["evaluator_return_mean"]
    assert summary["judged_return"] == summary["evaluator_return_mean"]
    assert slow["target_return"] == 0.5 and fast.get("target_return") is None
    assert (summary["reason"], summary["target_return"]) == ("target_reached", None)
    best = load_best(run.path / "checkpoints")
    assert best.state["judged"]["return_mean"] == summary["best_return"] >= 0.5


def test_each_policy_is_evaluated_loaded_exported_and_compressed_by_its_name(run, tmp_path) -> None:
    said = sorted(cli.aclearn("evaluate", run.path, "--episodes", "4").splitlines(), reverse=True)
    assert [" ".join(line.split()[1:6]) for line in said] == [
        "slow: 4 episodes, 8.0 steps",
        "fast: 4 episodes, 4.0 steps",
    ]
    [only] = cli.aclearn("evaluate", run.path, "--episodes", "4", "--policy", "fast").splitlines()
    assert only == said[1]
    opened = aclearn.open_run(run.path)
    both = opened.evaluate_policies(4)
    assert both["fast"] == opened.evaluate(4, policy="fast") and both["slow"].lengths == [8] * 4
    with pytest.raises(AclearnError, match="several policies; name one of fast, slow"):
        opened.evaluate(4)
    for name, size, actions in (("slow", 3, 3), ("fast", 4, 4)):
        policy = aclearn.load(run.path, policy=name)
        assert policy.observation_space.shape == (size,) and policy.action_space.n == actions
        to = tmp_path / f"{name}.onnx"
        cli.aclearn("export", run.path, "--to", to, "--policy", name)
        session = onnxruntime.InferenceSession(str(to), providers=["CPUExecutionProvider"])
        assert session.get_modelmeta().custom_metadata_map["policy"] == name
        shown = np.eye(size, dtype=np.float32)
        [parameters] = session.run(["parameters"], {"observation": shown})
        expected = [policy.parameters(row)["probabilities"] for row in shown]
        odds = np.exp(parameters) / np.exp(parameters).sum(1, keepdims=True)
        np.testing.assert_allclose(odds, expected, atol=1e-5)
    with pytest.raises(AclearnError, match="several policies; name one of fast, slow"):
        aclearn.load(run.path)
    with pytest.raises(AclearnError, match="no policy 'third'; name one of fast, slow"):
        aclearn.export(run.path, tmp_path / "third.onnx", policy="third")
    exact, _, small = compress_run(run.path, "int8", episodes=2, policy="fast")
    assert len(exact.returns) == len(small.returns) == 2
    assert 0.0 <= small.artifact.fidelity.kl_mean < 0.1


def test_a_video_shows_all_policies_in_their_environment(run, tmp_path) -> None:
    video = tmp_path / "tag.gif"
    said = cli.aclearn("evaluate", run.path, "--episodes", "1", "--video", video)
    assert f"wrote {video}: 8 pictures" in said
    with Image.open(video) as gif:
        greys = []
        for t in range(gif.n_frames):
            gif.seek(t)
            greys.append(gif.convert("RGB").getpixel((5, 5))[0])
    assert greys == [20 * t for t in range(1, 9)]


def test_a_resident_world_is_evaluated_and_drawn_for_several_policies(tmp_path: Path) -> None:
    pytest.importorskip("aclearn.resident")
    tag = {"num_taggers": 4, "grid_length": 4, "episode_length": 12}
    run = WholeRun(
        tmp_path,
        env={"id": "resident:tag_gridworld", "kwargs": tag},
        policies={"tagger": {"agents": "tagger_*"}, "runner": {"agents": "runner_*"}},
        actors={"processes": 1, "envs_per_group": 4},
        evaluator=_EVALUATOR,
        run={"max_updates": 2},
    )
    summary = run.run()
    assert summary["policies"]["runner"]["evaluator_return_mean"] is not None
    found = aclearn.open_run(run.path).evaluate_policies(5)
    assert (len(found["tagger"].returns), len(found["runner"].returns)) == (20, 5)
    assert max(found["runner"].lengths) <= 12
    video = tmp_path / "tag.gif"
    cli.aclearn("evaluate", run.path, "--episodes", "1", "--video", video)
    with Image.open(video) as gif:
        assert 1 <= gif.n_frames <= 12


@pytest.mark.parametrize("policies", [1, 8])
def test_a_trainers_heartbeat_with_the_most_actors_is_a_message(policies: int) -> None:
    seen = {f"{n:032x}": 10**9 + n for n in range(MAX_PROCESSES + CLOSED_REPORTED)}
    gauges = {f"a_gauge_of_policy_{n}": 1.5 for n in range(45)}
    parts = {f"policy_{n}": PolicyNumbers({}, gauges, {"lag": 9}) for n in range(policies)}
    beat = RoleMetrics(None).heartbeat(
        **joined_numbers(parts), seen={policy: seen for policy in parts}
    )
    frames = encode(beat, run="r" * 100, incarnation="a" * 32, sequence=10**9)
    assert len(frames[0]) < 64 * 1024
    told = decode(frames).message
    assert told.of_policy("policy_0").seen() == seen
    assert told.seen() == {name: policies * steps for name, steps in seen.items()}


def test_a_section_with_one_policy_names_it_everywhere(tmp_path: Path) -> None:
    run = WholeRun(
        tmp_path,
        env={"id": "tests.support.agents_env:Pairs"},
        policies={"all": {"agents": "*"}},
        evaluator=_EVALUATOR,
        run={"max_updates": 12},
    )
    summary = run.run()
    part = summary["policies"]["all"]
    for name in ("return_mean_100", "evaluator_return_mean"):
        assert summary[name] == part[name] is not None
    assert part["learned_steps"] == summary["learned_steps"] > 0
    score = aclearn.open_run(run.path).evaluate(2, policy="all")
    assert sorted(score.lengths) == [4, 4, 8, 8]


def test_compressed_policies_are_judged_beside_the_policies(tmp_path: Path) -> None:
    run = WholeRun(
        tmp_path,
        env=_ENV,
        policies=_POLICIES,
        evaluator=_EVALUATOR,
        compressor={"chain": ["int8", "onnx"], "fidelity_observations": 0},
        run={"target_return": {"slow": 1e6}},
    )
    key = "evaluator_compressed_return_mean"
    run.run_until(lambda: run.lines() and run.lines()[-1].get(key) is not None, "it is judged")
    line = run.lines()[-1]
    assert line[key] == line["policies"]["slow"][key]
    assert line["policies"]["fast"][key] is not None and line["evaluator_compressed_version"] >= 0
    run.monitor.state.stop("enough", run.clock())
    run.run()


def test_two_opponents_without_a_target_have_no_best_and_no_common_mean(tmp_path: Path) -> None:
    run = WholeRun(
        tmp_path,
        env=_ENV,
        policies=_POLICIES,
        evaluator=_EVALUATOR,
        run={"max_updates": 12},
    )
    summary = run.run()
    assert summary["evaluator_evaluations"] >= 1
    assert summary["return_mean_100"] is None and summary["evaluator_return_mean"] is None
    assert summary["policies"]["fast"]["evaluator_return_mean"] is not None
    assert load_best(run.path / "checkpoints") is None and summary["best_return"] is None
