"""From the configuration to an architecture and a runtime."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.config import Config, EnvConfig, PolicyConfig
from aclearn.envs import EnvSpec
from aclearn.errors import ConfigError
from aclearn.policies import describe_architecture
from compress import OnnxPolicy
from compress.torch_runtime import TorchPolicy
from services.policies import architecture_of, make_runtime

_IMAGES = EnvSpec((4, 84, 84), "uint8", 6, 4)


def _config(**policy: object) -> Config:
    return Config(env=EnvConfig(id="CartPole-v1"), policy=PolicyConfig(**policy))


def test_the_architecture_is_the_preset_for_the_environment() -> None:
    expected = describe_architecture(
        "accerl-net3", observation_shape=(4, 84, 84), observation_dtype="uint8", actions=6
    )
    assert architecture_of(_config(architecture="accerl-net3"), _IMAGES) == expected


def test_hidden_widths_of_the_configuration_are_used() -> None:
    assert architecture_of(_config(architecture="nature", hidden=(32,)), _IMAGES).hidden == (32,)


def test_without_a_spec_the_environment_is_asked() -> None:
    architecture = architecture_of(_config(architecture="mlp"))
    assert architecture.observation_shape == (4,)
    assert (architecture.observation_dtype, architecture.actions) == ("float32", 2)


def test_a_preset_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs images"):
        architecture_of(_config(architecture="nature"), EnvSpec((4,), "float32", 2, 1))


@pytest.mark.parametrize(
    ("kind", "runtime"),
    [("onnx", OnnxPolicy), ("torch", TorchPolicy), ("torch-amp", TorchPolicy)],
)
def test_all_runtimes_answer_alike(tools, kind, runtime) -> None:
    made = make_runtime(tools.images, kind)
    assert isinstance(made, runtime)
    rng = np.random.default_rng(3)
    shapes = tools.images.tensor_shapes().items()
    made.swap({name: 0.3 * rng.normal(size=shape).astype(np.float32) for name, shape in shapes})
    other = OnnxPolicy(tools.images)
    rng = np.random.default_rng(3)
    other.swap({name: 0.3 * rng.normal(size=shape).astype(np.float32) for name, shape in shapes})
    observations = rng.integers(0, 256, (3, 2, 8, 8), np.uint8)
    # torch-amp computes in bf16 where the processor has it
    atol = 0.05 if kind == "torch-amp" else 1e-5
    np.testing.assert_allclose(made.logits(observations), other.logits(observations), atol=atol)
