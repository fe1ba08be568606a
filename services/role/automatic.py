"""What `auto` stands for in a run: `policy.architecture` and `trainer.amp`."""

from __future__ import annotations

from aclearn.config import Config, config_from_yaml
from aclearn.policies import choose_architecture, halves_pay
from aclearn.policies.choice import Choice
from aclearn.runs import RunFolder
from aclearn.types import AUTO, EnvSpec

#: The keys that a run's config.yaml holds resolved, once its environment is known.
AUTOMATIC = ("policy.architecture", "trainer.amp")


def is_automatic(key: str) -> bool:
    """Whether a dotted key, of the run or of one of several policies, may be "auto"."""
    of_policy = key.startswith("policies.") and key.endswith(f".{AUTOMATIC[0]}")
    return key in AUTOMATIC or of_policy


def amp_is_open(config: Config, spec: EnvSpec) -> bool:
    """Whether the trainer's device decides on half precision: with large images."""
    specs = spec.by_policy(config.patterns).values()
    return config.trainer.amp == AUTO and any(halves_pay(each.observation) for each in specs)


def settled(config: Config, spec: EnvSpec, amp: str | None) -> tuple[Config, list[str]]:
    """The configuration with the values that `auto` stands for, and a sentence on each.

    Args:
        amp: number format of the trainer's device, if `amp_is_open`; None leaves `auto`.
    """
    told = []
    for policy, its in spec.by_policy(config.patterns).items():
        if config.of_policy(policy).policy.architecture == AUTO:
            name, why = choose_architecture(its.observation, config.env.id)
            config = _with_architecture(config, policy, name)
            where = f"policies.{policy}." if config.policies else ""
            told.append(f"{where}policy.architecture: {name} ({why})")
    if config.trainer.amp == AUTO:
        choice = Choice("off", "fp32: half precision pays with large images alone")
        if amp_is_open(config, spec):
            why = "what the trainer's device has, for large images"
            choice = Choice(AUTO if amp is None else amp, why)
        if choice.value != AUTO:
            config = _with(config, "trainer.amp", choice.value)
            told.append(f"trainer.amp: {choice.value} ({choice.why})")
    return config, told


def settle_folder(folder: RunFolder, config: Config) -> None:
    """Write the values that `config` has in place of `auto` into the folder's config.yaml.

    Raises:
        RunFolderError, ConfigError: it cannot be read or written.
    """
    there = config_from_yaml(folder.read_config_yaml(), source=str(folder.config_path))
    written = there
    for policy in there.policy_names():
        if there.of_policy(policy).policy.architecture == AUTO:
            found = config.of_policy(policy).policy.architecture
            written = _with_architecture(written, policy, found)
    if there.trainer.amp == AUTO:
        written = _with(written, "trainer.amp", config.trainer.amp)
    if written != there:
        folder.write_config_yaml(written.to_yaml())


def _with_architecture(config: Config, policy: str, name: str) -> Config:
    if config.policies:
        return config.with_policy(policy, "policy", architecture=name)
    return _with(config, "policy.architecture", name)


def _with(config: Config, key: str, value: str) -> Config:
    section, _, name = key.partition(".")
    group = getattr(config, section).model_copy(update={name: value})
    return config.model_copy(update={section: group})
