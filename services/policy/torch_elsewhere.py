"""Questions about torch, answered by another process: one for all that a run needs.

Torch takes seconds and 200 MB to load, and the user's modules may do anything, so a command that
only starts roles never loads them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from aclearn.config import Config, config_from_yaml
from aclearn.errors import AclearnError, ConfigError
from aclearn.extensions import search_modules_in
from aclearn.launch import StopFlag
from aclearn.types import ObservationSpec
from services.role import isolated
from services.role.torch_checks import amp_here, check_learning, check_predictor_device

#: Seconds for loading torch and the user's modules, and for finding the GPUs.
_WITHIN_S = 120.0


@dataclass(frozen=True)
class Questions:
    """What is asked.

    Attributes:
        network: a network of the user's own, as `users_network` describes its request; empty for
            none.
        learning: whether the trainer and the predictors can compute here.
        amp: what `trainer.amp: auto` stands for with large images.
    """

    network: str = ""
    learning: bool = False
    amp: bool = False


def ask_torch(
    config: Config,
    questions: Questions,
    *,
    stop: StopFlag | None = None,
    call: isolated.Call = isolated.call,
) -> dict[str, Any]:
    """The answers: `module` and `warnings` of the network, `amp`.

    A slow driver gives none about learning and amp: the roles have more time. There are none either
    if `stop` was set meanwhile.

    Raises:
        ConfigError: learning is impossible here, or the network cannot be made; names the key.
    """
    if questions == Questions():
        return {}
    answer = call(
        "services.policy.torch_elsewhere:say_answers",
        {"yaml": config.to_yaml(), **asdict(questions)},
        within_s=_WITHIN_S,
        stop=stop,
    )
    if "refusal" in answer.said:
        raise ConfigError(answer.said["refusal"])
    if questions.network and "module" not in answer.said and not stop:
        where = f"policy.architecture {config.policy.architecture!r}"
        if answer.late:
            raise ConfigError(f"{where}: the network was not made within {_WITHIN_S:g} s")
        raise ConfigError(f"{where}: {answer.ended()}")
    return answer.said


def say_answers(say: isolated.Say, yaml: str, network: str, learning: bool, amp: bool) -> None:
    """Answer the questions, the network's first; says a refusal in place of what is impossible."""
    config = config_from_yaml(yaml)
    search_modules_in(config.run.pythonpath)
    try:
        if network:
            say(**describe(network))
        if learning:
            check_learning(config)
            check_predictor_device(config)
        if amp:
            say(amp=amp_here(config))
    except AclearnError as error:
        say(refusal=str(error))


def describe(network: str) -> dict[str, Any]:
    """The description of the network and its warnings, as JSON can hold them. Loads torch.

    Raises:
        ConfigError: it cannot be made or breaks the contract of `check_policy`; one line.
    """
    from aclearn.policies.users_description import describe_module

    asked = json.loads(network)
    search_modules_in(asked.pop("pythonpath"))
    observation = ObservationSpec.from_dict(asked.pop("observation"))
    module, warnings = describe_module(**asked, observation=observation)
    return {"module": module.to_dict(), "warnings": warnings}
