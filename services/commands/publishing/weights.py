"""The configuration and the weights in a publication: what `aclearn.load` reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aclearn.config import Config, NetworkConfig, RayConfig, RunConfig
from aclearn.config.monitor import MetricsConfig
from aclearn.runs import save_checkpoint, write_file
from aclearn.runs.checkpoint import prefix_of
from services.evaluator.saved_policy import SavedRun

#: What a policy that is loaded needs of a checkpoint's state. The rest is for resuming.
_KEPT: Final = (
    "architecture",
    "architecture_spec",
    "environment",
    "machine",
    "policy",
    "generation",
    "counters",
    "judged",
)
_OF_ACCOUNT: Final = ("env_steps", "learned_steps")


def place_of(run: SavedRun, policy: str) -> str:
    """The folder of a policy's files in a publication, with a slash; "" where there is one."""
    return f"policies/{policy}/" if run.config.policies else ""


def write_run(run: SavedRun, folder: Path) -> None:
    """Write the configuration and the weights of all policies, as a run folder has them."""
    write_file(folder / "config.yaml", _config(run.config).to_yaml().encode(), "--out")
    tensors = {
        f"{prefix_of(name) if run.config.policies else ''}weights/{tensor}": array
        for name, saved in run.policies.items()
        for tensor, array in saved.weights.items()
    }
    save_checkpoint(
        folder / "checkpoints",
        tensors=tensors,
        state=_state(run.checkpoint.state),
        label=run.checkpoint.label,
        keep=1,
    )


def _config(config: Config) -> Config:
    """The configuration without what belongs to the machine, the account or the cluster.

    Plug-ins and indicators of the user's own may have an account in their arguments.
    """
    usual = RunConfig()
    private = {name: getattr(usual, name) for name in ("name", "dir", "pythonpath", "init_from")}
    policies = {
        name: own.model_copy(update={"init_from": None}) for name, own in config.policies.items()
    }
    return config.with_run(**private).model_copy(
        update={
            "policies": policies,
            "network": NetworkConfig(),
            "ray": RayConfig(),
            "metrics": MetricsConfig(),
            "monitor": config.monitor.model_copy(update={"plugins": (), "indicators": ()}),
        }
    )


def _state(state: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: state[name] for name in _KEPT if name in state}
    kept["account"] = {name: state["account"][name] for name in _OF_ACCOUNT}
    if "policies" in state:
        kept["policies"] = {name: _state(own) for name, own in state["policies"].items()}
    return kept
