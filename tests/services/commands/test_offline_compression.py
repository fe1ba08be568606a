"""`aclearn export` and `aclearn compress` on the checkpoint of a real, short run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from typer.testing import CliRunner

from aclearn.config import Config, config_from_yaml
from aclearn.distributions import distribution_of
from aclearn.errors import AclearnError, CheckpointError, ConfigError
from aclearn.launch import StopFlag
from aclearn.policies.network import PolicyNetwork, load_tensors
from aclearn.types import ActionSpec, Visited
from compress import (
    ArtifactRuntime,
    ChainError,
    Context,
    Fidelity,
    RefusedArtifact,
    build_onnx,
)
from compress.export import export_onnx, run_onnx
from compress.methods.quantizer import Quantizer
from services.cli import app
from services.commands.compress import compress_run
from services.commands.export import export_run
from services.commands.offline_compression import visit_run
from services.evaluator.play import Played
from services.evaluator.saved_policy import load_policy
from services.launcher.local_run import train
from tests.support.acting import Acting
from tests.support.contexts import seen

#: Observations for the links, and as many for comparisons: fewer than usual.
_FEW = 32
_CONFIG = """
run: {{name: r, dir: {folder}, deterministic: true, max_updates: 3}}
env: {{id: ALE/Pong-v5, clip_rewards: true, atari: {{max_episode_frames: 400}}}}
policy: {{architecture: {architecture}}}
actors: {{processes: 1, envs_per_group: 2, unroll_length: 4}}
trainer: {{device: cpu, amp: "off"}}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of three updates."""
    return _run_of("accerl-net3", tmp_path_factory.mktemp("runs"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few observations for a chain."""
    monkeypatch.setattr("services.commands.offline_compression._OBSERVATIONS", _FEW)


@pytest.fixture
def no_games(monkeypatch: pytest.MonkeyPatch) -> None:
    """Visits cost seconds: random frames instead."""

    def visit(run: object, policy: str, *, count: int, seed: int) -> Visited:
        return seen(some_frames(count))

    monkeypatch.setattr("services.commands.offline_compression.visit", visit)


def _config(folder: Path, architecture: str = "accerl-net3") -> Config:
    return config_from_yaml(_CONFIG.format(folder=folder, architecture=architecture))


def _run_of(architecture: str, folder: Path) -> Path:
    train(_config(folder, architecture), resume=False, stop=StopFlag())
    return folder / "r"


def torch_parameters(run: Path, observations: np.ndarray) -> np.ndarray:
    """The output of the trained module."""
    saved = load_policy(run)
    network = PolicyNetwork(saved.architecture, seed=0)
    load_tensors(network, saved.tensors)
    with torch.no_grad():
        return network(torch.from_numpy(observations))[0].numpy()


def some_frames(count: int) -> np.ndarray:
    return np.random.default_rng(4).integers(0, 256, (count, 4, 84, 84), np.uint8)


def test_an_exported_policy_needs_nothing_else_and_answers_as_torch_does(run, tmp_path) -> None:
    to = tmp_path / "policy.onnx"
    artifact = export_run(run, to)
    assert artifact.chain == "onnx"
    frames = some_frames(5)
    np.testing.assert_allclose(
        run_onnx(to.read_bytes(), seen(frames).observations)["parameters"],
        torch_parameters(run, frames),
        rtol=1e-4,
        atol=1e-5,
    )
    model = onnx.load(to)
    assert all(t.data_location != onnx.TensorProto.EXTERNAL for t in model.graph.initializer)
    about = {prop.key: prop.value for prop in model.metadata_props}
    assert about["run"] == "r" and about["environment"] == "ALE/Pong-v5"
    assert (about["generation"], about["version"]) == ("0", "3")
    assert (about["chain"], about["architecture"]) == ("onnx", "accerl-net3")
    assert len(about["digest"]) == 32


