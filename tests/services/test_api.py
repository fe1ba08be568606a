"""The public Python API, as `import aclearn` forwards it."""

from __future__ import annotations

import sys
import traceback
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import aclearn
from aclearn.errors import (
    AclearnError,
    ArgumentError,
    ConfigError,
    RunFolderError,
)
from aclearn.runs import load_newest, lock_run
from services import api
from tests.support.waiting import run_python


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> aclearn.Run:
    """A short run of CartPole."""
    folder = tmp_path_factory.mktemp("runs")
    config = aclearn.load_config("cartpole", ["run.deterministic=true", "run.name=r"])
    given = {"run.dir": str(folder), "run.max_updates": 20, "actors.processes": 1}
    return aclearn.train(config, given)


@pytest.fixture(scope="module")
def policy(run: aclearn.Run) -> aclearn.Policy:
    """Its best policy."""
    return aclearn.load(run, at="best")


def test_a_run_is_trained_read_drawn_and_evaluated(run: aclearn.Run, tmp_path: Path) -> None:
    config, summary, metrics = run.config, run.summary, run.metrics
    assert (run.name, config.run.max_updates, config.actors.processes) == ("r", 20, 1)
    assert (summary["updates"], summary["reason"]) == (20, "max_updates")
    # 20 updates of one pass each over 16 unrolls of 5 steps of 8 environments
    trainer, actors = config.trainer, config.actors
    steps = trainer.unrolls_per_batch * actors.unroll_length * actors.envs_per_group
    batches = 20 / (trainer.minibatches * trainer.epochs)
    assert 0 < summary["learned_steps"] <= batches * steps
    lines = (run.path / "metrics.jsonl").read_text().count("\n")
    assert {column.shape for column in metrics.values()} == {(lines,)}
    assert metrics["updates"][-1] == 20.0 and metrics["wait_share/trainer/unrolls"][-1] >= 0.0
    figure = run.plot(tmp_path / "curve.svg")
    assert (tmp_path / "curve.svg").read_text().startswith("<?xml")
    assert figure._repr_png_()[1:4] == b"PNG"  # as a notebook shows it
    played = aclearn.open_run(run.path).evaluate(2, greedy=True, seed=1)
    assert len(played.returns) == 2 and min(played.returns) >= 8  # no pole falls sooner


def _numpy_logits(run: aclearn.Run, observations: np.ndarray) -> np.ndarray:
    """The policy's logits, written from the architecture: two layers of tanh."""
    tensors = load_newest(run.path / "checkpoints").tensors
    x = observations.astype(np.float64)
    for layer in ("hidden.0", "hidden.1"):
        weight, bias = (tensors[f"weights/{layer}.{kind}"] for kind in ("weight", "bias"))
        x = np.tanh(x @ weight.T + bias)
    return x @ tensors["weights/policy.weight"].T + tensors["weights/policy.bias"]


def test_a_loaded_policy_takes_the_likeliest_action_or_samples(run: aclearn.Run) -> None:
    policy = aclearn.load(run.path, seed=3)
    rng = np.random.default_rng(1)
    observations = rng.normal(size=(200, 4))  # float64, as careless environments give them
    logits = _numpy_logits(run, observations)
    assert (policy.act(observations, greedy=True) == logits.argmax(1)).all()
    single = policy.act(observations[0], greedy=True)
    assert policy.action_space.contains(single) and single == logits[0].argmax()
    assert policy.act(observations[:1], greedy=True).shape == (1,)

    count = 4000
    ones = policy.act(np.tile(observations[0], (count, 1)), greedy=False).sum()
    p = 1 / (1 + np.exp(logits[0, 0] - logits[0, 1]))
    assert abs(ones - count * p) < 4 * np.sqrt(count * p * (1 - p))
    again = aclearn.load(run, seed=3).act(np.tile(observations[0], (count, 1))).sum()
    assert again != count and abs(again - ones) < 8 * np.sqrt(count * p * (1 - p))
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(policy.probabilities(observations), probabilities, rtol=1e-4)
    assert policy.parameters(observations[3])["probabilities"].shape == (2,)
    assert policy.probabilities(observations[3], mask=[1, 0]).tolist() == [1.0, 0.0]
    # of a mask the only action is taken
    masks = np.zeros((200, 2), np.bool_)
    masks[:, 1] = True
    assert (policy.act(observations, mask=masks) == 1).all()
    assert policy.act(observations[0], mask=[1, 0]) == 0


