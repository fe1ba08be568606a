"""Torch modules of the user's own: made, called, and described as a `ModuleSpec`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from aclearn.errors import kind_of
from aclearn.extensions import make_extension
from aclearn.policies.module_spec import ModuleSpec
from aclearn.types import ObservationSpec, PolicyOutput

KEY = "policy.architecture"


class UsersNetwork:
    """A module of the user's own as the computation of one layer.

    Its result has the distribution's parameters and after them the critic's numbers.

    Attributes:
        module: made by the user's constructor on the CPU, with initial weights.
    """

    def __init__(self, spec: ModuleSpec) -> None:
        given = (spec.observation, spec.parameters)
        with torch.device("cpu"):
            self.module = make_extension(
                spec.name, spec.keywords, key=KEY, expected=nn.Module, given=given
            )
        self._leaves, self._critic, self._values = (*spec.observation,), spec.critic, spec.values

    def __call__(self, *leaves: Tensor) -> Tensor:
        """Numbers `[N, P + 1]` or `[N, P + A]` of float leaves `[N, *shape]`."""
        named = dict(zip(self._leaves, leaves, strict=True))
        output = output_of(self.module, named, critic=self._critic)
        critic = cast(Tensor, output.q if self._critic == "q" else output.value)
        return torch.cat([output.parameters, critic.reshape(-1, self._values)], 1)


def output_of(
    module: nn.Module, observations: Mapping[str, Tensor], *, critic: str
) -> PolicyOutput[Tensor]:
    """The module's `step`, or else its `forward` of the sole leaf or the mapping of leaves.

    Args:
        observations: leaf → float `[N, *shape]`.
        critic: "v" or "q", the meaning of the second result of `forward`.

    Raises:
        TypeError: the result is neither a PolicyOutput nor two tensors.
    """
    if (step := getattr(module, "step", None)) is not None:
        output = step(observations, ())
    else:
        output = module(
            observations if len(observations) > 1 else next(iter(observations.values()))
        )
    if isinstance(output, PolicyOutput):
        return output
    if not isinstance(output, tuple) or len(output) != 2:
        raise TypeError(
            "expected a PolicyOutput, or the parameters and the "
            f"{'value' if critic == 'v' else 'q'}, got {_words(output)}"
        )
    return PolicyOutput(output[0], **{"value" if critic == "v" else "q": output[1]})


def _words(output: Any) -> str:
    if isinstance(output, tuple | list):
        return f"{kind_of(output)} of {len(output)}"
    return kind_of(output)


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Torch's global random numbers start from `seed` in this block, and are left as they were."""
    with torch.random.fork_rng(devices=[]):
        if seed is None:
            torch.default_generator.seed()
        else:
            torch.default_generator.manual_seed(seed)
        yield


def random_observations(
    observation: ObservationSpec, count: int, *, seed: int = 0
) -> dict[str, Tensor]:
    """Leaf → `[count, *shape]` float32 as modules get them: images in [0, 1], normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.rand(count, *leaf.shape, generator=generator)
        if leaf.dtype == "uint8"
        else torch.randn(count, *leaf.shape, generator=generator)
        for name, leaf in observation.items()
    }
