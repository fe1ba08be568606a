"""Runs with one checkpoint of new weights, without a process and without a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aclearn.config import Config
from aclearn.envs import read_spec
from aclearn.runs import RunFolder, save_checkpoint
from services.trainer.build import make_queue, make_trainers


def save_run(folder: Path, env: dict[str, Any], **groups: Any) -> Path:
    config = Config(
        run={"name": "r", "seed": 3, "dir": str(folder), **groups.pop("run", {})},
        env=env,
        policy={"architecture": "mlp", "hidden": [8], **groups.pop("policy", {})},
        trainer={"device": "cpu", "amp": "off"},
        **groups,
    )
    spec = read_spec(config.env, patterns=config.patterns)
    queues = {name: make_queue(config) for name in config.learning_policies()}
    trainer = make_trainers(config, spec, queues=queues)
    run = RunFolder.create(folder, "r", config.to_yaml())
    made = trainer.snapshot()
    save_checkpoint(run.checkpoints_dir, tensors=made.tensors, state=made.state, label=0, keep=1)
    run.close()
    return run.path
