"""A user's own loss and corrector, from a module and a line of YAML."""

from __future__ import annotations

import torch

from aclearn.policies import describe_architecture
from aclearn.policies.network import PolicyNetwork, load_tensors
from aclearn.types import ObservationSpec
from tests.support.system import TOYS

_GROUPS = {
    "policy": {"architecture": "mlp", "hidden": [16]},
    "actors": {"processes": 2, "envs_per_group": 4, "unroll_length": 2},
    "optimiser": {"learning_rate": 0.03},
    "monitor": {"heartbeat_every_s": 0.25},
}
#: Targets of 3 and advantages of 0, after any V-trace.
_CORRECTORS = ["vtrace", {"toy_corrector:ConstantTargets": {"target": 3.0}}]
#: CartPole's states while it is balanced.
_STATES = torch.rand(100, 4, generator=torch.Generator().manual_seed(1)) * 0.1 - 0.05


def network_of(run) -> PolicyNetwork:
    network = PolicyNetwork(
        describe_architecture(
            "mlp", observation=ObservationSpec.plain((4,), "float32"), actions=2, hidden=(16,)
        ),
        seed=0,
    )
    tensors = run.checkpoint().tensors.items()
    load_tensors(
        network, {k.removeprefix("weights/"): v for k, v in tensors if k.startswith("weights/")}
    )
    return network


def test_a_loss_and_a_corrector_of_ones_own_decide_what_the_policy_becomes(
    start, monkeypatch
) -> None:
    monkeypatch.syspath_prepend(TOYS)
    run = start(
        run={"max_updates": 300},
        loss={"kind": "toy_loss:TowardAction", "action": 1},
        correctors=_CORRECTORS,
        **_GROUPS | {"trainer": {"epochs": 2}},
    )
    summary = run.run()
    assert summary["updates"] == 300
    assert "policy_loss" not in summary and "entropy" not in summary
    with torch.no_grad():
        logits, values = network_of(run)(_STATES)
    assert float(torch.softmax(logits, 1)[:, 1].min()) > 0.9
    assert float((values - 3.0).abs().mean()) < 0.3
    assert summary["distance_to_target"] < 0.3
    assert summary["surprise"] < 0.1
    moved = [line["moved"] for line in run.lines() if "moved" in line]
    assert max(moved) > 0.0  # the second pass has other weights than the targets
    # pushed to one side only, the pole falls after 8 to 11 steps
    assert 8.0 <= summary["return_mean_100"] < 14.0