@pytest.mark.parametrize(
    ("observation", "mask", "said"),
    [
        (np.zeros(3), None, r"expected Box\(.* got float64 \(3,\)"),
        (np.zeros(4), [True], r"mask: expected bool \(2,\), got bool \(1,\)"),
        (np.zeros((3, 4)), [True, True], r"mask: expected bool \(3, 2\)"),
        (np.zeros(4), [False, False], "mask: it leaves no action"),
    ],
)
def test_an_observation_that_does_not_fit_is_refused(policy, observation, mask, said) -> None:
    with pytest.raises(ArgumentError, match=said):
        policy.act(observation, mask=mask)


def test_an_environment_plays_as_gymnasiums_own_with_the_policys_actions(run, policy) -> None:
    ours = aclearn.make_env(run)
    theirs = gymnasium.make("CartPole-v1")
    # the second episode continues the random numbers of the first, the third is the first again
    for seed in (7, None, 7):
        (seen, info), (expected, _) = ours.reset(seed=seed), theirs.reset(seed=seed)
        ended = False
        while not ended:
            np.testing.assert_array_equal(seen, expected)
            action = policy.act(seen, greedy=True)
            seen, reward, terminated, truncated, info = ours.step(action)
            expected, their_reward, *their_ends, _ = theirs.step(action)
            assert (reward, [terminated, truncated], info) == (their_reward, their_ends, {})
            ended = terminated or truncated
        with pytest.raises(ArgumentError, match="reset the environment first"):
            ours.step(0)
    ours.reset()
    with pytest.raises(ArgumentError, match=r"expected one of Discrete\(2\), got 2"):
        ours.step(2)
    ours.close()
    ours.close()


def test_a_model_is_exported_and_no_file_is_replaced_unasked(run, tmp_path: Path) -> None:
    path = tmp_path / "policy.onnx"
    artifact = aclearn.export(run, path, chain="int8")
    assert path.stat().st_size > artifact.bytes > 0 and "int8" in artifact.chain
    with pytest.raises(ConfigError, match="exists already"):
        aclearn.export(run, path)
    assert aclearn.export(run, path, force=True).chain == "onnx"


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda path: aclearn.open_run(path), RunFolderError, "is not a run folder"),
        (lambda path: aclearn.load(path / "r"), RunFolderError, "there is no run folder at"),
        (lambda path: aclearn.train("cartpol"), ConfigError, "did you mean cartpole"),
        (
            lambda path: aclearn.train("cartpole", {"run.sed": 2}),
            ConfigError,
            r"override 'run.sed': run.sed is not a known key; did you mean run.seed",
        ),
        (
            lambda path: aclearn.train(aclearn.load_config("cartpole"), {"run.seed": "x"}),
            ConfigError,
            "override 'run.seed': run.seed: expected whole number",
        ),
        (lambda path: aclearn.train("cartpole", "run.seed=2"), ConfigError, "list of texts"),
        (lambda path: aclearn.make_env("cartpole", {"env": 1}), ConfigError, "env is a section"),
    ],
)
def test_a_mistake_is_told_as_on_the_command_line_at_the_callers_line(
    tmp_path: Path, call, kind: type[AclearnError], said: str
) -> None:
    with pytest.raises(kind, match=said) as caught:
        call(tmp_path)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [Path(frame.filename).name for frame in frames[2:]] == ["plain_errors.py"]
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda run: run.evaluate(0), "episodes: expected 1 or more, got 0"),
        (lambda run: run.evaluate(1, seed=-1), "seed: expected 0 or more, got -1"),
        (lambda run: aclearn.load(run, seed=-1), "seed: expected 0 or more, got -1"),
        (lambda run: aclearn.export(run, "x.onnx", passes=0), "passes: expected 1 or more, got 0"),
        (lambda run: aclearn.open_run(None), "run: expected a path, got a NoneType"),
        (lambda run: aclearn.load(run, at="last"), "^at: expected newest, best, agent steps"),
        (lambda run: aclearn.load(3), "run: expected a path, got an int"),
        (lambda run: aclearn.export(run, None), "to: expected a path, got a NoneType"),
        (lambda run: aclearn.load_config(None), "config: expected the name .* got a NoneType"),
        (lambda run: aclearn.make_env({"env.id": "a"}), "config: expected .* got a"),
        (lambda run: aclearn.train("cartpole", None), "overrides: expected a mapping .* got None"),
        (lambda run: run.evaluate(1.5), "episodes: expected a whole number, got 1.5"),
    ],
)
def test_an_argument_that_does_not_fit_is_told_by_its_name(run, call, said: str) -> None:
    with pytest.raises(AclearnError, match=said):
        call(run)


