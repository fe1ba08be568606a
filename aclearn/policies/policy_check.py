"""`check_policy`: tests the contract of a network of your own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from aclearn.errors import words_of
from aclearn.extensions import users_line
from aclearn.policies.module_spec import ModuleSpec
from aclearn.policies.onnx_export import NotExportable
from aclearn.policies.state_check import (
    check_form,
    check_starts,
    named_state,
    paired,
    passes_gradient,
    reached_state,
)
from aclearn.policies.users_network import (
    has_unroll,
    output_of,
    random_observations,
    seeded,
    state_shapes,
)
from aclearn.policies.users_onnx import exported
from aclearn.types import ObservationSpec, PolicyOutput

#: Rows of the example; prime, so that no reshape fits by chance.
_ROWS = 5
#: Largest difference between two computations of one row, as a share of the largest number or of 1.
_TOLERANCE = 1e-4


class PolicyWarning(UserWarning):
    """A property of a network that is probably not meant."""


def check_policy(
    network: Callable[..., nn.Module],
    observation: ObservationSpec,
    parameters: int,
    *,
    critic: str = "v",
    arguments: Mapping[str, Any] | None = None,
) -> None:
    """Make a network of your own as a run does, and check the contract of networks.

    Of a recurrent one the state is checked too. A `PolicyWarning` tells of parameters without
    gradient, of a state through which none passes, and of weights that ONNX cannot swap.

    Args:
        observation: the leaves of its observations, e.g. `ObservationSpec.plain((4,), "float32")`.
        parameters: P, the numbers of the distribution of actions.
        critic: "v" for a value, or "q" for one value of each action.

    Raises:
        AssertionError: the network breaks the contract; says what was expected.
    """
    check = _Check(network, observation, parameters, critic, dict(arguments or {}))
    first, same, other = (check.made(seed) for seed in (1, 1, 2))
    check.parameters(first, same)
    output = check.output(first, random_observations(observation, _ROWS))
    check.shapes(output)
    check_form(check, first, output.state)
    check.repeats(first)
    check.constants(first, other)
    state = reached_state(check, first, output.state) if output.state else ()
    check.rows(first, state)
    if state:
        check_starts(check, first, output, state)
    check.gradient(first)
    check.export(first)


@dataclass(frozen=True)
class _Check:
    """The parts of the check, each of which raises `AssertionError`."""

    network: Callable[..., nn.Module]
    observation: ObservationSpec
    count: int
    critic: str
    arguments: dict[str, Any]

    @property
    def name(self) -> str:
        return getattr(self.network, "__name__", type(self.network).__name__)

    def require(self, kept: bool, breach: str) -> None:
        if not kept:  # not by `assert`, which `python -O` takes out
            raise AssertionError(f"{self.name}: {breach}")

    def made(self, seed: int) -> nn.Module:
        try:
            with seeded(seed):
                module = self.network(self.observation, self.count, **self.arguments)
        except Exception as error:
            # whatever the user's own code raises
            raise AssertionError(
                f"{self.name}: its constructor raised {words_of(error)}{users_line(error)}; it is "
                f"called with (ObservationSpec, {self.count}"
                f"{''.join(f', {key}=…' for key in self.arguments)})"
            ) from error
        self.require(
            isinstance(module, nn.Module), f"expected a torch.nn.Module, got {module!r:.80}"
        )
        return module

    def output(
        self,
        module: nn.Module,
        observations: dict[str, Tensor],
        state: tuple[Tensor, ...] = (),
    ) -> PolicyOutput[Tensor]:
        rows = len(next(iter(observations.values())))
        try:
            return output_of(module, observations, state, critic=self.critic)
        except Exception as error:
            # whatever the user's own code raises
            called = "step" if hasattr(module, "step") else "forward"
            shapes = ", ".join(
                f"{name} float32 {tuple(leaf.shape)}"
                for name, leaf in (*observations.items(), *named_state(state))
            )
            hint = "" if rows > 1 else "; every number of rows must work, also 1"
            raise AssertionError(
                f"{self.name}: {called} raised {words_of(error)}{users_line(error)} for {shapes}"
                f"{hint}"
            ) from error

    def parameters(self, module: nn.Module, same: nn.Module) -> None:
        named, again = dict(module.named_parameters()), dict(same.named_parameters())
        self.require(bool(named), "it has no parameters to learn")
        for name, parameter in named.items():
            self.require(
                not isinstance(parameter, nn.parameter.UninitializedParameter),
                f"the size of {name} is not known before it runs; give the layer its input size",
            )
            self.require(
                parameter.dtype == torch.float32,
                f"{name}: expected float32 weights, got {parameter.dtype}",
            )
            self.require(
                bool(parameter.isfinite().all()), f"{name}: its initial weights are not finite"
            )
            self.require(
                name in again and torch.equal(parameter, again[name]),
                f"{name}: initial weights differ for one seed; draw them by torch",
            )

    def shapes(self, output: PolicyOutput[Tensor]) -> None:
        field, units = ("q", self.count) if self.critic == "q" else ("value", 1)
        other = "value" if self.critic == "q" else "q"
        self.require(
            getattr(output, other) is None,
            f"it returns {other}, and policy.critic: {self.critic} expects {field}",
        )
        shaped = [(_ROWS, units)] + [(_ROWS,)] * (self.critic == "v")
        for name, expected in (("parameters", [(_ROWS, self.count)]), (field, shaped)):
            found = getattr(output, name)
            self.require(isinstance(found, Tensor), f"{name}: expected a tensor, got {found!r:.80}")
            self.require(
                tuple(found.shape) in expected,
                f"{name}: expected shape {' or '.join(map(str, expected))} for {_ROWS} rows, "
                f"got {tuple(found.shape)}",
            )
            self.require(
                found.dtype == torch.float32, f"{name}: expected float32, got {found.dtype}"
            )
            self.require(bool(found.isfinite().all()), f"{name}: not finite")

    def repeats(self, module: nn.Module) -> None:
        """It changes nothing, and learns with the numbers that it acts with."""
        observations = random_observations(self.observation, _ROWS)
        kept = {name: leaf.clone() for name, leaf in observations.items()}
        buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        with torch.no_grad():
            first = self.output(module.train(), observations)
            for name, leaf in observations.items():
                self.require(
                    torch.equal(leaf, kept[name]), f"it changed the leaf {name!r} in place"
                )
            again = self.output(module, observations)
            acting = self.output(module.eval(), observations)
        module.train()
        for name, mine, repeated in paired(first, again):
            self.require(
                torch.equal(mine, repeated),
                f"{name}: two calls with one input differ; leave out Dropout and random parts",
            )
        for name, mine, evaluated in paired(first, acting):
            self.require(
                torch.allclose(mine, evaluated, atol=1e-5),
                f"{name}: differs between train() and eval(), so that it would act and learn with "
                "two policies; replace BatchNorm by LayerNorm, and leave out Dropout",
            )
        for name, buffer in module.named_buffers():
            self.require(
                torch.equal(buffer, buffers[name]),
                f"it changed its buffer {name}; actors get its parameters only",
            )

    def constants(self, module: nn.Module, other: nn.Module) -> None:
        """What is no parameter is the same in all processes."""
        mine = dict(module.named_buffers())
        for name, buffer in other.named_buffers():
            self.require(
                name in mine and torch.equal(buffer, mine[name]),
                f"{name}: each process makes this buffer for itself, and two differ; make it "
                "nn.Parameter(…, requires_grad=False), which travels with the weights",
            )
        other.load_state_dict(module.state_dict())
        observations = random_observations(self.observation, _ROWS)
        with torch.no_grad():
            pairs = paired(self.output(module, observations), self.output(other, observations))
        for name, one, copied in pairs:
            self.require(
                torch.allclose(one, copied, atol=1e-5),
                f"{name}: two networks of equal weights differ; make random constants "
                "nn.Parameter(…, requires_grad=False), which travel with the weights",
            )

    def rows(self, module: nn.Module, state: tuple[Tensor, ...]) -> None:
        """Row b depends on row b of observations and state only."""
        observations = random_observations(self.observation, _ROWS)
        with torch.no_grad():
            whole = self.output(module, observations, state)
            for rows in (slice(2, 4), slice(1, 2)):
                given = {name: leaf[rows] for name, leaf in observations.items()}
                few = self.output(module, given, tuple(part[rows] for part in state))
                for name, all_rows, some in paired(whole, few):
                    mine = all_rows.reshape(_ROWS, -1)[rows]
                    most = _TOLERANCE * max(1.0, float(mine.abs().max()))
                    self.require(
                        some.numel() == mine.numel()
                        and torch.allclose(some.reshape(mine.shape), mine, rtol=0.0, atol=most),
                        f"{name}: a row depends on the other rows of its batch; each observation "
                        "is of another environment (normalise by LayerNorm, flatten from axis 1)",
                    )

    def gradient(self, module: nn.Module) -> None:
        parts, state = list[Tensor](), tuple[Tensor, ...]()
        for seed in range(1, 4):
            observations = random_observations(self.observation, _ROWS, seed=seed)
            output = self.output(module, observations, state)
            parts += [p for p in (output.parameters, output.value, output.q) if p is not None]
            state = output.state
            if not state:
                break
        self.require(
            any(part.requires_grad for part in parts),
            "its output has no gradient; leave out no_grad, detach and numpy",
        )
        generator = torch.Generator().manual_seed(3)
        total = sum((p * torch.randn(p.shape, generator=generator)).sum() for p in parts)
        assert isinstance(total, Tensor)
        module.zero_grad(set_to_none=True)
        total.backward()  # type: ignore[no-untyped-call]
        idle = []
        for name, parameter in module.named_parameters():
            if not parameter.requires_grad:
                continue
            if parameter.grad is None:
                idle.append(name)
                continue
            self.require(
                bool(parameter.grad.isfinite().all()), f"{name}: its gradient is not finite"
            )
        module.zero_grad(set_to_none=True)
        if idle:
            warnings.warn(
                f"{self.name}: no gradient reaches {', '.join(idle)}, which will not learn",
                PolicyWarning,
                stacklevel=3,
            )
        if state and not passes_gradient(self, module):
            warnings.warn(
                f"{self.name}: {'unroll' if has_unroll(module) else 'step'}: no gradient passes "
                "through its state to the step before, so that it does not learn what to remember; "
                "leave out detach and no_grad",
                PolicyWarning,
                stacklevel=3,
            )

    def export(self, module: nn.Module) -> None:
        try:
            state = state_shapes(module, self.observation, critic=self.critic)
            spec = ModuleSpec(
                self.name, "{}", self.observation, self.count, self.critic, (), state=state
            )
            _, reason = exported(module, spec)
        except NotExportable as error:
            raise AssertionError(
                f"{self.name}: {error}. Actors and `aclearn evaluate` run it in ONNX Runtime"
            ) from error
        if reason:
            warnings.warn(
                f"{self.name}: its ONNX graph cannot take other weights ({reason}), so that actors "
                "export each version again, which needs torch; compute with parameters as tensors, "
                "not as numbers",
                PolicyWarning,
                stacklevel=3,
            )
