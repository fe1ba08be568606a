"""A published folder: what is in it, that its card's lines work, and what is refused."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import safetensors.numpy
import yaml
from typer.testing import CliRunner

import aclearn
from aclearn.errors import AclearnError, RunFolderError, RunFolderTaken
from aclearn.population import Lineage
from aclearn.population.file import best_folder, write_lineage
from aclearn.runs import RunFolder, lock_run, save_checkpoint
from services.cli import app
from services.commands.publishing import publish as publishing
from services.evaluator.saved_policy import load_run
from tests.support.own_networks import Baked
from tests.support.saved_runs import save_run

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_POLE = {"id": "CartPole-v1"}
_PAIRS = {"id": "tests.support.agents_env:Uneven"}
_SIDES = {"first": {"agents": "long"}, "second": {"agents": "short"}}
_KINDS: dict[str, Callable[[Path], Path]] = {
    "compressed": lambda to: save_run(to, _POLE, compressor={"chain": ["int8", "onnx"]}),
    "memory": lambda to: save_run(to, _POLE, policy={"memory": {"kind": "gru", "size": 4}}),
    "parts of actions": lambda to: save_run(to, {"id": "tests.support.space_envs:Reach"}),
    "masks": lambda to: save_run(
        to, {"id": "tests.support.space_envs:Gates", "action_mask": "info"}
    ),
    "numbers": lambda to: save_run(to, {"id": "Pendulum-v1", "squash_actions": True}),
    "several policies": lambda to: save_run(to, _PAIRS, policies=_SIDES),
    "ensemble": lambda to: aclearn.ensemble([_seeded(to, 1), _seeded(to, 2)], to / "both"),
}


def _seeded(folder: Path, seed: int) -> Path:
    return save_run(folder / str(seed), _POLE, run={"seed": seed})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Few observations for a chain, no video and no onnxruntime-web."""
    monkeypatch.setattr("services.commands.offline_compression._OBSERVATIONS", 32)
    monkeypatch.setattr(publishing, "write_video", lambda run, to, **_: to.write_bytes(b"GIF"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _publish(run: Path, out: Path, **options: Any) -> Any:
    return aclearn.publish(run, out, episodes=2, **options)


@pytest.mark.parametrize("kind", _KINDS)
def test_a_publication_acts_as_its_run_and_its_cards_lines_work(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _KINDS[kind](tmp_path / "runs")
    made = _publish(run, tmp_path / "hub" / "it")
    assert sorted(made.files) == sorted(
        str(path.relative_to(made.path)) for path in made.path.rglob("*") if path.is_file()
    )
    card = (made.path / "README.md").read_text()
    lines = _BLOCK.findall(card)
    names = ["first", "second"] if kind == "several policies" else [None]
    assert len(lines) == 2 * len(names)
    monkeypatch.chdir(made.path)
    for name, ours, plain in zip(names, lines, lines[len(names) :], strict=False):
        said: dict[str, Any] = {}
        exec(ours, said)
        original, published = aclearn.load(run, policy=name), said["policy"]
        published.reset()
        mask = original.action.mask_width * [True] if kind == "masks" else None
        for _ in range(2):  # also what it remembers
            observation = original.observation_space.sample()
            found, expected = (
                policy.parameters(observation, mask=mask) for policy in (published, original)
            )
            _assert_same(found, expected)
            for policy in (published, original):
                policy.act(observation, greedy=True, mask=mask)
        alone: dict[str, Any] = {}
        exec(plain, alone)
        outputs = [alone["action"]] if "action" in alone else alone["actions"]
        assert [part.shape[0] for part in outputs] == [1] * len(original.action.parts)
        place = Path("policies", name) if name else Path()
        weights = safetensors.numpy.load_file(place / "model.safetensors")
        loaded = aclearn.load(run, policy=name)._saved.weights
        assert weights.keys() == loaded.keys()
        for tensor, array in loaded.items():
            np.testing.assert_array_equal(weights[tensor], array)
    assert ("policy-compressed.onnx" in made.files) == (kind == "compressed")
    assert ("policy-compressed.onnx" in made.missing) == (kind != "compressed")
    assert "episode" in made.missing["curve.png"] or "metrics" in made.missing["curve.png"]


def _assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, dict | tuple):
        for key in expected if isinstance(expected, dict) else range(len(expected)):
            _assert_same(found[key], expected[key])
        return
    np.testing.assert_array_equal(found, expected)


def test_the_evaluation_is_that_of_evaluate_and_the_front_matter_has_it(tmp_path: Path) -> None:
    run = save_run(tmp_path, _POLE, compressor={"chain": ["int8"]}, run={"seed": 7})
    (run / "metrics.jsonl").write_text(
        "".join(
            json.dumps({"time_s": t, "env_steps": 0, "learned_steps": 0, "return_mean_100": 20.0})
            + "\n"
            for t in (60.0, 3723.0)
        )
    )
    out = tmp_path / "hub" / "pole"
    command = ["publish", str(run), "--out", str(out), "--episodes", "6", "--licence", "MIT"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "no index.html: onnxruntime-web is not there" in done.output
    score = aclearn.open_run(run).evaluate(6)
    again = aclearn.open_run(out).evaluate(6)
    written = json.loads((out / "evaluation.json").read_text())["policies"]["default"]
    assert written["returns"] == score.returns == again.returns
    low, high = written["return_interval_95"]
    draws = np.random.default_rng(5).choice(score.returns, (20_000, 6)).mean(1)
    np.testing.assert_allclose([low, high], np.percentile(draws, [2.5, 97.5]), atol=0.6)
    card = (out / "README.md").read_text()
    front = yaml.safe_load(card.split("---\n")[1])
    assert front["license"] == "mit" and front["library_name"] == "aclearn"
    assert {"reinforcement-learning", "onnx", "CartPole-v1"} <= set(front["tags"])
    (result,) = front["model-index"][0]["results"]
    assert result["dataset"]["type"] == "CartPole-v1"
    assert result["metrics"][0]["value"] == f"{score.mean:.2f} +/- {score.deviation:.2f}"
    machine = aclearn.load(run)._saved.machine
    for said in (f"| `{machine}` |", "| seed | 7 |", "| 1:02:03 |", "curve.png", f"{low:.2f} to"):
        assert said in card
    model = onnxruntime.InferenceSession(out / "policy-compressed.onnx")
    about = model.get_modelmeta().custom_metadata_map
    assert about["chain"].startswith("int8") and about["chain"] in card


def test_model_hubs_read_the_card(tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    made = _publish(save_run(tmp_path, _PAIRS, policies=_SIDES), tmp_path / "out")
    data = hub.ModelCard.load(made.path / "README.md").data
    assert [each.dataset_type for each in data.eval_results] == [_PAIRS["id"]] * 2
    assert data.license == "unknown" and data.model_name == "out"


def test_nothing_of_the_machine_or_of_accounts_is_published(tmp_path: Path) -> None:
    run = save_run(
        tmp_path / "secret-place",
        _POLE,
        run={"pythonpath": [str(tmp_path / "secret-place")], "init_from": "secret-place"},
        network={"keys_dir": "secret-place"},
        metrics={"sinks": [{"mlflow": {"tracking_uri": "http://me:secret-place@host"}}]},
        monitor={
            "silent_after_s": 50.0,
            "plugins": [{"mine:Pager": {"url": "http://secret-place"}}],
            "indicators": [{"mine:Price": {"token": "secret-place"}}],
        },
    )
    both = aclearn.ensemble([run, run], tmp_path / "secret-place" / "both")
    for source in (run, both):
        made = _publish(source, tmp_path / f"out-{source.name}")
        for name in made.files:
            assert b"secret-place" not in (made.path / name).read_bytes(), name
        assert load_run(made.path).config.monitor.silent_after_s == 50.0


def test_a_publication_adds_no_folder_to_those_of_modules(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    made = _publish(save_run(tmp_path, _POLE), tmp_path / "hub")
    config = made.path / "config.yaml"
    document = yaml.safe_load(config.read_text())
    document.setdefault("run", {})["pythonpath"] = [str(theirs)]
    config.write_text(yaml.safe_dump(document))
    aclearn.load(made.path)
    assert str(theirs) not in sys.path
    (made.path / "publication.json").unlink()  # as of a run
    aclearn.load(made.path)
    assert str(theirs) in sys.path


def test_a_run_that_goes_on_is_published_from_one_checkpoint(tmp_path: Path, monkeypatch) -> None:
    run, drawn = save_run(tmp_path, _POLE), list[Any]()
    expected = aclearn.open_run(run).evaluate(2, seed=publishing.SEED).returns
    old = load_run(run).checkpoint.path
    write_run = publishing.write_run

    def then_another(saved: Any, folder: Path) -> None:
        write_run(saved, folder)
        made = saved.checkpoint
        tensors = {name: 50 * array for name, array in made.tensors.items()}
        save_checkpoint(old.parent, tensors=tensors, state=made.state, label=9, keep=1)

    monkeypatch.setattr(publishing, "write_run", then_another)
    monkeypatch.setattr(publishing, "write_video", lambda run, *_, **__: drawn.append(run))
    made = _publish(run, tmp_path / "out")
    assert aclearn.open_run(run).evaluate(2, seed=publishing.SEED).returns != expected
    scores = json.loads((made.path / "evaluation.json").read_text())["policies"]["default"]
    assert scores["returns"] == expected
    assert drawn[0].checkpoint.path == old


def test_one_of_several_policies_is_described_while_all_play(tmp_path: Path) -> None:
    run = save_run(tmp_path, _PAIRS, policies=_SIDES)
    made = _publish(run, tmp_path / "out", policy="second")
    assert "policies/second/policy.onnx" in made.files
    assert not [name for name in made.files if "first" in name]
    card = (made.path / "README.md").read_text()
    assert "first plays too" in card and 'policy="second"' in card
    assert aclearn.open_run(made.path).evaluate_policies(2).keys() == {"first", "second"}
    with pytest.raises(AclearnError, match=r"no policy 'third'; name one of first, second"):
        _publish(run, tmp_path / "other", policy="third")


def test_of_a_population_the_best_agent_is_published(tmp_path: Path) -> None:
    population = tmp_path / "p"
    population.mkdir()
    lineage = Lineage.begin([{"optimiser.learning_rate": 1e-3}] * 2, round_steps=100)
    write_lineage(population, lineage)
    with pytest.raises(AclearnError, match="best"):
        _publish(population, tmp_path / "out")
    now = lineage.now
    for number in (0, 1):
        now = now.with_member(now.members[number].judged(float(number), 0.1, 100, "x", 0))
    write_lineage(population, lineage.with_now(now))
    save_run(tmp_path, _POLE).rename(best_folder(population))
    made = _publish(population, tmp_path / "out")
    assert (made.path / "curve.png").stat().st_size > 5000
    assert aclearn.load(made.path).updates == 0


def test_a_run_that_cannot_be_published_leaves_nothing(tmp_path: Path, monkeypatch) -> None:
    out = tmp_path / "hub" / "it"
    empty = save_run(tmp_path / "empty", _POLE)
    for path in (empty / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(AclearnError, match="no checkpoint yet; train first"):
        _publish(empty, out)
    own = {"architecture": "tests.support.own_networks:Baked", "hidden": None}
    module = save_run(tmp_path / "own", _POLE, policy=own)
    forward = Baked.forward
    monkeypatch.setattr(Baked, "forward", lambda self, x: _refused(forward(self, x)))
    with pytest.raises(AclearnError, match=r"torch cannot export it to ONNX: .*i0"):
        _publish(module, out)
    with pytest.raises(AclearnError, match="chain"):
        _publish(save_run(tmp_path / "plain", _POLE), out, chain="no_such_link")
    with pytest.raises(AclearnError, match=r"licence: expected the identifier .* 'my own'"):
        _publish(empty, out, licence="my own")
    assert not out.exists() and not [*out.parent.glob(".*")]


def _refused(outputs: Any) -> Any:
    import torch

    parameters, value = outputs
    return torch.special.i0(parameters), value


def test_only_a_publication_is_replaced_and_only_whole(tmp_path: Path, monkeypatch) -> None:
    run, out = save_run(tmp_path, _POLE), tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("years")
    with pytest.raises(RunFolderTaken, match="is no publication; name a new folder"):
        _publish(run, out, force=True)
    with pytest.raises(RunFolderTaken, match="is no publication"):
        _publish(run, run, force=True)
    (out / "thesis.tex").unlink()
    _publish(run, out)
    with pytest.raises(RunFolderTaken, match="force=True replaces it"):
        _publish(run, out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with monkeypatch.context() as patch:
        patch.setattr(publishing, "card_of", _fails)
        with pytest.raises(AclearnError, match="no card"):
            _publish(run, out, force=True)
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    made = _publish(run, out, force=True, licence="mit")
    assert "license: mit" in (out / "README.md").read_text()
    assert not [*tmp_path.glob(".out*")] and len(made.files) == len(before)
    (out / "README.md").write_text("mine")
    with pytest.raises(RunFolderTaken, match=r"README\.md; .* too with discard_edits=True"):
        _publish(run, out, force=True)
    _publish(run, out, force=True, discard_edits=True)
    (out / ".git").mkdir()
    (out / ".git" / "HEAD").write_text("main")
    with pytest.raises(RunFolderTaken, match=r"no publication wrote, for instance \.git/HEAD"):
        _publish(run, out, force=True)


def _fails(*_: Any) -> str:
    raise AclearnError("no card")


def test_a_publication_is_neither_resumed_nor_overwritten(tmp_path: Path) -> None:
    out = _publish(save_run(tmp_path, _POLE), tmp_path / "out").path
    with pytest.raises(RunFolderError, match="is a publication, which has no optimiser"):
        RunFolder.open(out, lock=lock_run)
    with pytest.raises(RunFolderTaken, match=r"is a publication; choose another run\.name"):
        RunFolder.create(tmp_path, "out", "", overwrite=True)
