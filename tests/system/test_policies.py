"""Two policies with spaces of their own learn against each other in PettingZoo's tag."""

from __future__ import annotations

from typing import Any

import pytest

from aclearn.runs import load_newest
from tests.support.system import CARTPOLE, Run, System

pytest.importorskip("mpe2")

TAG: dict[str, Any] = CARTPOLE | {
    "env": {"id": "mpe2.simple_tag_v3:parallel_env", "kwargs": {"max_cycles": 25}},
    "policies": {
        "tagger": {"agents": "adversary_*"},
        "runner": {"agents": "agent_*", "loss": {"kind": "ppo"}},
    },
    "actors": {"processes": 2, "envs_per_group": 2, "unroll_length": 8},
}
PREDICTOR = {"inference": "predictor"}
CHAIN = {"chain": ["int8", "onnx"], "every_s": 0.5}


def parts_of(run: Run) -> dict[str, Any]:
    """Policy → its state in the newest checkpoint."""
    checkpoint = load_newest(run.folder / "checkpoints")
    assert checkpoint is not None
    return checkpoint.state["policies"]


def check_parts(run: Run) -> dict[str, Any]:
    parts = parts_of(run)
    assert parts.keys() == TAG["policies"].keys()
    assert len({part["counters"]["policy_version"] for part in parts.values()}) == 1
    for part in parts.values():
        account = part["account"]
        dropped = sum(account["dropped_steps"].values())
        known = account["learned_steps"] + dropped + account["in_flight_steps"]
        assert account["env_steps"] == known and account["learned_steps"] > 0
    # three adversaries and one agent, whose episodes begin and end together
    produced = [parts[name]["account"]["env_steps"] for name in ("tagger", "runner")]
    assert produced[0] == 3 * produced[1]
    return parts


@pytest.mark.parametrize(
    "groups",
    [
        {"trainer": {"workers": 2, "share_weights": "host"}},
        {"actors": PREDICTOR, "compressor": CHAIN},
    ],
    ids=["local", "predictor"],
)
def test_killed_roles_and_a_resumed_run_go_on_with_both_policies(
    system: System, groups: dict[str, Any]
) -> None:
    config = system.config(TAG, **groups)
    run = system.train(config)
    shared = "share_weights" in groups.get("trainer", {})
    before = run.wait_until_learning(beyond=500)["learned_steps"]
    # each policy has memory of its own; what is learned so far may be the other actor's
    maps = lambda: run.log("actor-0").count("event=weights_shared")  # noqa: E731
    if shared:
        run.wait_for(lambda: maps() == 2, "actor-0 reads both")
    assert maps() == (2 if shared else 0)
    old = run.kill_role("trainer-0")
    run.wait_for_new("trainer-0", old)
    old = run.kill_role("actor-1")
    run.wait_for_new("actor-1", old)
    run.wait_for(lambda: run.last()["generation"] == 1, "the next trainer learns")
    run.wait_until_learning(beyond=before + 500)
    run.finish()
    first = check_parts(run)
    again = system.train(config, "--resume")
    again.wait_for(lambda: again.last()["generation"] == 2, "the resumed run learns")
    again.wait_until_learning(beyond=again.last()["learned_steps"] + 300)
    again.finish()
    for name, part in check_parts(again).items():
        for counter in ("updates", "policy_version"):
            assert part["counters"][counter] > first[name]["counters"][counter] > 0


def test_the_seed_decides_both_policies(system: System) -> None:
    """Two lock-step runs end with the same bits; their processes have each policy's defaults."""
    bounds = {"deterministic": True, "max_updates": 6}
    own = {**TAG["policies"], "tagger": {"agents": "adv*", "loss": {"kind": "actor_critic"}}}
    found = []
    for name in ("a", "b"):
        groups = {"loss": {"kind": "ppo"}, "policies": own}
        config = system.config(TAG, name=name, run={**bounds, "name": name}, **groups)
        run = system.train(config)
        assert run.wait(within_s=120.0) == 0, run.diagnosis()
        checkpoint = load_newest(run.folder / "checkpoints")
        assert checkpoint is not None
        # one update of a batch, and epochs times minibatches of ppo
        parts = checkpoint.state["policies"]
        assert [parts[policy]["counters"]["batches"] for policy in TAG["policies"]] == [6, 1]
        found.append({k: each.tobytes() for k, each in checkpoint.tensors.items()})
    one, other = ({k: b for k, b in each.items() if "random/torch" not in k} for each in found)
    assert one == other and any(key.startswith("policy/runner/weights/") for key in one)
