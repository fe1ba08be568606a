"""The part of `check_policy` for recurrent networks: the contract of their state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from aclearn.errors import kind_of, words_of
from aclearn.extensions import users_line
from aclearn.policies.policy_module import PolicyModule, zeroed_state
from aclearn.policies.users_network import has_unroll, random_observations, words_of_state
from aclearn.types import ObservationSpec, PolicyOutput

State = tuple[Tensor, ...]

#: Numbers of rows with which the state must have one shape.
_ROWS = (5, 2, 1)
#: Steps of each check.
_STEPS = 4
_TOLERANCE = 1e-4


class _Check(Protocol):
    """What the parts of `check_policy` share."""

    @property
    def observation(self) -> ObservationSpec: ...

    @property
    def name(self) -> str: ...

    def require(self, kept: bool, breach: str) -> None:
        """Raise `AssertionError` with the breach unless it is kept."""

    def output(
        self, module: nn.Module, observations: dict[str, Tensor], state: State = ()
    ) -> PolicyOutput[Tensor]:
        """The module's output; raises `AssertionError` if it raises."""


def check_form(check: _Check, module: nn.Module, state: State) -> None:
    """Check that the state after 5 rows and the state `()` is one.

    Raises:
        AssertionError: says what was expected.
    """
    check.require(
        isinstance(state, tuple) and all(isinstance(part, Tensor) for part in state),
        f"state: expected a tuple of tensors, got {kind_of(state)}",
    )
    check.require(
        not state or hasattr(module, "step"),
        "it returns a state from forward, which gets none; define step(observations, state) in "
        "place of forward",
    )
    for name, part in named_state(state):
        check.require(
            part.ndim > 0 and len(part) == _ROWS[0],
            f"{name}: expected {_ROWS[0]} rows in front for {_ROWS[0]} observations, got "
            f"{tuple(part.shape)}; nn.LSTM and nn.GRU have layers in front (transpose(0, 1))",
        )
        check.require(part.numel() > 0, f"{name}: it has no number; leave it out")
        check.require(part.dtype == torch.float32, f"{name}: expected float32, got {part.dtype}")


def reached_state(check: _Check, module: nn.Module, first: State) -> State:
    """The state after some steps of 5 rows, which have kept its form, as other numbers of rows do.

    Args:
        first: the state after one step.

    Raises:
        AssertionError: the form has changed; says what was expected.
    """
    with torch.no_grad():
        states = [_constant_shapes(check, module, first, rows) for rows in _ROWS]
    return states[0]


def check_starts(
    check: _Check, module: nn.Module, first: PolicyOutput[Tensor], reached: State
) -> None:
    """Check that zeros begin an episode, in each row, and in an `unroll` of the network's own.

    Args:
        first: the network's output for 5 rows and the state `()`.
        reached: a state that it has reached with 5 rows.

    Raises:
        AssertionError: says what was expected.
    """
    with torch.no_grad():
        _begins_with_zeros(check, module, first, reached)
        if has_unroll(module):
            _unrolls_its_steps(check, module, reached)


def _constant_shapes(check: _Check, module: nn.Module, first: State, rows: int) -> State:
    """Shapes and dtypes stay, numbers are finite, nothing is changed in place; the last state."""
    expected = tuple(tuple(part.shape[1:]) for part in first)
    state: State = ()
    for step in range(1, _STEPS + 1):
        observations = random_observations(check.observation, rows, seed=step)
        given = tuple(part.clone() for part in state)
        new = check.output(module, observations, state).state
        for (name, part), kept in zip(named_state(state), given, strict=True):
            check.require(
                torch.equal(part, kept),
                f"{name}: step changed it in place; return a new tensor, since an unroll begins "
                "with the old one",
            )
        found = tuple(tuple(part.shape[1:]) for part in new)
        check.require(
            found == expected and all(len(part) == rows for part in new),
            f"state: expected {words_of_state(expected)} as after the first step, got "
            f"{words_of_state(found)} after step {step} of {rows} rows; it must keep its shape for "
            "every number of rows and steps",
        )
        for name, part in named_state(new):
            check.require(
                part.dtype == torch.float32, f"{name}: expected float32, got {part.dtype}"
            )
            check.require(bool(part.isfinite().all()), f"{name}: not finite after step {step}")
        state = new
    return state


