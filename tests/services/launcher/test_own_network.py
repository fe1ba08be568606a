"""Whole runs with a network of a user's own, from a module outside of the repository."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from aclearn.config import load_config
from aclearn.errors import ConfigError
from aclearn.types import OBSERVATION
from services.commands.export import export_run
from services.evaluator.evaluate import evaluate
from services.policy import users_network
from tests.support.cli import aclearn
from tests.support.env_specs import plain_spec
from tests.support.whole_run import WholeRun

_MODULE = """
import torch
from torch import nn
from aclearn.policies import PolicyModule
from aclearn.types import PolicyOutput


class Net(nn.Module):
    def __init__(self, observation, parameters, width=16):
        super().__init__()
        (leaf,) = observation.values()
        self.body = nn.Sequential(nn.Linear(leaf.shape[0], width), nn.ELU())
        self.policy, self.value = nn.Linear(width, parameters), nn.Linear(width, 1)

    def forward(self, x):
        features = self.body(x)
        return self.policy(features), self.value(features)


class Memory(PolicyModule):
    def __init__(self, observation, parameters, width=16):
        super().__init__()
        (leaf,) = observation.values()
        self.cells = nn.LSTM(leaf.shape[0], width)
        self.policy, self.value = nn.Linear(width, parameters), nn.Linear(width, 1)

    def step(self, observations, state=()):
        given = tuple(part.transpose(0, 1).contiguous() for part in state)
        (h,), new = self.cells(observations["observation"][None], given or None)
        state = tuple(part.transpose(0, 1) for part in new)
        return PolicyOutput(self.policy(h), self.value(h), state=state)


class Dropped(Net):
    def forward(self, x):
        return super().forward(nn.functional.dropout(x))


class Grows(Memory):
    def step(self, observations, state=()):
        width = self.cells.hidden_size
        found = super().step(observations, tuple(part[..., :width] for part in state))
        h, c = found.state
        return found._replace(state=(torch.cat([h, h], 2), c) if state else (h, c))


class Ends(Net):
    def __init__(self, observation, parameters):
        import os
        os._exit(3)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the user's module; unique, since modules and descriptions are kept."""
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return name


_ACTING = {
    "onnx": {},
    "torch": {
        "actors": {"processes": 2, "envs_per_group": 2, "unroll_length": 4, "runtime": "torch"}
    },
    "predictor": {
        "actors": {
            "processes": 2,
            "envs_per_group": 2,
            "unroll_length": 4,
            "inference": "predictor",
        },
        "predictor": {"runtime": "torch", "device": "cpu"},
    },
    "artifacts": {
        "compressor": {
            "chain": [{"distill": {"student": "mlp", "memory": False}}, "int8", "onnx"],
            "max_kl": None,
        },
    },
    "exported-artifacts": {"compressor": {"chain": ["fuse", "onnx"]}},
}


@pytest.mark.parametrize("network", ["Net", "Memory"])
@pytest.mark.parametrize("acting", _ACTING)
def test_it_is_trained_whatever_runs_it(start, own: str, acting: str, network: str) -> None:
    policy = {"architecture": f"{own}:{network}", "arguments": {"width": 8}, "hidden": None}
    run = start(policy=policy, run={"max_updates": 20}, **_ACTING[acting])
    run.run()
    assert not run.refused
    assert run.summary()["updates"] == 20
    _module(f"{own}:{network}", _weights(run), width=8)
    assert len(evaluate(run.path, episodes=2).returns) == 2


