"""The objective of a run: its loss and its corrector chain, from the configuration."""

from __future__ import annotations

from collections.abc import Sequence

from aclearn.algorithms import ALGORITHMS, Algorithm, Loss, TargetNetworkConfig
from aclearn.config import CorrectorConfig, LossConfig, validated
from aclearn.errors import ConfigError
from aclearn.extensions import make_extension
from aclearn.learning.surrogate import Objective, Surrogate
from correctors import Corrector, CorrectorChain

#: Results of every chain.
_MADE = frozenset({"targets", "advantages", "weights"})
_PARAMETERS = "behaviour_parameters"
#: Inputs of a correction that need these parameters.
_FROM_PARAMETERS = {_PARAMETERS, "kl"}
#: Fields of a correction's input that only a Q critic gives.
_FROM_ACTION_VALUES = {"actions", "q_next", "next_target_probs"}


def make_objective(
    loss: LossConfig,
    correctors: Sequence[CorrectorConfig],
    *,
    behaviour_parameters: bool = False,
    critic: str = "v",
    probabilities: bool = True,
) -> Objective:
    """The loss and the corrector chain of a configuration. Imports the user's modules.

    Args:
        behaviour_parameters: whether unrolls have them (`actors.behaviour_parameters`).
        probabilities: whether actions have any; numbers have densities.

    Raises:
        ConfigError: one of them cannot be found, made or used; names the key.
    """
    chain = CorrectorChain()
    for index, corrector in enumerate(correctors):
        chain = _with_corrector(chain, corrector, f"correctors[{index}]")
    algorithm, config = _make_algorithm(loss)
    needs = {"loss.kind": algorithm.needs}
    for index, made in enumerate(chain.correctors):
        needs[f"correctors[{index}] {correctors[index].name!r}"] = made.needs
    for where, names in needs.items():
        if names & _FROM_PARAMETERS and not behaviour_parameters:
            raise ConfigError(
                f"{where}: needs {_PARAMETERS}, which only actors' unrolls can carry; set "
                f"actors.{_PARAMETERS}: true"
            )
        if "behaviour_probs" in names and not probabilities:
            raise ConfigError(
                f"{where}: needs behaviour_probs, probabilities of actions; those of this "
                "environment are numbers, which have densities; remove it, or take ratio_mask"
            )
        if critic != "q" and (missing := names & _FROM_ACTION_VALUES):
            raise ConfigError(
                f"{where}: needs {', '.join(sorted(missing))}, which only a Q head gives; set "
                "policy.critic: q"
            )
    if isinstance(algorithm, Loss):
        return Surrogate(algorithm, config, chain)
    return Objective(algorithm, config)


def _make_algorithm(config: LossConfig) -> tuple[Algorithm, LossConfig]:
    kind = config.kind
    made: Algorithm = make_extension(kind, {}, key="loss.kind", expected=Algorithm, ours=ALGORITHMS)
    possible = _MADE | {_PARAMETERS}
    if missing := made.needs - possible:
        raise ConfigError(
            f"loss.kind {kind!r}: needs {', '.join(sorted(missing))}, which do not exist; expected "
            f"needs among {', '.join(sorted(possible))}"
        )
    if not isinstance(config, made.config_model):
        config = validated(made.config_model, config.model_dump(by_alias=True), "loss")
    is_loss = isinstance(made, Loss)
    if is_loss and isinstance(config, TargetNetworkConfig) and made.recomputes_targets:
        raise ConfigError(
            f"loss.kind {kind!r}: its configuration has a target network, whose targets are "
            "frozen; set recomputes_targets = False in the loss"
        )
    return made, config


def _with_corrector(chain: CorrectorChain, config: CorrectorConfig, key: str) -> CorrectorChain:
    arguments = config.arguments.model_dump()
    made: Corrector = make_extension(
        config.name,
        arguments,
        key=key,
        expected=Corrector,  # type: ignore[type-abstract]
        ours={config.name: config.address},
    )
    try:
        return chain.add(made)
    except ValueError as error:
        raise ConfigError(f"{key} {config.name!r}: {error}") from error