def _begins_with_zeros(
    check: _Check, module: nn.Module, first: PolicyOutput[Tensor], reached: State
) -> None:
    observations = random_observations(check.observation, _ROWS[0])
    zeros = tuple(torch.zeros_like(part) for part in first.state)
    for name, mine, zeroed in paired(first, check.output(module, observations, zeros)):
        check.require(
            _near(mine, zeroed),
            f"{name}: with zeros as state it is another one than with (); both stand for the begin "
            "of an episode, so that a first state of its own must be added inside of step",
        )
    starts = torch.arange(_ROWS[0]) % 2 == 0
    mixed = check.output(module, observations, zeroed_state(reached, starts))
    for name, fresh, restarted in paired(first, mixed):
        check.require(
            _near(fresh[starts], restarted[starts]),
            f"{name}: a row with a zeroed state differs from one at the begin of an episode, when "
            "other rows go on; decide row by row",
        )


def passes_gradient(check: _Check, module: nn.Module) -> bool:
    """Whether a gradient passes through the state to the observations of the step before.

    Through an `unroll` of the network's own, if there is one: the trainer learns by it.
    """
    before, after = (random_observations(check.observation, _ROWS[0], seed=i) for i in (1, 2))
    for leaf in before.values():
        leaf.requires_grad_()
    first = check.output(module, before)
    if has_unroll(module):
        steps = {name: torch.stack([leaf, after[name]]) for name, leaf in before.items()}
        zeros = tuple(torch.zeros_like(part) for part in first.state)
        starts = torch.zeros(2, _ROWS[0], dtype=torch.bool)
        output: PolicyOutput[Tensor] = module.unroll(steps, zeros, starts)  # type: ignore[operator]
        count = 2
    else:
        output, count = check.output(module, after, first.state), 1
    critic = output.value if output.q is None else output.q
    assert critic is not None
    total = sum(part.reshape(count, -1)[-1].sum() for part in (output.parameters, critic))
    assert isinstance(total, Tensor)
    if not total.requires_grad:
        return False
    # NaN passes weights of 0 too, and leaves 0 where nothing is passed
    passed = torch.autograd.grad(
        total, [*before.values()], torch.tensor(torch.nan), allow_unused=True
    )
    return any(each is not None and bool(each.isnan().any()) for each in passed)


def _unrolls_its_steps(check: _Check, module: nn.Module, state: State) -> None:
    rows = _ROWS[0]
    steps = [random_observations(check.observation, rows, seed=step) for step in range(_STEPS)]
    observations = {name: torch.stack([step[name] for step in steps]) for name in steps[0]}
    generator = torch.Generator().manual_seed(4)
    starts = torch.rand(_STEPS, rows, generator=generator) < 0.3
    expected = PolicyModule.unroll(module, observations, state, starts)  # type: ignore[arg-type]
    try:
        found = module.unroll(observations, state, starts)  # type: ignore[operator]
    except Exception as error:
        # whatever the user's own code raises
        raise AssertionError(
            f"{check.name}: unroll raised {words_of(error)}{users_line(error)} for {_STEPS} steps "
            f"of {rows} rows"
        ) from error
    check.require(
        isinstance(found, PolicyOutput), f"unroll: expected a PolicyOutput, got {found!r:.80}"
    )
    check.require(
        isinstance(found.state, tuple),
        f"unroll: expected a tuple of tensors as state, got {kind_of(found.state)}",
    )
    names, given = list(_parts(expected)), list(_parts(found))
    check.require(
        given == names, f"unroll: expected {', '.join(names)} as of step, got {', '.join(given)}"
    )
    for name, by_step, in_one in paired(expected, found):
        check.require(
            isinstance(in_one, Tensor)
            and (name in ("value", "q") or in_one.shape == by_step.shape),
            f"{name}: expected a tensor {list(by_step.shape)} from unroll for {_STEPS} steps of "
            f"{rows} rows, got {list(getattr(in_one, 'shape', ())) or kind_of(in_one)}",
        )
        check.require(
            in_one.numel() == by_step.numel() and _near(by_step, in_one.reshape(by_step.shape)),
            f"{name}: unroll differs from step after step; where an observation starts an episode "
            "(starts [T, B]) the state before it is zeroed",
        )


def named_state(state: Sequence[Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The parts of a state with names for messages."""
    for i, part in enumerate(state):
        yield f"state[{i}]", part


def paired(
    one: PolicyOutput[Tensor], other: PolicyOutput[Tensor]
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """What both outputs have, with its name."""
    its = _parts(other)
    for name, mine in _parts(one).items():
        if name in its:
            yield name, mine, its[name]


def _parts(output: PolicyOutput[Tensor]) -> dict[str, Tensor]:
    """Name → what the output has."""
    numbers = {"parameters": output.parameters, "value": output.value, "q": output.q}
    found = {name: part for name, part in numbers.items() if part is not None}
    return found | dict(named_state(output.state))


def _near(one: Tensor, other: Tensor) -> bool:
    most = _TOLERANCE * max(1.0, float(one.abs().max()))
    return one.shape == other.shape and torch.allclose(one, other, rtol=0.0, atol=most)
