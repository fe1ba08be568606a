"""The files shown in docs/, used as the pages say."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from aclearn import distributions
from aclearn.config._yaml import parse_yaml
from aclearn.policies import describe_architecture
from aclearn.runs import load_newest
from aclearn.types import ActionSpec, ObservationSpec
from compress import ONNX, CompressorChain, Context, Policy, parse_chain
from compress.export import export_onnx
from services.commands.export import export_run
from tests.support.saved_runs import save_run
from tests.support.system import CARTPOLE, TOYS, System
from tests.support.waiting import run_python

_ROOT = Path(__file__).parents[2]
#: A block whose first line is a comment with the name of a file.
_BLOCK = re.compile(
    r"^```(?:python|yaml)\n(?P<text># (?P<name>\S+\.(?:py|yaml))\n.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def _write_files(page: str, folder: Path) -> list[str]:
    """Write the files of a page to `folder`; returns their names in order."""
    blocks = list(_BLOCK.finditer((_ROOT / "docs" / page).read_text("utf-8")))
    for block in blocks:
        (folder / block["name"]).write_text(block["text"], encoding="utf-8")
    return [block["name"] for block in blocks]


def _python(file: str, folder: Path) -> str:
    """The output of a program in `folder`."""
    path = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = run_python(file, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_environment_of_ones_own_is_found_in_the_current_folder_and_learned(
    system: System,
) -> None:
    system.cwd = system.folder / "project"
    system.cwd.mkdir()
    system.environment["PYTHONPATH"] = str(_ROOT)
    assert _write_files("environments.md", system.cwd) == ["corridor.py", "corridor.yaml"]
    run = system.train(
        system.cwd / "corridor.yaml",
        f"run.dir={system.folder / 'runs'}",
        "run.name=corridor-1",
        "run.max_updates=40",
    )
    assert run.wait() == 0, run.diagnosis()
    summary = run.check_account()
    assert summary["reason"] in ("max_updates", "target_reached")
    assert summary["updates"] >= 40 or summary["reason"] == "target_reached"
    assert "env_fault" not in summary["dropped_steps"]
    # a tenth of a point for each of 10 to 100 steps
    assert summary["episodes"] > 0
    assert -10.001 < summary["return_mean_100"] < -0.999


def test_a_network_of_ones_own_keeps_the_contract(tmp_path: Path) -> None:
    files = _write_files("networks.md", tmp_path)
    assert files == ["my_network.py", "my_memory.py", "check_my_network.py"]
    assert _python(files[2], tmp_path) == ""
    check = (tmp_path / files[2]).read_text("utf-8")
    for shown, recurrent in (("my_network", "my_memory"), ("Network", "Memory")):
        check = check.replace(shown, recurrent)
    (tmp_path / "check_my_memory.py").write_text(check, "utf-8")
    assert _python("check_my_memory.py", tmp_path) == ""


def test_a_link_of_ones_own_keeps_the_contract_and_takes_its_place_in_a_chain(
    tmp_path: Path, monkeypatch
) -> None:
    files = ["links.py", "rounded.yaml", "act.py", "play_recall.py"]
    assert _write_files("compression.md", tmp_path) == files
    assert _python("links.py", tmp_path) == ""

    monkeypatch.syspath_prepend(tmp_path)
    written = parse_yaml((tmp_path / "rounded.yaml").read_text("utf-8")).value
    try:
        chain = parse_chain(written["compressor"]["chain"])
    finally:
        sys.modules.pop("links", None)
    assert re.fullmatch(r"round=10>int8(-7bit)?>onnx", chain.id)


def test_an_exported_model_is_run_by_onnx_runtime_alone(tmp_path: Path) -> None:
    _write_files("compression.md", tmp_path)
    architecture = describe_architecture(
        "accerl-net3", observation=ObservationSpec.plain((4, 84, 84), "uint8"), actions=6
    )
    # weights of 0: the logits are the biases for any observation
    tensors = {
        name: np.zeros(shape, np.float32) for name, shape in architecture.tensor_shapes().items()
    }
    tensors["policy.bias"][2] = 1.0
    chain = CompressorChain().add(ONNX())
    artifact = chain.compress(Policy.of(architecture, tensors), Context())
    (tmp_path / "policy.onnx").write_bytes(export_onnx(artifact))
    assert _python("act.py", tmp_path) == "[2]\n"


def test_an_exported_memory_is_played_by_onnx_runtime_and_numpy_alone(tmp_path: Path) -> None:
    _write_files("compression.md", tmp_path)
    # a network that solves the task, with constant weights
    network = {"architecture": "tests.support.own_networks:Latch", "hidden": None}
    run = save_run(tmp_path, {"id": "aclearn.envs.memory_tasks:Recall"}, policy=network)
    export_run(run, tmp_path / "recall.onnx")
    alone = ("aclearn", "compress", "correctors", "services", "torch", "onnx", "gymnasium")
    blocked = "import sys, runpy\n" + "\n".join(f"sys.modules[{n!r}] = None" for n in alone)
    program = tmp_path / "play_recall.py"
    for cue in range(4):
        program.write_text(
            re.sub(r"cue, cues, delay = \d", f"cue, cues, delay = {cue}", program.read_text())
        )
        done = run_python("-c", f"{blocked}\nrunpy.run_path('play_recall.py')", cwd=tmp_path)
        assert done.stdout == f"cue {cue}, answer {cue}\n", done.stderr


def test_metrics_are_read_from_python(tmp_path: Path) -> None:
    assert _write_files("metrics.md", tmp_path) == ["returns.py"]
    folder = tmp_path / "runs" / "pong-1"
    folder.mkdir(parents=True)
    lines = [
        {"time_s": 0.2, "env_steps": 0, "return_mean_100": None},
        {"time_s": 2.4, "env_steps": 640, "return_mean_100": -20.5},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text + '{"time_s": 4.')  # the last one is incomplete
    assert _python("returns.py", tmp_path).splitlines() == [
        "0 s, 0 steps, return None",
        "2 s, 640 steps, return -20.5",
    ]


def test_correctors_are_used_without_a_run(tmp_path: Path) -> None:
    assert _write_files("correction.md", tmp_path) == ["check.py", "correct.py"]
    # 1 + 0.9 · 0.5 at the end, 1 + 0.9 · 1.45 before it; less the value of 0.5
    expected = "tensor([2.3050, 1.4500]) tensor([1.8050, 0.9500])\n"
    assert _python("correct.py", tmp_path) == expected
    (tmp_path / "my_corrector.py").write_text(dict(_additions()[0])["my_corrector.py"])
    assert _python("check.py", tmp_path) == ""


def _additions() -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """Each file and its lines, and the YAML, of "How to add" in docs/architecture.md."""
    page = (_ROOT / "docs" / "architecture.md").read_text("utf-8")
    section = page.partition("\n## How to add\n")[2]
    files: list[tuple[str, str]] = []
    groups: dict[str, Any] = {}
    for language, text in re.findall(
        r"^ *```(\w+)\n(.*?)^ *```$", section, re.MULTILINE | re.DOTALL
    ):
        if language == "yaml":
            for group, keys in yaml.safe_load(text).items():
                groups[group] = groups.get(group, {}) | keys if isinstance(keys, dict) else keys
        else:
            named = re.match(r"# ([\w/]+\.py)\n", text)
            assert named, f"a block without the name of its file:\n{text}"
            files.append((named[1], text))
    return files, groups


def test_all_that_the_page_on_the_architecture_adds_works_in_one_run(system: System) -> None:
    system.cwd, ours = system.folder / "project", system.folder / "ours"
    system.cwd.mkdir()
    for package in ("correctors", "aclearn", "compress", "services"):
        shutil.copytree(_ROOT / package, ours / package)
    for toy in ("bernoulli.py", "torch_bernoulli.py"):
        shutil.copy(TOYS / toy, ours / "aclearn" / "distributions")
    files, groups = _additions()
    for name, text in files:
        # a path is a file of ours, which gets further lines; a bare name is the user's
        with ((ours if "/" in name else system.cwd) / name).open("a", encoding="utf-8") as file:
            file.write(text)
    system.environment["PYTHONPATH"] = str(ours)
    trainer = {"epochs": 16}  # unrolls that wait for so slow a trainer fill its queue
    run = system.train(system.config(CARTPOLE | {"policy": {}}, trainer=trainer, **groups))
    run.wait_until_learning()
    run.wait_for(lambda: run.last().get("workers") == 2.0, "the plug-in saw a full queue")
    run.wait_for(lambda: run.last().get("counter_turns", 0) > 0, "the role counts its turns")
    run.wait_for(lambda: run.last().get("compressed_share", 0) > 0, "the link's policy acts")
    run.wait_for(lambda: run.last()["return_mean_100"] is not None, "episodes have ended")
    line = run.last()
    assert line["return_mean_100"] == 1.0  # every episode that reaches the end of the corridor
    # the first episodes at the end have an advantage of about 1, of which a tenth is left
    assert max(line.get("clipped_advantage_share") or 0.0 for line in run.lines()) > 0.0
    assert 0.0 < line["compressor_round_largest_change"] <= 0.125
    assert line["success_rate"] == 1.0 and line["monitor_indicator_failures"] == 0.0
    assert "policy_loss" in line and "entropy" not in line  # unlike our own loss
    assert line["strategy_rung"] == 0.0
    assert line["wait_share"]["counter"]["the next turn"] > 0.5
    run.signal(signal.SIGTERM)
    assert run.wait(within_s=10.0) == 128 + signal.SIGTERM, run.diagnosis()
    told = [json.loads(text) for text in (run.folder / "told.jsonl").read_text().splitlines()]
    assert len(told) == len(run.lines()) + 1 and told[-1] == {"over": True}
    checkpoint = load_newest(run.folder / "checkpoints")
    assert checkpoint is not None
    kinds = {layer["kind"] for layer in checkpoint.state["architecture_spec"]["layers"]}
    assert kinds == {"scale", "flatten", "dense", "leaky_relu"}
    assert not re.search(r"Traceback|plugin_failed|link_failed", run.diagnosis())


def test_the_row_of_a_distribution_is_found_in_numpy_and_in_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files, _ = _additions()
    (row,) = [text for name, text in files if name == "aclearn/distributions/__init__.py"]
    table = dict(distributions._DISTRIBUTIONS)
    monkeypatch.setattr(distributions, "_DISTRIBUTIONS", table)
    monkeypatch.setattr(distributions, "__path__", [*distributions.__path__, str(TOYS)])
    exec(row, {**vars(distributions)})
    spec = replace(ActionSpec.discrete(2), kind="binary")
    in_numpy, in_torch = (
        distributions.distribution_of(spec), distributions.torch_distribution_of(spec),
    )  # fmt: skip
    # probabilities of action 1: a half, three quarters, none
    parameters = np.array([[0.0], [np.log(3.0)], [5.0]], np.float32)
    mask = np.array([[True, True], [True, True], [True, False]])
    masked = in_numpy.mask(parameters, mask)
    ones, p = np.ones(3, np.int64), np.array([0.5, 0.75, 0.0])
    assert in_numpy.parameter_count == 1
    np.testing.assert_allclose(np.exp(in_numpy.log_prob(masked, ones)), p, rtol=1e-6)
    made = in_torch(torch.from_numpy(parameters), torch.from_numpy(mask))
    np.testing.assert_allclose(made.log_prob(torch.from_numpy(ones)).exp(), p, rtol=1e-6)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = np.nan_to_num(-p * np.log(p)) + np.nan_to_num(-(1 - p) * np.log(1 - p))
    np.testing.assert_allclose(in_numpy.entropy(masked), entropy, rtol=1e-6)
    np.testing.assert_allclose(made.entropy(), entropy, rtol=1e-6)
    assert in_numpy.sample(masked, np.random.default_rng(0))[0][2] == 0
