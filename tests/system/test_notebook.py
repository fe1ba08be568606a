"""The notebook in examples/, in a real kernel that is then interrupted."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from aclearn.runs import load_newest
from tests.support.system import System
from tests.support.waiting import DEADLINE_S, wait_for

_NOTEBOOK = Path(__file__).parents[2] / "examples" / "first_hour.ipynb"
_SHORT = '\nsettings |= {"run.max_updates": 60, "run.metrics_every_s": 0.25}'
_ENDLESS = (
    'aclearn.train("cartpole", {"run.name": "endless", "run.metrics_every_s": 0.25, '
    '"run.stop_at_target": False})'
)


def test_the_notebook_runs_and_an_interrupted_kernel_ends_the_roles_and_saves(
    system: System,
) -> None:
    notebook = nbformat.read(_NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "saved without outputs"
    settings = next(cell for cell in notebook.cells if "settings = {" in cell.source)
    settings.source += _SHORT
    manager = KernelManager(kernel_name="python3")
    client = NotebookClient(notebook, km=manager, timeout=int(DEADLINE_S))
    with client.setup_kernel(cleanup_kc=True, cwd=str(system.folder), env=system.environment):
        for number, cell in enumerate(notebook.cells):
            client.execute_cell(cell, number)
        pictures = [
            output for cell in notebook.cells for output in cell.get("outputs", ())
            if "image/png" in output.get("data", {})
        ]  # fmt: skip
        assert len(pictures) == 1
        assert (system.folder / "cartpole.onnx").exists()

        folder = system.folder / "runs" / "endless"
        summary = folder / "summary.json"
        client.kc.execute(_ENDLESS)
        wait_for(lambda: _updates(folder) > 3, "it learns")
        manager.interrupt_kernel()
        wait_for(summary.exists, "the run has ended", within_s=20.0)
        wait_for(lambda: len(system.living()) == 1, "only the kernel lives", within_s=20.0)
    assert json.loads(summary.read_text())["reason"] == "SIGINT"
    checkpoint = load_newest(folder / "checkpoints")
    assert checkpoint is not None and checkpoint.state["counters"]["updates"] > 3


def _updates(folder: Path) -> int:
    """Those of the newest whole line of the metrics."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return json.loads(lines[-1])["updates"] if lines else 0
