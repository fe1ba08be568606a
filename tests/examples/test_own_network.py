"""The network of the example, as a user checks and trains it."""

from __future__ import annotations

from pathlib import Path

from tests.support.waiting import run_python
from tests.support.whole_run import WholeRun

_EXAMPLE = Path(__file__).parents[2] / "examples" / "own_network.py"


def test_it_keeps_the_contract_and_is_trained(tmp_path: Path) -> None:
    done = run_python("-W", "error", _EXAMPLE)
    assert (done.returncode, done.stdout) == (0, "Residual keeps the contract\n"), done.stderr
    policy = {"architecture": "examples.own_network:Residual", "hidden": None}
    run = WholeRun(tmp_path, policy=policy | {"arguments": {"width": 24}}, run={"max_updates": 10})
    assert run.run()["updates"] == 10