def test_it_is_resumed_evaluated_and_exported(start, own: str, tmp_path: Path) -> None:
    policy = {"architecture": f"{own}:Net", "hidden": None}
    runs = [start(policy=policy, run={"max_updates": 10})]
    runs[0].run()
    with pytest.raises(ConfigError, match=r"is of another run: policy\.arguments\.width is"):
        wider = policy | {"arguments": {"width": 17}}
        start(policy=wider, run={"max_updates": 20}, resume=True)
    runs.append(start(policy=policy, run={"max_updates": 20}, resume=True))
    runs[1].run()
    assert runs[1].summary()["updates"] == 20
    assert len(evaluate(runs[1].path, episodes=2).returns) == 2
    export_run(runs[1].path, tmp_path / "policy.onnx")
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"))
    with torch.no_grad():
        expected = _module(f"{own}:Net", _weights(runs[1]))(torch.from_numpy(x))[0].numpy()
    np.testing.assert_allclose(session.run(None, {OBSERVATION: x})[0], expected, atol=1e-5)


def test_two_runs_of_one_seed_end_with_the_same_weights(start, own: str, tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        policy = {"architecture": f"{own}:Net", "hidden": None}
        run = start(policy=policy, run={"max_updates": 5, "seed": 3})
        run.run()
        found.append(_weights(run))
        run.path.rename(tmp_path / name)
    assert set(found[0]) == set(found[1])
    for name, tensor in found[0].items():
        np.testing.assert_array_equal(tensor, found[1][name])


@pytest.mark.parametrize(
    ("network", "words"),
    [
        ("Dropped", "parameters: two calls with one input"),
        ("Grows", r"state: expected \[B, 1, 16\] and .* got \[B, 1, 32\] and .* after step 2 "),
    ],
)
def test_a_network_that_cannot_be_trained_is_named_before_the_run(
    own: str, tmp_path: Path, network: str, words: str
) -> None:
    given = [f"policy.architecture={own}:{network}", "policy.hidden=null", "run.name=r"]
    with pytest.raises(ConfigError, match=f"^policy.architecture '{own}:{network}': .*{words}"):
        aclearn("train", "cartpole", *given, f"run.dir={tmp_path}/runs")
    assert not (tmp_path / "runs").exists()


_SPEC = plain_spec((4,), "float32", 2)


def _configured(network: str, **arguments: object):
    overrides = [f"policy.architecture={network}", "policy.hidden=null"]
    return load_config(
        "cartpole", [*overrides, *(f"policy.arguments.{k}={v}" for k, v in arguments.items())]
    )


def test_a_class_that_is_missing_raises_or_ends_the_process_is_named(own: str, monkeypatch) -> None:
    for network, arguments, words in (
        ("Nte", {}, "has no Nte; did you mean Net"),
        ("Net", {"wdith": 3}, r"unexpected keyword argument 'wdith'"),
    ):
        with pytest.raises(ConfigError, match=rf"^policy.architecture '.*:{network}': .*{words}"):
            users_network.users_module(_configured(f"{own}:{network}", **arguments), _SPEC)
    # as in a process without torch, which asks another one
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(ConfigError, match=r":Ends': its process ended \(.*3\)"):
        users_network.users_module(_configured(f"{own}:Ends"), _SPEC)


def test_roles_get_its_description_from_the_command_that_starts_them(
    own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _configured(f"{own}:Net")
    for name, value in users_network.network_variable(config, _SPEC).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(users_network, "_known", {})
    monkeypatch.delitem(sys.modules, "torch")  # as in a role that never loads it
    assert not users_network.unknown_network(config, _SPEC)
    assert users_network.users_module(config, _SPEC).name == f"{own}:Net"
    # the variable is of another network
    assert users_network.unknown_network(_configured(f"{own}:Net", width=5), _SPEC)


def _weights(run: WholeRun) -> dict[str, np.ndarray]:
    """The newest checkpoint's weights."""
    tensors = run.checkpoint().tensors
    return {n.removeprefix("weights/"): t for n, t in tensors.items() if n.startswith("weights/")}


def _module(network: str, weights: dict[str, np.ndarray], **arguments: int) -> torch.nn.Module:
    """The user's module with these weights, which must be exactly its own."""
    own, _, name = network.partition(":")
    module = getattr(sys.modules[own], name)(_SPEC.observation, 2, **arguments)
    named = {name.removeprefix("network."): torch.tensor(t) for name, t in weights.items()}
    module.load_state_dict(named)
    return module