@pytest.mark.parametrize("vnni", [False, True])
def test_an_exported_int8_policy_is_for_every_processor_whichever_this_one_is(
    run, tmp_path, monkeypatch, no_games, vnni
) -> None:
    monkeypatch.setattr("compress.methods.quantizer.has_vnni", lambda: vnni)
    to = tmp_path / "policy.onnx"
    artifact = export_run(run, to, words="int8")
    assert artifact.chain == "int8-7bit>onnx"
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(to).graph.initializer}
    weights = [tensor for tensor in stored.values() if tensor.dtype == np.int8 and tensor.ndim > 1]
    # 2 · 255 · 63 < 2¹⁵: the sum of two products does not saturate without VNNI
    assert len(weights) == 4 and max(np.abs(tensor).max() for tensor in weights) == 63
    # the comparison uses this machine's graph
    *_, row = compress_run(run, "int8")
    assert row.name == ("int8>onnx" if vnni else "int8-7bit>onnx")


@pytest.mark.computes_wrongly
@pytest.mark.parametrize("words", ["low_rank=4", "prune=0.5,fp16"])
def test_a_model_that_is_not_what_torch_computes_is_not_written(
    run, tmp_path, words, monkeypatch, no_games
) -> None:
    to = tmp_path / "policy.onnx"
    export_run(run, to, words=words)
    good = to.read_bytes()
    with pytest.raises(ConfigError, match=r"--to: .*policy\.onnx exists already; --force replaces"):
        export_run(run, to, words=words)

    def undivided(graph, **how):
        """A graph that forgets to divide pixels by 255, wherever one is built."""
        return build_onnx(replace(graph, scale_folded=True), **how)

    for user in ("compress.export", "compress.runtimes.optimised_onnx"):
        monkeypatch.setattr(f"{user}.build_onnx", undivided)
    with pytest.raises(RefusedArtifact, match=r"output is off by .*it was not written"):
        export_run(run, to, words=words, force=True)
    assert to.read_bytes() == good


@pytest.mark.computes_wrongly
def test_an_int8_graph_that_is_wrong_wherever_it_is_built_is_not_written(
    run, tmp_path, monkeypatch, no_games
) -> None:
    to = tmp_path / "policy.onnx"

    def bent(graph, **how):
        """Weights' zero is 1, in the model as in the runtime: they agree with each other."""
        model = onnx.load_from_string(build_onnx(graph, **how))
        for tensor in model.graph.initializer:
            if tensor.name == "weight_zero":
                tensor.CopyFrom(onnx.numpy_helper.from_array(np.int8(1), "weight_zero"))
        return model.SerializeToString()

    for user in (
        "compress.export",
        "compress.runtimes.optimised_onnx",
        "compress.runtimes.onnx_runtime",
    ):
        monkeypatch.setattr(f"{user}.build_onnx", bent)
    with pytest.raises(RefusedArtifact, match=r"output is off by .*it was not written"):
        export_run(run, to, words="int8")
    assert not to.exists()


@pytest.mark.parametrize("share", [0.005, 10.0])
def test_an_int8_model_with_other_tensors_is_not_written(
    run, tmp_path, monkeypatch, no_games, share
) -> None:
    to = tmp_path / "policy.onnx"

    def shifted(artifact, metadata, *, spec):
        tensors = dict(artifact.tensors)
        unit = tensors["policy.input_scale"] * tensors["policy.weight_scale"].max()
        shift = share * np.abs(artifact.probe_parameters).max() / unit
        assert shift > 1.0
        tensors["policy.bias"] = tensors["policy.bias"] + np.int32(shift)
        return export_onnx(replace(artifact, tensors=tensors), metadata, spec=spec)

    monkeypatch.setattr("services.commands.export.export_onnx", shifted)
    with pytest.raises(RefusedArtifact, match="output is off by"):
        export_run(run, to, words="int8")
    assert not to.exists()


