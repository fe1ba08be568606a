"""WarpDrive's figure 7 (Lan et al. 2021): two policies learn in the environment of figure 6.

    python examples/warpdrive_figure_7.py

The run is in runs/, as of `aclearn train`. docs/warpdrive.md has WarpDrive's words and ours.
"""

from pathlib import Path
from typing import Any

import aclearn

# agents can share a policy: this maps the names of policies to agents
policy_tag_to_agent_id_map = {"tagger": ["tagger_0", "tagger_1"], "runner": ["runner_*"]}

run_config: dict[str, Any] = {
    "env": {"id": "resident:warpdrive_figure_6:CHASE"},
    "resident": {"envs": 2000},  # on a GPU if there is one
    "policies": {tag: {"agents": ids} for tag, ids in policy_tag_to_agent_id_map.items()},
    "policy": {"architecture": "mlp", "hidden": [32]},
    "loss": {"kind": "a2c"},
    "actors": {"unroll_length": 10},
    "run": {"max_env_steps": 500_000, "pythonpath": [str(Path(__file__).parent)]},
}

if __name__ == "__main__":
    run = aclearn.train(aclearn.Config(**run_config))
    for tag in policy_tag_to_agent_id_map:
        policy = aclearn.load(run, policy=tag)
        print(f"{tag}: action {policy.act([0.0, 1.0] * 5, greedy=True)} where all share a cell")
