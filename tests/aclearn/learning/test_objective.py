"""The configured loss and corrector chain, and invalid ones."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest
from pydantic import Field

from aclearn.algorithms import Loss, LossSums, TargetNetworkConfig
from aclearn.config import LossConfig, config_from_yaml
from aclearn.errors import ConfigError
from aclearn.learning import make_objective
from aclearn.learning.surrogate import Objective
from correctors import ImportanceSampling, VTrace


class OwnConfig(LossConfig):
    clip: float = Field(default=0.2, gt=0.0, description="how far the ratio may move")


class OwnLoss(Loss):
    config_model = OwnConfig

    def __call__(self, batch, outputs, correction, config) -> LossSums:
        raise NotImplementedError


class NeedsReturns(OwnLoss):
    needs = frozenset({"targets", "returns"})


class NeedsParameters(OwnLoss):
    needs = frozenset({"advantages", "behaviour_parameters"})


class NotWhole(Loss):
    pass


@dataclass(frozen=True)
class OwnCorrector:
    factor: float = 1.0
    needs = frozenset({"rewards"})

    def correct(self, batch, correction):
        return correction


@dataclass(frozen=True)
class CorrectsByParameters(OwnCorrector):
    needs = frozenset({"behaviour_parameters"})


@dataclass(frozen=True)
class NeedsActionValues(OwnCorrector):
    needs = frozenset({"rewards", "action_values"})


class ThawedConfig(OwnConfig, TargetNetworkConfig):
    """A target network, whose targets are frozen."""


class Thawed(OwnLoss):
    config_model = ThawedConfig
    recomputes_targets = True


def objective_of(text: str) -> Objective:
    config = config_from_yaml(f"env: {{id: a}}\n{text.replace('HERE', __name__)}")
    recorded = config.actors.behaviour_parameters
    return make_objective(config.loss, config.correctors, behaviour_parameters=recorded)


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, sys.modules[OwnLoss.__module__])


def test_the_chain_has_the_correctors_in_order_with_their_arguments() -> None:
    objective = objective_of(
        "correctors: [{importance_sampling: {rho_bar: 2}}, {'HERE:OwnCorrector': {factor: 3}},"
        " {vtrace: {rho_bar: .inf, c_bar: 0.5, lambda: 0.9}}, 'HERE:OwnCorrector']"
    )
    assert objective.chain.correctors == (
        ImportanceSampling(rho_bar=2.0),
        OwnCorrector(factor=3),
        VTrace(rho_bar=None, c_bar=0.5, lambda_=0.9),
        OwnCorrector(),
    )


def test_a_loss_of_ones_own_gets_the_keys_of_its_own_model() -> None:
    objective = objective_of("loss: {kind: 'HERE:OwnLoss', clip: 0.1, discount: 0.5}")
    assert isinstance(objective.algorithm, OwnLoss)
    assert objective.config == OwnConfig(kind=f"{__name__}:OwnLoss", clip=0.1, discount=0.5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "loss: {kind: 'HERE:OwnConfig'}",
            r"an instance of aclearn\.algorithms\.algorithm\.Algorithm, got OwnConfig",
        ),
        (
            "loss: {kind: 'HERE:pytest'}",
            "'HERE:pytest': TypeError: 'module' object is not callable",
        ),
        (
            "loss: {kind: 'HERE:OwnLoss', clp: 1}",
            r"^loss\.clp is not a known key; did you mean loss\.clip\? The keys of loss are kind, ",
        ),
        (
            "loss: {kind: 'HERE:OwnLoss', clip: -1}",
            r"^loss\.clip: expected number > 0, got -1 .*; meaning: how far the ratio may move",
        ),
        (
            "loss: {kind: 'HERE:NeedsReturns'}",
            "'HERE:NeedsReturns': needs returns, which do not exist; expected needs among"
            " advantages, behaviour_parameters, targets, weights",
        ),
        (
            "loss: {kind: 'HERE:Thawed'}",
            "'HERE:Thawed': its configuration has a target network, .* recomputes_targets = False",
        ),
        (
            "loss: {kind: 'HERE:NotWhole'}",
            "'HERE:NotWhole': TypeError: .*abstract.*; it takes none$",
        ),
        (
            "correctors: [vtrace, {'HERE:OwnCorrector': {facto: 2}}]",
            r"^correctors\[1\] 'HERE:OwnCorrector': TypeError: .*'facto'.*; it takes factor$",
        ),
        (
            "correctors: ['HERE:OwnConfig']",
            r"'HERE:OwnConfig': expected an instance of correctors\.chain\.Corr",
        ),
        (
            "loss: {kind: 'HERE:NeedsParameters'}",
            "^loss.kind: needs behaviour_parameters, which only actors' unrolls can carry; set "
            "actors.behaviour_parameters: true$",
        ),
        (
            "correctors: [vtrace, 'HERE:CorrectsByParameters']",
            r"^correctors\[1\] 'HERE:CorrectsByParameters': needs behaviour_parameters, which "
            "only actors' unrolls can carry; set ",
        ),
        (
            "correctors: ['HERE:NeedsActionValues']",
            r"'HERE:NeedsActionValues': .*: expected needs among .*'log_rhos'.* got "
            r"\['action_values'\]",
        ),
    ],
)
def test_what_cannot_work_is_refused_by_its_key(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("HERE", __name__.replace(".", r"\."))):
        objective_of(text)


def test_behaviour_parameters_are_there_for_who_needs_them_where_unrolls_carry_them() -> None:
    objective = objective_of(
        "actors: {behaviour_parameters: true}\nloss: {kind: 'HERE:NeedsParameters'}\n"
        "correctors: [vtrace, 'HERE:CorrectsByParameters']"
    )
    assert isinstance(objective.algorithm, NeedsParameters)
    assert objective.chain.correctors == (VTrace(), CorrectsByParameters())


def test_probabilities_of_numbers_are_refused() -> None:
    config = config_from_yaml("env: {id: a}\ncorrectors: [vtrace, tv_mask]")
    make_objective(config.loss, config.correctors)
    with pytest.raises(ConfigError, match=r"^correctors\[1\] 'tv_mask': needs behaviour_probs, "):
        make_objective(config.loss, config.correctors, probabilities=False)
