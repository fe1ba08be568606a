"""`auto` in a configuration, and what stands in its place in the run's folder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aclearn.config import Config, config_from_yaml, load_config
from aclearn.policies.devices import choose_amp
from aclearn.runs import RunFolder
from aclearn.types import ActionSpec, EnvSpec, ObservationSpec
from services.policy.factory import architecture_of
from services.role.automatic import settle_folder, settled
from services.role.torch_checks import amp_here
from services.start.folder import check_same_run, differences
from tests.support.cli import aclearn
from tests.support.whole_run import WholeRun

_FLAT = EnvSpec(ObservationSpec.plain((4,), "float32"), ActionSpec.discrete(2))
_LARGE = EnvSpec(ObservationSpec.plain((3, 84, 84), "uint8"), ActionSpec.discrete(2))
_CPU = torch.device("cpu")


def _config(text: str = "") -> Config:
    return config_from_yaml(f"env: {{id: 'm:e'}}\n{text}")


def _as_this_cpu_has(config: Config) -> str:
    return "off" if choose_amp("auto", _CPU) is None else "bf16"


@pytest.mark.parametrize(
    ("spec", "architecture", "amp"),
    [(_FLAT, "mlp", lambda _: "off"), (_LARGE, "nature", _as_this_cpu_has)],
)
def test_auto_is_settled_by_spaces_and_device_and_told(
    spec: EnvSpec, architecture: str, amp: Callable[[Config], str]
) -> None:
    config = _config("trainer: {device: cpu}")

    found, told = settled(config, spec, amp_here(config))

    assert (found.policy.architecture, found.trainer.amp) == (architecture, amp(config))
    assert [text.partition(":")[0] for text in told] == ["policy.architecture", "trainer.amp"]
    assert architecture_of(config, spec).digest() == architecture_of(found, spec).digest()
    assert settled(found, spec, None) == (found, [])


def test_small_networks_compute_in_fp32_whatever_the_processor_has(monkeypatch) -> None:
    monkeypatch.setattr("aclearn.policies.devices.cpu_has", lambda half: True)
    assert choose_amp("auto", _CPU, pays=True) is torch.bfloat16
    assert choose_amp("auto", _CPU, pays=False) is None
    assert choose_amp("bf16", _CPU, pays=False) is torch.bfloat16


def test_a_role_by_hand_settles_the_folder_of_a_role_that_knows_no_environment(
    tmp_path: Path,
) -> None:
    config = _config("run: {name: r}\noptimiser: {learning_rate: 0.5}")
    here, _ = settled(_config("run: {name: r}"), _FLAT, None)
    with contextlib.closing(RunFolder.create(tmp_path, "r", config.to_yaml())) as folder:
        assert check_same_run(here, folder) == ["optimiser.learning_rate"]

        settle_folder(folder, here)

        there = load_config(folder.config_path)
    assert (there.policy.architecture, there.trainer.amp) == ("mlp", "off")
    assert there.optimiser.learning_rate == 0.5  # its own
    assert not differences(there, config)
    other = differences(there, _config("policy: {architecture: nature}\ntrainer: {amp: bf16}"))
    assert {key for key, _, _ in other} >= {"policy.architecture", "trainer.amp"}


def test_an_environment_alone_trains_and_its_file_says_what_auto_was(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bare.yaml").write_text("env: {id: CartPole-v1}\n")

    said = aclearn("train", "bare.yaml", "run.deterministic=true", "run.max_updates=2")

    assert "policy.architecture: mlp (no images: hidden layers alone)" in said
    assert "trainer.amp: off (fp32" in said
    config = load_config("runs/bare-1/config.yaml")
    assert (config.policy.architecture, config.trainer.amp) == ("mlp", "off")
    again = aclearn(
        *("train", "bare.yaml", "--resume", "run.deterministic=true", "run.max_updates=4")
    )
    assert "architecture" not in again and "amp" not in again


def test_the_trainer_settles_a_folder_that_others_made(tmp_path: Path) -> None:
    run = WholeRun(tmp_path, policy={"architecture": "auto"})
    try:
        config = load_config(tmp_path / "r/config.yaml")
    finally:
        run.close()

    assert (config.policy.architecture, config.trainer.amp) == ("mlp", "off")
