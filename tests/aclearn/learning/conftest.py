"""Small architectures and batches with resets, failures and every kind of end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from aclearn.algorithms.actor_critic import ActorCritic, ActorCriticConfig
from aclearn.config import CorrectorConfig, LossConfig, OptimiserConfig
from aclearn.learning import (
    Batch,
    GradientWorker,
    Learner,
    UpdateReport,
    make_objective,
)
from aclearn.learning.surrogate import Objective
from aclearn.learning.vectors import parts_of
from aclearn.policies import Architecture, Convolution, ResidualSection, build_architecture
from aclearn.types import OBSERVATION, Memory, ObservationSpec
from tests.support.architectures import altered

CPU = torch.device("cpu")
IMAGES = build_architecture(
    "tiny",
    ObservationSpec.plain((2, 6, 5), "uint8"),
    3,
    (Convolution(4, 3, 2), Convolution(5, 2, 1)),
    (6,),
)
RESIDUAL = altered(
    IMAGES,
    name="residual",
    convolutions=(),
    sections=(ResidualSection(4, (4, 3)), ResidualSection(3, (3,))),
)
FLAT = build_architecture(
    "flat", ObservationSpec.plain((3,), "float32"), 4, (), (5,), "tanh", separate_value=True
)
REMEMBERING = altered(FLAT, name="remembering", memory=Memory("lstm", 4, 2))
LOSS = ActorCriticConfig(discount=0.9, entropy_cost=0.05, value_cost=0.6)
#: Of `correctors.vtrace`.
BARS = {"rho_bar": 1.2, "c_bar": 0.8, "pg_rho_bar": 1.5, "lambda_": 0.7}
UNCLIPPED = OptimiserConfig(max_grad_norm=0.0)


class Frozen(ActorCritic):
    """The actor-critic's loss with targets that all updates of a batch share."""

    recomputes_targets = False


class Make:
    """Parts of the learner's tests."""

    images, residual, flat, Frozen = IMAGES, RESIDUAL, FLAT, Frozen
    remembering = REMEMBERING
    loss, bars, unclipped, cpu = LOSS, BARS, UNCLIPPED, CPU

    @staticmethod
    def objective(loss: LossConfig = LOSS, bars: dict = BARS) -> Objective:
        """The loss behind V-trace and importance sampling."""
        ours = {"rho_bar": bars["rho_bar"], "c_bar": bars["c_bar"], "lambda": bars["lambda_"]}
        given = [{"vtrace": ours}, {"importance_sampling": {"rho_bar": bars["pg_rho_bar"]}}]
        return make_objective(loss, [CorrectorConfig.model_validate(each) for each in given])

    @staticmethod
    def batch(architecture: Architecture, T: int, B: int, seed: int) -> Batch:
        """Random data with terminated, truncated, reset and masked steps in random places."""
        rng = np.random.default_rng(seed)
        shape = (T + 1, B, *architecture.observation["observation"].shape)
        if architecture.observation["observation"].dtype == "uint8":
            observations = rng.integers(0, 256, shape, np.uint8)
        else:
            observations = rng.normal(size=shape).astype(np.float32)
        ends = rng.random((T, B))
        terminated, truncated = ends < 0.12, (ends >= 0.12) & (ends < 0.24)
        valid = np.ones((T, B), np.bool_)
        valid[1:][(terminated | truncated)[:-1]] = False  # the autoreset step
        valid[:, 0] &= np.arange(T) > 1  # as after a failed episode
        return Batch(
            observations={OBSERVATION: torch.from_numpy(observations)},
            actions=torch.from_numpy(rng.integers(0, architecture.parameter_count, (T, B))),
            behaviour_log_prob=torch.from_numpy(rng.uniform(-2.5, -0.3, (T, B)).astype(np.float32)),
            rewards=torch.from_numpy(rng.normal(size=(T, B)).astype(np.float32)),
            terminated=torch.from_numpy(terminated),
            truncated=torch.from_numpy(truncated),
            valid=torch.from_numpy(valid),
            versions=np.zeros((T, B), np.int64),
            state=tuple(
                torch.from_numpy(rng.normal(size=(B, units)).astype(np.float32))
                for units in architecture.state
            ),
        )

    @staticmethod
    def learner(architecture: Architecture, *, kind: type[Learner] = Learner, **options) -> Learner:
        """In fp32 on the CPU, with weights large enough that no policy is uniform."""
        options = {
            "objective": Make.objective(),
            "optimiser": UNCLIPPED,
            "device": CPU,
            "channels_last": True,
            "seed": 4,
            **options,
        }
        learner = Learner(architecture, **options)
        with torch.no_grad():
            learner.network.policy.weight.mul_(60)
        return learner

    @staticmethod
    def outputs(learner: Learner, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """log π of every action `[T, B, A]` and V `[T+1, B]` by the weights, one row at a time."""
        with torch.no_grad():
            rows = [learner.network(row) for row in batch.observations[OBSERVATION]]
        logits, values = (torch.stack(each) for each in zip(*rows, strict=True))
        return logits[:-1].log_softmax(-1), values

    @classmethod
    def taken(cls, learner: Learner, batch: Batch) -> torch.Tensor:
        """log π of the actions taken `[T, B]`."""
        return cls.outputs(learner, batch)[0].gather(-1, batch.actions[..., None])[..., 0]

    @staticmethod
    def update(
        learner: Learner, batch: Batch, worker: GradientWorker | None = None
    ) -> UpdateReport:
        """One update by a batch, as it is prepared."""
        worker, steps = worker or learner.own_worker, batch.new_steps
        sums = learner.differentiate(batch, worker)
        with learner.lock:
            figures, _ = learner.apply(worker, sums, steps, steps)
        return UpdateReport.of(figures.names, figures.values.tolist(), figures.own.tolist())

    @staticmethod
    def gradients(learner: Learner) -> dict[str, torch.Tensor]:
        """Those of the last update by name; all weights are in one group."""
        [[vector]] = [group["params"] for group in learner.state.optimiser.param_groups]
        named = dict(learner.network.named_parameters())
        learned = {name: weight for name, weight in named.items() if weight.requires_grad}
        parts = parts_of(vector.grad, list(learned.values()))
        return dict(zip(learned, parts, strict=True))

    @classmethod
    def gradient(cls, learner: Learner) -> torch.Tensor:
        """All gradients of the last update, as one vector."""
        return torch.cat([each.reshape(-1) for each in cls.gradients(learner).values()])

    @classmethod
    def gradient_of(cls, batch: Batch, architecture: Architecture, **options) -> torch.Tensor:
        """The gradient of a fresh learner's first update."""
        learner = cls.learner(architecture, **options)
        cls.update(learner, batch)
        return cls.gradient(learner)

    replace = staticmethod(replace)


@pytest.fixture(scope="session")
def make() -> Make:
    """Batches, learners and their gradients."""
    return Make()