def test_a_run_that_another_process_trains_or_that_exists_is_refused(run) -> None:
    given: Any = partial(aclearn.train, run.path / "config.yaml", resume=True)
    with (
        closing(lock_run(run.path, roles=["monitor", "trainer"])),
        pytest.raises(RunFolderError, match="is being written by aclearn train"),
    ):
        given({"run.max_updates": 30})
    with pytest.raises(RunFolderError, match=r"exists already; .* resume=True, .* overwrite=True,"):
        aclearn.train(run.path / "config.yaml")
    summary = given({"run.max_updates": 24}).summary
    assert summary["updates"] == 24
    assert given().summary == summary  # it is over, which is said


def test_the_names_of_the_api_cost_no_import_before_their_first_use() -> None:
    assert set(api.__all__) == set(aclearn.__all__) <= set(dir(aclearn))
    with pytest.raises(AttributeError, match="module 'aclearn' has no attribute 'trains'"):
        aclearn.trains  # noqa: B018
    look = run_python("-X", "importtime", "-c", "import aclearn")
    imported = {line.rpartition("|")[2].strip() for line in look.stderr.splitlines()[1:]}
    started = run_python("-X", "importtime", "-c", "pass")
    before = {line.rpartition("|")[2].strip() for line in started.stderr.splitlines()[1:]}
    new = {name.partition(".")[0] for name in imported - before} - {"aclearn"}
    assert new <= sys.stdlib_module_names
    used = "import sys, aclearn; aclearn.train, aclearn.load; print('torch' in sys.modules)"
    assert run_python("-c", used).stdout == "False\n"


@pytest.mark.parametrize("form", ["services/__init__.py", "services.py", "compress/x.py"])
def test_a_module_of_the_users_that_hides_ours_is_named(tmp_path: Path, form: str) -> None:
    hidden = tmp_path / form
    hidden.parent.mkdir(exist_ok=True)
    hidden.touch()
    name = Path(form).parts[0].removesuffix(".py")
    root = Path(aclearn.__file__).parents[1]
    # a folder without __init__.py hides nothing that is installed after it on the path
    hides = not form.endswith("x.py")
    paths = {"PYTHONPATH": f"{tmp_path}:{root}"}
    for words in (["-c", "import aclearn; aclearn.train"], ["-m", "aclearn", "--version"]):
        done = run_python(*words, cwd=tmp_path, env=paths)
        assert (done.returncode != 0) is hides, done.stderr
        if hides:
            told = done.stderr.splitlines()[-1]
            place = tmp_path / Path(form).parts[0]
            assert f"{place} hides the package {name} of aclearn, which is at {root}" in told
            assert "rename yours" in told


def test_arguments_may_be_numbers_of_numpy_and_paths(run, tmp_path: Path) -> None:
    config = aclearn.load_config(
        "cartpole",
        {
            "run.dir": tmp_path,
            "run.seed": np.int64(3),
            "optimiser.learning_rate": np.float32(0.5),
            "policy.hidden": np.array([8, 4]),
        },
    )
    assert (config.run.dir, config.run.seed, config.policy.hidden) == (str(tmp_path), 3, (8, 4))
    with closing(aclearn.make_env(config, seed=np.int64(1))) as env:
        env.reset(seed=np.int64(2))
    assert len(run.evaluate(np.int64(1), seed=np.int64(5)).returns) == 1


def test_a_configuration_without_a_file_is_named_after_its_environment() -> None:
    config = aclearn.Config(env={"id": "CartPole-v1"})
    assert config.run.name is None and config.experiment == "cartpole-v1"
