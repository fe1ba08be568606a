"""Runs that normalise observations and returns: all roles use the statistics of one version."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aclearn.distributions import distribution_of
from aclearn.learning import Batch, GradientWorker, PublishedWeights
from aclearn.policies.network import PolicyNetwork, load_tensors
from aclearn.types import PolicyVersion, Unroll
from aclearn.wire import decode
from compress.methods.quantizer import Quantizer
from services.evaluator.saved_policy import load_policy
from services.trainer.trainer import Trainer
from tests.support.whole_run import WholeRun

_INT8 = {"chain": ["int8", "onnx"], "every_s": 0.0625, "max_kl": None}
_GROUPS: dict[str, dict[str, Any]] = {
    "env": {"id": "tests.support.space_envs:Scales"},
    "policy": {"hidden": [16], "normalise_observations": True},
    "loss": {"normalise_returns": True, "entropy_cost": 0.0},
    "optimiser": {"learning_rate": 0.02},
}


class Account(WholeRun):
    """A run that keeps what actors did and what was published and learned."""

    unrolls: list[Unroll]

    def _observe(self, sender: str, receiver: str, frames: list[bytes]) -> None:
        super()._observe(sender, receiver, frames)
        message = decode(frames).message
        if isinstance(message, Unroll):
            self.unrolls.append(message)


def _parameters(x: np.ndarray, tensors: Any) -> np.ndarray:
    x = np.clip((x - tensors["input.mean"].astype(np.float64)) / tensors["input.std"], -10, 10)
    x = np.tanh(x @ tensors["hidden.0.weight"].T + tensors["hidden.0.bias"])
    return x @ tensors["policy.weight"].T + tensors["policy.bias"]


@pytest.mark.parametrize("inference", ["local", "predictor", "int8"])
def test_every_step_was_acted_with_the_statistics_of_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inference: str
) -> None:
    published: dict[PolicyVersion, dict[str, np.ndarray]] = {}
    learned: list[np.ndarray] = []
    publish, learn = PublishedWeights.publish, Trainer.learn
    differentiate = GradientWorker.differentiate

    def keep(store: PublishedWeights, at: PolicyVersion, tensors: Any) -> None:
        published[at] = {name: tensor.detach().numpy().copy() for name, tensor in tensors.items()}
        publish(store, at, tensors)

    def take(trainer: Trainer, batch: Batch, worker: GradientWorker) -> None:
        learned.append(batch.observations["observation"][:-1][batch.valid].numpy().copy())
        learn(trainer, batch, worker)
        # the policy that the next batch starts from is the published one, statistics included
        newest = published[max(published)]
        for name, tensor in trainer.learner.tensors().items():
            np.testing.assert_array_equal(tensor, newest[name], err_msg=name)
        seen = np.concatenate(learned).astype(np.float64)
        np.testing.assert_allclose(newest["input.mean"], seen.mean(0), rtol=1e-6, atol=1e-9)
        std = np.maximum(seen.std(0), 2.0**-20 * np.abs(seen.mean(0)))
        np.testing.assert_allclose(newest["input.std"], std, rtol=1e-6)

    def differentiate_published(worker: GradientWorker, batch: Any, steps: Any) -> Any:
        # no batch changes the policy that it is compared with
        mean = worker.networks.network.get_parameter("input.mean").numpy()
        np.testing.assert_array_equal(mean, published[max(published)]["input.mean"])
        return differentiate(worker, batch, steps)

    monkeypatch.setattr(GradientWorker, "differentiate", differentiate_published)
    monkeypatch.setattr(PublishedWeights, "publish", keep)
    monkeypatch.setattr(Trainer, "learn", take)
    asks = {"inference": "predictor"} if inference == "predictor" else {}
    monkeypatch.setattr(Account, "unrolls", [], raising=False)
    run = Account(
        tmp_path,
        run={"max_updates": 20},
        actors={"behaviour_parameters": True, "unroll_length": 8} | asks,
        **_GROUPS | ({"compressor": _INT8} if inference == "int8" else {}),
    )
    with closing(run):
        run.run()
    saved = load_policy(run.path)
    distribution = distribution_of(saved.architecture.action_spec)
    distances, versions, chains = [], set(), set()
    for unroll in run.unrolls:
        chains |= set(unroll.chains)
        for t, version in enumerate(unroll.versions):
            tensors = published[PolicyVersion(unroll.generation, int(version))]
            by_hand = _parameters(unroll.observations["observation"][t], tensors)
            recorded = unroll.behaviour_parameters[t]
            distances.append(distribution.kl(by_hand, recorded).max())
            versions.add(int(version))
    assert len(versions) > 5 and (inference != "int8" or f"{Quantizer().id}>onnx" in chains)
    assert max(distances) < (0.1 if inference == "int8" else 1e-5)

    # the checkpoint, which `evaluate` and `export` read, has the last version
    newest = published[max(published)]
    assert saved.at == max(published) and newest.keys() == saved.tensors.keys()
    for name, tensor in saved.tensors.items():
        np.testing.assert_array_equal(tensor, newest[name], err_msg=name)
    network = PolicyNetwork(saved.architecture)
    load_tensors(network, saved.tensors)
    x = np.concatenate(learned)[:50]
    output = network.step({"observation": torch.from_numpy(x)})
    np.testing.assert_allclose(
        output.parameters.detach().numpy(), _parameters(x, newest), rtol=1e-4, atol=1e-4
    )
    assert np.isfinite(output.value.detach().numpy()).all()


@pytest.mark.parametrize("normalised", [True, False])
def test_observations_of_different_sizes_are_learned_with_normalisation_only(
    tmp_path: Path, normalised: bool
) -> None:
    run = WholeRun(
        tmp_path,
        run={"max_updates": 60, "target_return": 0.9 * 16},
        actors={"processes": 1, "envs_per_group": 8, "unroll_length": 8},
        **_GROUPS
        | {"policy": {"hidden": [32], "normalise_observations": normalised}}
        | {"loss": {"entropy_cost": 0.0}},
    )
    run.run()
    assert (run.summary()["reached_target_at_s"] is not None) == normalised