def test_a_file_that_cannot_be_written_is_told_before_anything_is_done(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    for to in (tmp_path, tmp_path / "file" / "missing" / "policy.onnx"):
        with pytest.raises(ConfigError, match=r"--to: .* is (not )?a folder"):
            export_run(tmp_path / "no-run-either", to)


def test_a_chain_is_compared_on_other_observations_than_it_was_fitted_on(run, monkeypatch) -> None:
    frames, fitted = some_frames(2 * _FEW), []

    def visited(config, policy, *, count, seed):
        assert count == len(frames)
        return seen(frames)

    def context(observations, *, seed):
        fitted.append(observations)
        return Context(observations, seed=seed)

    monkeypatch.setattr("services.commands.offline_compression.visit", visited)
    monkeypatch.setattr("services.commands.offline_compression.Context", context)
    *_, row = compress_run(run, "int8")
    others = frames[1::2]
    assert all(np.array_equal(given.observations["observation"], frames[0::2]) for given in fitted)
    policy = Acting(ArtifactRuntime(load_policy(run).architecture))
    policy.load(row.artifact)
    expected = Fidelity.of(
        distribution_of(ActionSpec.discrete(6)),
        torch_parameters(run, others),
        policy.parameters(others),
        3,
    )
    assert row.artifact.fidelity.observations == _FEW
    assert row.artifact.fidelity.kl_mean == pytest.approx(expected.kl_mean, rel=1e-3)


def test_links_and_comparisons_get_different_games_of_all_agents(monkeypatch) -> None:
    rows = np.arange(2 * 16 * 3, dtype=np.float32)[:, None]  # two turns of 16 games of 3 agents
    monkeypatch.setattr(
        "services.commands.offline_compression.visit",
        lambda run, policy, *, count, seed: seen(rows),
    )
    policy = SimpleNamespace(spec=SimpleNamespace(agents=3), architecture=SimpleNamespace(state=()))
    halves = visit_run(SimpleNamespace(policies={"p": policy}), "p")
    by_game = rows.reshape(2, 8, 2, 3)
    for number, half in enumerate(halves):
        found = half.observations["observation"].ravel()
        np.testing.assert_array_equal(found, by_game[:, :, number].ravel())


def _command(*arguments: object) -> str:
    """The output of this `aclearn` command, on a screen of 80 columns."""
    result = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.output


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip()[1:-1].replace("┃", "│").split("│")]


@pytest.mark.parametrize("episodes", [0, 1])
def test_aclearn_compress_prints_a_column_for_each_way_to_run_the_policy(
    run, no_games, episodes
) -> None:
    chain = "prune: {sparsity: 0.5, per_layer: {convolutions: 0}, importance: activation},int8"
    output = _command("compress", run, "--chain", chain, "--episodes", episodes)
    assert "…" not in output
    lines = output.splitlines()
    # a name that is too long for its column is wrapped
    header = [_cells(line) for line in lines if "┃" in line]
    assert ["".join(parts).replace(" ", "") for parts in zip(*header, strict=True)] == [
        "policy",
        "eagertorchfp32",
        "ONNXfp32",
        f"prune=0.5-convolutions=0-activation>{Quantizer().id}>onnx",
    ]
    measures = {name: cells for name, *cells in (_cells(line) for line in lines if "│" in line)}
    assert list(measures) == [
        "bytes",
        *("batch 1, ms", "batch 8, ms", "batch 32, ms"),
        *("KL mean", "KL variance", "KL max", "same action", "greedy return"),
    ]
    # conv 4·4·8² + 4·4·4², dense 324·32 and policy 32·6 weights with 4 + 4 + 32 + 6 biases; then
    # half of the hidden units, and in int8 each of four layers has two scales and a zero too
    whole = 1_024 + 256 + 324 * 32 + 32 * 6 + 46
    half = 1_024 + 256 + 324 * 16 + 16 * 6 + 4 * (4 + 4 + 16 + 6) + 4 * 9
    assert measures["bytes"] == [f"{4 * whole:,}", f"{4 * whole:,}", f"{half:,}"]
    for size in (1, 8, 32):
        assert all(float(ms) > 0.0 for ms in measures[f"batch {size}, ms"])
    for column in range(3):
        kl_mean, kl_variance, kl_max = (
            float(measures[name][column]) for name in ("KL mean", "KL variance", "KL max")
        )
        assert 0.0 <= kl_mean <= kl_max < 0.1
        # half of them 0 and half the largest would be most of it; three digits are shown
        assert 0.0 <= kl_variance <= 1.02 * kl_max**2 / 4
        assert 0.0 < float(measures["same action"][column].removesuffix("%")) <= 100.0
        score = measures["greedy return"][column]
        assert -21.0 <= float(score) <= 21.0 if episodes else score == "-"
    exact, _, chained = map(float, measures["KL max"])
    assert measures["same action"][0] == "100.0%" and exact < chained
    assert float(measures["KL variance"][2]) > 0.0


