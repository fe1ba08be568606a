"""`check_policy` of recurrent networks: what it accepts, and what it says of each breach."""

from __future__ import annotations

import warnings

import pytest
import torch

from aclearn.policies import PolicyWarning, check_policy
from aclearn.types import LeafSpec, ObservationSpec, PolicyOutput
from tests.support.own_networks import Layered, Plain, Remembers, RemembersQ, Unrolls

_FLAT = ObservationSpec.plain((3,), "float32")
_LEAVES = ObservationSpec(
    {"image": LeafSpec((1, 5, 5), "uint8"), "name": LeafSpec((2,), "float32")}
)


class _ZeroHeads(Unrolls):
    def __init__(self, observation, parameters):
        super().__init__(observation, parameters)
        for head in (self.policy, self.value):
            torch.nn.init.zeros_(head.weight)


@pytest.mark.parametrize("observation", [_FLAT, _LEAVES])
@pytest.mark.parametrize(
    ("network", "critic"),
    [(Remembers, "v"), (RemembersQ, "q"), (Unrolls, "v"), (Layered, "v"), (_ZeroHeads, "v")],
)
def test_networks_that_keep_the_contract_pass_without_a_word(network, critic, observation) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_policy(network, observation, 2, critic=critic)


def _given(change):
    """`Remembers` whose state before a step of so many rows is changed."""

    class Broken(Remembers):
        def step(self, observations, state=()):
            rows = len(next(iter(observations.values())))
            return super().step(observations, change(rows, state))

    return Broken


def _new(change):
    """`Remembers` whose state after a step is changed."""

    class Broken(Remembers):
        def step(self, observations, state=()):
            found = super().step(observations, state)
            return found._replace(state=change(*found.state))

    return Broken


class _FromForward(Plain):
    def forward(self, x):
        logits, value = super().forward(x)
        return PolicyOutput(logits, value, state=(logits,))


class _Grows(Remembers):
    def step(self, observations, state=()):
        found = super().step(observations, tuple(part[:, :5] for part in state))
        h, trace = found.state
        return found._replace(state=(torch.cat([h, h], 1) if state else h, trace))


class _InPlace(Remembers):
    def step(self, observations, state=()):
        found = super().step(observations, state)
        for part in state:
            part.zero_()
        return found


class _ForgetsStarts(Unrolls):
    def unroll(self, observations, state, starts):
        return super().unroll(observations, state, torch.zeros_like(starts))


class _BatchFirst(Unrolls):
    def unroll(self, observations, state, starts):
        raise ValueError("expected [B, T]")


class _NoOutput(Unrolls):
    def unroll(self, observations, state, starts):
        return super().unroll(observations, state, starts).parameters


def _unrolled(change):
    """`Unrolls` whose output of an unroll is changed."""

    class Broken(Unrolls):
        def unroll(self, observations, state, starts):
            return change(super().unroll(observations, state, starts))

    return Broken


class _ForgetsGradient(Unrolls):
    def unroll(self, observations, state, starts):
        outputs = []
        for t in range(len(starts)):
            now = {name: leaf[t : t + 1] for name, leaf in observations.items()}
            outputs.append(super().unroll(now, state, starts[t : t + 1]))
            state = tuple(part.detach() for part in outputs[-1].state)
        parameters, value = (torch.cat(parts) for parts in list(zip(*outputs, strict=True))[:2])
        return PolicyOutput(parameters, value, state=state)


def _ones(rows):
    return torch.ones(rows, 5), torch.ones(rows, 2, 3)


@pytest.mark.parametrize(
    ("network", "breach"),
    [
        (_FromForward, r"a state from forward, which gets none; define step\(observations, state"),
        (_new(lambda h, trace: [h, trace]), r"state: expected a tuple of tensors, got a list"),
        (
            _new(lambda h, trace: (h[None], trace)),
            r"state\[0\]: expected 5 rows in front .* \(1, 5, 5\); nn.LSTM and nn.GRU have layers",
        ),
        (_new(lambda h, trace: (h, trace[:, :0])), r"state\[1\]: it has no number; leave it out"),
        (_new(lambda h, trace: (h.double(), trace)), r"state\[0\]: expected float32, got .*64"),
        (
            _Grows,
            r"state: expected \[B, 5\] and \[B, 2, 3\] as after the first step, got \[B, 10\] and "
            r"\[B, 2, 3\] after step 2 of 5 rows; it must keep its shape",
        ),
        (
            _new(lambda h, trace: (h, trace) if len(h) > 1 else (h,)),
            r"state: expected .* and \[B, 2, 3\] .* got \[B, 5\] after step 1 of 1 rows",
        ),
        (_new(lambda h, trace: (h / 0.0, trace)), r"state\[0\]: not finite after step 1"),
        (_InPlace, r"state\[0\]: step changed it in place; return a new tensor"),
        (
            _new(lambda h, trace: (h - h.mean(0), trace)),
            r"state\[0\]: a row depends on the other rows of its batch",
        ),
        (
            _given(lambda rows, state: state or _ones(rows)),
            r"parameters: with zeros as state it is another one than with \(\); both stand for the",
        ),
        (
            _given(lambda n, state: state if any(p.any() for p in state) else _ones(n)),
            r"parameters: a row with a zeroed state differs from one at the begin of an episode",
        ),
        (_ForgetsStarts, r"parameters: unroll differs from step after step; where an observation"),
        (_BatchFirst, r"unroll raised ValueError: expected \[B, T\] .* for 4 steps of 5 rows"),
        (_NoOutput, r"unroll: expected a PolicyOutput, got tensor"),
        (
            _unrolled(lambda found: found._replace(state=())),
            r"unroll: expected parameters, value, state\[0\], state\[1\] as of step, got param\w+, "
            r"value$",
        ),
        (
            _unrolled(lambda found: found._replace(state=None)),
            r"unroll: expected a tuple of tensors as state, got ",
        ),
        (
            _unrolled(lambda found: found._replace(value=None)),
            r"unroll: expected parameters, value, .* got parameters, state\[0\], state\[1\]$",
        ),
        (
            _unrolled(lambda found: found._replace(parameters=found.parameters.flatten(0, 1))),
            r"parameters: expected a tensor \[4, 5, 2\] from unroll .* 5 rows, got \[20, 2\]",
        ),
    ],
)
def test_a_breach_is_named_with_what_was_expected(network, breach) -> None:
    with pytest.raises(AssertionError, match=breach):
        check_policy(network, _FLAT, 2)


@pytest.mark.parametrize(
    ("network", "where"),
    [
        (_new(lambda h, trace: (h.detach(), trace.detach())), "step"),
        (_ForgetsGradient, "unroll"),
        (
            _unrolled(
                lambda found: found._replace(
                    parameters=found.parameters.detach(), value=found.value.detach()
                )
            ),
            "unroll",
        ),
    ],
)
def test_a_state_without_gradient_is_warned_of(network, where) -> None:
    match = rf"{where}: no gradient passes through its state .* leave out d"
    with pytest.warns(PolicyWarning, match=match):
        check_policy(network, _FLAT, 2)
