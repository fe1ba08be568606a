"""The notebook in examples/, in a real kernel."""

from __future__ import annotations

from pathlib import Path

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from tests.support.system import System
from tests.support.waiting import DEADLINE_S, wait_for

_NOTEBOOK = Path(__file__).parents[2] / "examples" / "first_hour.ipynb"
_SHORT = '\nsettings |= {"run.max_updates": 60, "run.metrics_every_s": 0.25}'


def test_the_notebook_runs_and_leaves_no_role(
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
        wait_for(lambda: len(system.living()) == 1, "only the kernel lives", within_s=20.0)
