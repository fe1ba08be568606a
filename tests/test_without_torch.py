"""Who acts, watches or starts a run never pays for torch: its import takes seconds and 200 MB."""

from __future__ import annotations

from aclearn.config import load_config
from services.cli import _COMMANDS
from services.roles import ROLES
from tests.support.waiting import run_python

_MODULES = [
    "aclearn.config",
    "aclearn.control",
    "aclearn.distributions",
    "aclearn.envs",
    "aclearn.launch",
    "aclearn.metrics",
    "aclearn.policies",
    "aclearn.rollout",
    "aclearn.runs",
    "aclearn.shared_weights",
    "aclearn.telemetry",
    "aclearn.types",
    "aclearn.views",
    "aclearn.wire",
    "compress",
    "services.cli",
    *(place.partition(":")[0] for place in _COMMANDS.values()),
    "services.launcher.local_run",
]
#: Those of the roles whose policy runs in ONNX Runtime, by the table of roles.
_ENTRY_POINTS = [
    spec.entry_point.partition(":")[0]
    for spec in ROLES.values()
    if not spec.imports_torch(load_config("cartpole"))
]

# One process for all: each look is at what the modules up to here have brought in.
_PROGRAM = """
import importlib, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
    if "torch" in sys.modules:
        sys.exit(f"{module} imports torch")
print(len(sys.argv) - 1, "modules")
"""


def test_torch_is_imported_by_no_role_but_the_trainer() -> None:
    modules = [*_MODULES, *_ENTRY_POINTS]
    without = [module.split(".")[1] for module in _ENTRY_POINTS]
    assert without == ["monitor", "predictor", "actor", "evaluator"]
    result = run_python("-c", _PROGRAM, *modules)
    assert (result.stdout, result.stderr) == (f"{len(modules)} modules\n", "")
