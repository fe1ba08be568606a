"""`check_policy`: what it accepts, and what it says of each breach."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from aclearn.policies import PolicyModule, PolicyWarning, check_policy
from aclearn.types import LeafSpec, ObservationSpec, PolicyOutput
from tests.support.own_networks import Actions, Attention, Baked, OfLeaves, Plain

_FLAT = ObservationSpec.plain((3,), "float32")
_IMAGES = ObservationSpec.plain((4, 12, 12), "uint8", 4)
_LEAVES = ObservationSpec(
    {"image": LeafSpec((1, 5, 5), "uint8"), "name": LeafSpec((2,), "float32")}
)


@pytest.mark.parametrize(
    ("network", "observation", "critic"),
    [
        (Plain, _FLAT, "v"),
        (Plain, _IMAGES, "v"),
        (Attention, _IMAGES, "v"),
        (OfLeaves, _LEAVES, "v"),
        (Actions, _FLAT, "q"),
    ],
)
def test_networks_that_keep_the_contract_pass_without_a_word(network, observation, critic) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_policy(network, observation, 2, critic=critic)


def test_arguments_reach_the_constructor_and_random_numbers_are_left_as_they_were() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    made = []

    def network(*given, **keywords):
        made.append(keywords)
        return Plain(*given, **keywords)

    check_policy(network, _FLAT, 2, arguments={"width": 5})
    assert made == [{"width": 5}] * len(made)
    assert torch.equal(torch.rand(1), expected)


def _with(forward=None, init=None):
    """`Plain` with another `forward`, or with something done to it when it is made."""

    class Broken(Plain):
        def __init__(self, *given) -> None:
            super().__init__(*given)
            if init is not None:
                init(self)

        def forward(self, x):
            return super().forward(x) if forward is None else forward(self, x)

    return Broken


def _given(change):
    """`Plain` whose parameters and value are changed."""
    return _with(lambda self, x: change(*Plain.forward(self, x)))


class _Narrow(Plain):
    def __init__(self, observation, parameters):
        super().__init__(observation, parameters - 1)


class _Doubles(Plain):
    def __init__(self, *given):
        super().__init__(*given)
        self.double()

    def forward(self, x):
        return super().forward(x.double())


def _without_gradient(self, x):
    with torch.no_grad():
        h = self.body(x)
    return self.policy(h), self.value(h)


def _by_the_first_row(self, x):
    logits, value = Plain.forward(self, x)
    return (logits if float(x[0, 0]) > 0.3 else 2.0 * logits), value


def _not_one_row(self, x):
    if len(x) == 1:
        raise ValueError("one row")
    return Plain.forward(self, x)


def _counting(self, x):
    self.calls += 1.0
    return Plain.forward(self, x)


def _drawn_by_numpy(self):
    drawn = np.random.default_rng().normal(size=(16, 3))
    self.body[1].weight.data = torch.from_numpy(drawn.astype(np.float32))


def _constant(self):
    self.direction = float(torch.rand(()))


class _Lazy(nn.Module):
    def __init__(self, observation, parameters):
        super().__init__()
        self.policy, self.value = nn.LazyLinear(parameters), nn.LazyLinear(1)

    def forward(self, x):
        return self.policy(x), self.value(x)


class _NothingToLearn(nn.Module):
    def __init__(self, observation, parameters):
        super().__init__()

    def forward(self, x):
        return x[:, :2], x[:, 0]


class _NoModule:
    def __init__(self, observation, parameters):
        pass


class _Constructor(Plain):
    def __init__(self, observation, parameters):
        raise KeyError("layers")


class _Q(PolicyModule):
    def __init__(self, observation, parameters):
        super().__init__()
        self.policy = nn.Linear(3, parameters)

    def step(self, observations, state=()):
        logits = self.policy(observations["observation"])
        return PolicyOutput(logits, q=logits)


@pytest.mark.parametrize(
    ("network", "breach"),
    [
        (
            _Constructor,
            r"constructor raised KeyError: 'layers' \[line \d+ of .*; it is called with",
        ),
        (_NoModule, "expected a torch.nn.Module, got <"),
        (_NothingToLearn, "no parameters to learn"),
        (_Lazy, "the size of policy.weight is not known before it runs"),
        (_Doubles, "body.1.weight: expected float32 weights, got torch.float64"),
        (
            _with(init=_drawn_by_numpy),
            "body.1.weight: initial weights differ for one seed; draw them by torch",
        ),
        (
            _with(lambda self, x: (self.policy(x), self.value(x))),
            r"forward raised RuntimeError: mat1 and mat2 .* for observation float32 \(5, 3\)",
        ),
        (
            _given(lambda logits, value: logits),
            "expected a PolicyOutput, or the parameters and the value, got a Tensor",
        ),
        (_Narrow, r"parameters: expected shape \(5, 2\) for 5 rows, got \(5, 1\)"),
        (
            _given(lambda logits, value: (logits, value.expand(-1, 2))),
            r"value: expected shape \(5, 1\) or \(5,\) for 5 rows, got \(5, 2\)",
        ),
        (
            _given(lambda logits, value: (logits.double(), value)),
            "parameters: expected float32, got torch.float64",
        ),
        (_given(lambda logits, value: (logits / 0.0, value)), "parameters: not finite"),
        (_Q, "it returns q, and policy.critic: v expects value"),
        (
            _with(lambda self, x: Plain.forward(self, x.mul_(2.0))),
            "it changed the leaf 'observation' in place",
        ),
        (
            _with(init=lambda self: self.body.append(nn.Dropout(0.5))),
            "parameters: two calls with one input differ; leave out Dropout",
        ),
        (
            _with(init=lambda self: self.body.append(nn.BatchNorm1d(16))),
            r"parameters: differs between train\(\) and eval\(\).*LayerNorm",
        ),
        (
            _with(_counting, lambda self: self.register_buffer("calls", torch.zeros(()))),
            "it changed its buffer calls; actors get its parameters only",
        ),
        (
            _with(init=lambda self: self.register_buffer("directions", torch.randn(3))),
            r"directions: each process makes this buffer for itself.*nn\.Parameter",
        ),
        (
            _with(lambda self, x: Plain.forward(self, x * self.direction), _constant),
            "parameters: two networks of equal weights differ; make random constants",
        ),
        (
            _given(lambda logits, value: (logits - logits.mean(0), value)),
            "parameters: a row depends on the other rows of its batch",
        ),
        (
            _with(_not_one_row),
            r"raised ValueError: one row .* \(1, 3\); every number of rows must work",
        ),
        (
            _given(lambda logits, value: (logits.detach(), value.detach())),
            "its output has no gradient",
        ),
        (
            _given(lambda logits, value: (logits + (0.0 * logits).abs().sqrt(), value)),
            "body.1.weight: its gradient is not finite",
        ),
        (
            _with(_by_the_first_row),
            r"its ONNX graph differs from torch in output 0 on 5 rows \(does it br",
        ),
        (
            _given(lambda logits, value: (torch.special.i0(logits), value)),
            r"torch cannot export it to ONNX: .*i0",
        ),
    ],
    ids=lambda case: "" if isinstance(case, type) else case[:40],
)
def test_a_breach_is_named_with_what_was_expected(network, breach) -> None:
    with pytest.raises(AssertionError, match=breach):
        check_policy(network, _FLAT, 2)


def test_parameters_without_gradient_and_weights_that_cannot_be_swapped_are_warned_of() -> None:
    with pytest.warns(PolicyWarning, match=r"no gradient reaches body\.1\.weight, body\.1\.bias, "):
        check_policy(_with(_without_gradient), _FLAT, 2)
    with pytest.warns(PolicyWarning, match="actors export each version again, which needs torch"):
        check_policy(Baked, _FLAT, 2)
