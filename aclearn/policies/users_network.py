"""Torch modules of the user's own: made, called, and described as a `ModuleSpec`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from aclearn.errors import kind_of
from aclearn.extensions import make_extension
from aclearn.policies.module_spec import ModuleSpec
from aclearn.policies.policy_module import PolicyModule
from aclearn.types import ObservationSpec, PolicyOutput

KEY = "policy.architecture"


class UsersNetwork:
    """A module of the user's own as the computation of one layer.

    Its result has the distribution's parameters, the next state and the critic's numbers.

    Attributes:
        module: made by the user's constructor on the CPU, with initial weights.
    """

    def __init__(self, spec: ModuleSpec) -> None:
        given = (spec.observation, spec.parameters)
        with torch.device("cpu"):
            self.module = make_extension(
                spec.name, spec.keywords, key=KEY, expected=nn.Module, given=given
            )
        self._spec = spec

    def __call__(self, *given: Tensor) -> Tensor:
        """Numbers `[N, P + S + 1]` or `[N, P + S + A]`.

        Args:
            given: float leaves `[N, *shape]`, and the parts of the state, flat `[N, n]`.
        """
        parts, output = acting_parts(self.module, self._spec, given)
        return torch.cat([*parts, self._critic_of(output)], 1)

    @property
    def unrolls(self) -> bool:
        """Whether the module has an `unroll` of its own."""
        return bool(self._spec.state) and has_unroll(self.module)

    def unrolled(
        self, leaves: Sequence[Tensor], state: Sequence[Tensor], starts: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """The numbers `[T · B, …]` by the module's `unroll`, and the state after it, flat.

        The places of the state in the numbers are 0: nothing reads them.

        Args:
            leaves: `[T · B, *shape]`.
            state: before the first step, flat `[B, n]`.
            starts: `[T, B]` bool.
        """
        spec = self._spec
        named = {
            name: leaf.view(*starts.shape, *leaf.shape[1:])
            for name, leaf in zip(spec.observation, leaves, strict=True)
        }
        module = cast(PolicyModule, self.module)
        output = module.unroll(named, _shaped(state, spec.state), starts)
        parameters = output.parameters.flatten(0, 1)
        unread = parameters.new_zeros(len(parameters), sum(spec.state_units))
        numbers = torch.cat([parameters, unread, self._critic_of(output)], 1)
        return numbers, _flat(output.state, spec)

    def _critic_of(self, output: PolicyOutput[Tensor]) -> Tensor:
        critic = cast(Tensor, output.q if self._spec.critic == "q" else output.value)
        return critic.reshape(-1, self._spec.values)


def acting_parts(
    module: nn.Module, spec: ModuleSpec, given: Sequence[Tensor]
) -> tuple[list[Tensor], PolicyOutput[Tensor]]:
    """The parameters `[N, P]` and the parts of the next state, flat `[N, n]`; all of the output.

    Args:
        given: float leaves `[N, *shape]`, and the parts of the state, flat `[N, n]`.
    """
    count = len(spec.observation)
    named = dict(zip(spec.observation, given[:count], strict=True))
    output = output_of(module, named, _shaped(given[count:], spec.state), critic=spec.critic)
    return [output.parameters, *_flat(output.state, spec)], output


def has_unroll(module: nn.Module) -> bool:
    """Whether its class defines `unroll`, in place of step after step."""
    defined = getattr(type(module), "unroll", None)
    return defined is not None and defined is not PolicyModule.unroll


def _shaped(state: Sequence[Tensor], shapes: Sequence[tuple[int, ...]]) -> tuple[Tensor, ...]:
    parts = zip(state, shapes, strict=True)
    # `part.shape`, which a trace keeps open
    return tuple(part.reshape(part.shape[0], *shape) for part, shape in parts)


def _flat(state: Sequence[Tensor], spec: ModuleSpec) -> list[Tensor]:
    """The parts of the state as `[N, n]`; raises ValueError if their shapes have changed."""
    found = tuple(tuple(int(n) for n in part.shape[1:]) for part in state)
    if found != spec.state:
        raise ValueError(
            f"{KEY} {spec.name!r}: its state has changed its shape: expected "
            f"{words_of_state(spec.state)} as after the first step, got {words_of_state(found)}"
        )
    return [part.reshape(part.shape[0], -1) for part in state]


def words_of_state(shapes: Sequence[tuple[int, ...]]) -> str:
    """The shapes of a state without its rows, as text."""
    parts = (", ".join(("B", *map(str, shape))) for shape in shapes)
    return " and ".join(f"[{part}]" for part in parts) or "no state"


def output_of(
    module: nn.Module,
    observations: Mapping[str, Tensor],
    state: tuple[Tensor, ...] = (),
    *,
    critic: str,
) -> PolicyOutput[Tensor]:
    """The module's `step`, or else its `forward` of the sole leaf or the mapping of leaves.

    Args:
        observations: leaf → float `[N, *shape]`.
        critic: "v" or "q", the meaning of the second result of `forward`.

    Raises:
        TypeError: the result is neither a PolicyOutput nor two tensors.
    """
    if (step := getattr(module, "step", None)) is not None:
        output = step(observations, state)
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


def state_shapes(
    module: nn.Module, observation: ObservationSpec, *, critic: str
) -> tuple[tuple[int, ...], ...]:
    """The shapes of the module's state, without its rows."""
    with torch.no_grad():
        output = output_of(module, random_observations(observation, 2), critic=critic)
    return tuple(tuple(part.shape[1:]) for part in output.state)


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