def test_aclearn_compress_plays_five_episodes_with_each_unless_told_otherwise(
    run, no_games, monkeypatch
) -> None:
    played = []

    def play(run, players, *, episodes, seed):
        played.append((episodes, players["default"].chooser.greedy))
        return {"default": Played([float(k) for k in range(episodes)], [100] * episodes)}

    monkeypatch.setattr("services.commands.compress.play", play)
    lines = _command("compress", run, "--chain", "bf16").splitlines()
    measures = {name: cells for name, *cells in (_cells(line) for line in lines if "│" in line)}
    assert played == [(5, True)] * 3
    assert measures["greedy return"] == ["2.00"] * 3  # of 0, 1, 2, 3 and 4


def test_aclearn_export_writes_a_model_that_onnx_runtime_runs(run, no_games, tmp_path) -> None:
    to = tmp_path / "policy.onnx"
    written = _command("export", run, "--to", to, "--chain", "int8")
    assert written.startswith(f"wrote {to}: int8-7bit>onnx, version 3, ")
    session = onnxruntime.InferenceSession(str(to), providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    assert (about["run"], about["environment"]) == ("r", "ALE/Pong-v5")
    assert (about["generation"], about["version"]) == ("0", "3")
    assert about["chain"] == "int8-7bit>onnx"
    assert float(about["fidelity.kl_mean"]) > 0.0 and about["fidelity.observations"] == f"{_FEW}"
    frames = some_frames(5)
    answers, actions = session.run(["parameters", "action"], {"observation": frames})
    np.testing.assert_array_equal(actions, answers.argmax(1))
    exact = torch_parameters(run, frames)
    assert 0.0 < np.abs(answers - exact).max() < 0.1 * np.abs(exact).max() + 0.01


def test_a_student_that_has_hardly_learned_is_told(run, no_games, tmp_path, caplog) -> None:
    words = "distill: {steps: 1, first_steps: 3}"
    compress_run(run, words)
    export_run(run, tmp_path / "policy.onnx", words=words)
    for record in caplog.records:
        assert "event=student_is_new chain=distill>onnx steps=3 " in record.getMessage()
        assert "--passes" in record.getMessage()
    assert len(caplog.records) == 2
    compress_run(run, words, passes=2)
    compress_run(run, "int8")
    assert len(caplog.records) == 2


def test_links_that_are_named_and_not_run_are_told_by_both_commands(
    run, no_games, tmp_path, caplog
) -> None:
    student = "distill: {student: accerl-net3, steps: 1, first_steps: 1}"
    for words in (f"prune: 0.5, {student}", student):
        compress_run(run, words, passes=2)
        export_run(run, tmp_path / "policy.onnx", words=words, passes=2, force=True)
    chain = "prune=0.5>distill=accerl-net3>onnx"
    expected = f"event=links_without_effect chain={chain} links='prune=0.5'"
    assert [record.getMessage() for record in caplog.records] == [expected] * 2


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ("onyx", ChainError, "did you mean onnx"),
        ("torchscript", ChainError, "a model to export ends in onnx"),
        ("onnx,prune=0.5", ChainError, "comes after onnx"),
    ],
)
def test_a_chain_that_cannot_be_exported_writes_nothing(run, tmp_path, words, error, message):
    to = tmp_path / "policy.onnx"
    with pytest.raises(error, match=message):
        export_run(run, to, words=words)
    assert not to.exists()


def test_a_run_without_a_checkpoint_is_told(tmp_path) -> None:
    with pytest.raises(AclearnError, match="nothing-here"):
        export_run(tmp_path / "nothing-here", tmp_path / "policy.onnx")
    folder = tmp_path / "runs"
    config = _config(folder)
    (folder / "r").mkdir(parents=True)
    (folder / "r" / "config.yaml").write_text(config.to_yaml())
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        compress_run(folder / "r", "int8")
