"""What `auto` stands for in a run: `policy.architecture` and `trainer.amp`."""

from __future__ import annotations

from collections.abc import Iterator

from aclearn.config import Config, config_from_yaml
from aclearn.policies import choose_architecture, halves_pay
from aclearn.policies.choice import Choice
from aclearn.runs import RunFolder
from aclearn.types import AUTO, EnvSpec

#: The keys that a run's config.yaml holds resolved, once its environment is known.
AUTOMATIC = ("policy.architecture", "trainer.amp")


def amp_is_open(config: Config, spec: EnvSpec) -> bool:
    """Whether the trainer's device decides on half precision: with large images."""
    return config.trainer.amp == AUTO and halves_pay(spec.observation)


def settled(config: Config, spec: EnvSpec, amp: str | None) -> tuple[Config, list[str]]:
    """The configuration with the values that `auto` stands for, and a sentence on each.

    Args:
        amp: number format of the trainer's device, if `amp_is_open`; None leaves `auto`.
    """
    told = []
    for key, (value, why) in _choices(config, spec, amp):
        config = _with(config, key, value)
        told.append(f"{key}: {value} ({why})")
    return config, told


def settle_folder(folder: RunFolder, config: Config) -> None:
    """Write the values that `config` has in place of `auto` into the folder's config.yaml.

    Raises:
        RunFolderError, ConfigError: it cannot be read or written.
    """
    there = config_from_yaml(folder.read_config_yaml(), source=str(folder.config_path))
    written = there
    for key in AUTOMATIC:
        if _value(there, key) == AUTO:
            written = _with(written, key, _value(config, key))
    if written != there:
        folder.write_config_yaml(written.to_yaml())


def _choices(config: Config, spec: EnvSpec, amp: str | None) -> Iterator[tuple[str, Choice]]:
    if config.policy.architecture == AUTO:
        yield "policy.architecture", choose_architecture(spec.observation, config.env.id)
    if amp_is_open(config, spec):
        if amp is not None:
            yield "trainer.amp", Choice(amp, "what the trainer's device has, for large images")
    elif config.trainer.amp == AUTO:
        yield "trainer.amp", Choice("off", "fp32: half precision pays with large images alone")


def _value(config: Config, key: str) -> str:
    section, _, name = key.partition(".")
    return str(getattr(getattr(config, section), name))


def _with(config: Config, key: str, value: str) -> Config:
    section, _, name = key.partition(".")
    group = getattr(config, section).model_copy(update={name: value})
    return config.model_copy(update={section: group})
