"""The wheel, installed into its own environment and used in an empty folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np

from tests.support.waiting import DEADLINE_S

_ROOT = Path(__file__).parents[2]
_SOURCES = (".importable", "aclearn", "compress", "correctors", "services", "configs")


def _run(*command: str | Path, cwd: Path) -> str:
    """The output of a command that does not see the checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=DEADLINE_S,
        env={**environment, "OMP_NUM_THREADS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )  # fmt: skip
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_a_wheel_trains_a_shipped_configuration_in_an_empty_folder(tmp_path: Path) -> None:
    source, empty = tmp_path / "source", tmp_path / "empty"
    empty.mkdir()
    for name in _SOURCES:  # a copy: building leaves files behind
        shutil.copytree(_ROOT / name, source / name, symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(_ROOT / name, source)
    offline = ("--no-deps", "--no-index", "--quiet")
    pip = (sys.executable, "-m", "pip")
    _run(*pip, "wheel", *offline, "--no-build-isolation", "-w", tmp_path, source, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")

    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    _run(*pip, "--python", python, "install", *offline, wheel, cwd=tmp_path)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    # dependencies are those of this environment; an editable install there is not seen
    (site / "dependencies.pth").write_text(f"{Path(np.__file__).parents[1]}\n")
    assert _run(python, "-c", "import aclearn; print(aclearn.__file__)", cwd=empty).startswith(
        str(site)
    )

    aclearn = tmp_path / "venv" / "bin" / "aclearn"
    rows = (
        "from aclearn.envs.trading import load_market as load; print(load('sp500_20').close.shape)"
    )
    assert _run(python, "-c", rows, cwd=empty) == "(8313, 20)\n"
    assert "BSD 3-Clause" in (site / "aclearn/envs/trading/data/README.md").read_text()
    files = {path.relative_to(_ROOT / "configs") for path in (_ROOT / "configs").rglob("*.yaml")}
    listed = [line.split()[0] for line in _run(aclearn, "configs", cwd=empty).splitlines()]
    assert sorted(listed) == sorted(path.with_suffix("").as_posix() for path in files)
    _run(aclearn, "configs", "cartpole", "--to", "mine.yaml", cwd=empty)
    assert (empty / "mine.yaml").read_text() == (_ROOT / "configs" / "cartpole.yaml").read_text()
    assert "cartpole-1 (seed 1) ended: max_updates" in _run(
        aclearn, "train", "cartpole", "run.max_updates=1", cwd=empty
    )
    assert (empty / "runs" / "cartpole-1" / "summary.json").exists()
