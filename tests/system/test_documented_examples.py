"""The files that the pages in docs/ show, written down and used as the pages say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from aclearn.config._yaml import parse_yaml
from aclearn.policies import describe_architecture
from compress import ONNX, CompressorChain, Context, Policy, parse_chain
from compress.export import export_onnx
from tests.support.system import System

_ROOT = Path(__file__).parents[2]
#: A block whose first line is a comment with the name of a file.
_BLOCK = re.compile(
    r"^```(?:python|yaml)\n(?P<text># (?P<name>\S+\.(?:py|yaml))\n.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def _write_files(page: str, folder: Path) -> list[str]:
    """The files of a page, put into `folder`; their names in order."""
    blocks = list(_BLOCK.finditer((_ROOT / "docs" / page).read_text("utf-8")))
    for block in blocks:
        (folder / block["name"]).write_text(block["text"], encoding="utf-8")
    return [block["name"] for block in blocks]


def _python(file: str, folder: Path) -> str:
    """What a program in `folder` prints."""
    path = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, file],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )
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


def test_a_link_of_ones_own_keeps_the_contract_and_takes_its_place_in_a_chain(
    tmp_path: Path, monkeypatch
) -> None:
    assert _write_files("compression.md", tmp_path) == ["links.py", "rounded.yaml", "act.py"]
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
        "accerl-net3", observation_shape=(4, 84, 84), observation_dtype="uint8", actions=6
    )
    # weights of 0: whatever it sees, its logits are the biases
    tensors = {
        name: np.zeros(shape, np.float32) for name, shape in architecture.tensor_shapes().items()
    }
    tensors["policy.bias"][2] = 1.0
    chain = CompressorChain().add(ONNX())
    artifact = chain.compress(Policy.of(architecture, tensors), Context())
    (tmp_path / "policy.onnx").write_bytes(export_onnx(artifact))
    assert _python("act.py", tmp_path) == "[2]\n"


def test_metrics_are_read_from_python(tmp_path: Path) -> None:
    assert _write_files("runs.md", tmp_path) == ["returns.py"]
    folder = tmp_path / "runs" / "pong-1"
    folder.mkdir(parents=True)
    lines = [
        {"time_s": 0.2, "env_steps": 0, "return_mean_100": None},
        {"time_s": 2.4, "env_steps": 640, "return_mean_100": -20.5},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text + '{"time_s": 4.')  # the last one is being written
    assert _python("returns.py", tmp_path).splitlines() == [
        "0 s, 0 steps, return None",
        "2 s, 640 steps, return -20.5",
    ]
