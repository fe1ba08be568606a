"""Modules that a process loads before it learns."""

from __future__ import annotations

from tests.support.waiting import run_python

_UPDATE = """
import sys, torch
from aclearn.config import OptimiserConfig
from aclearn.learning.optimiser import make_optimiser, step

for kind in ("adam", "rmsprop"):
    weight = torch.nn.Parameter(torch.ones(3))
    optimiser = make_optimiser([{"params": [weight]}], config := OptimiserConfig(kind=kind))
    weight.grad = torch.ones(3)
    step(optimiser, config, applied=torch.tensor(True), learned=torch.tensor(0))
    assert (weight < 1.0).all(), kind
print("torch._dynamo" in sys.modules)
"""


def test_an_update_does_not_load_torchs_compiler() -> None:
    done = run_python("-c", _UPDATE)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
