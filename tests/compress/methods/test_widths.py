"""Widths: the number of remaining units of a layer, by its share or by a global ranking."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.types import PolicyVersion
from compress import Context, Policy, Pruning
from compress.methods.widths import (
    Widths,
    globally_removed,
    kept_width,
    kind_of_layer,
    removed_count,
    rounding_of,
)
from tests.support.architectures import altered, parts_of
from tests.support.pruning_oracle import FLAT, assert_silences, least_important, widths_of
from tests.support.random_policies import apply, compress, some_tensors


@pytest.mark.parametrize(
    ("count", "sparsity", "round_to", "width"),
    [
        (64, 0.5, 8, 32),
        (64, 0.9, 8, 8),  # 57 may go, 7 stay
        (100, 0.29, 1, 71),
        (10, 0.7, 1, 3),
        (12, 0.5, 8, 8),  # 6 may go, 4 do
        (8, 0.5, 8, 4),  # rounding to 8 would leave nothing to remove
        (32, 0.1, 8, 30),  # 29 stay; 32 is no less, 30 the next even width
        (4, 0.5, 8, 2),
        (3, 0.5, 8, 2),
        (3, 0.99, 8, 2),  # one may stay; 2 is the width that rounds
        (3, 0.99, 1, 1),
        (1, 0.99, 8, 1),
        (2, 0.4, 8, 2),
        (10, 0.999999999999, 1, 1),
    ],
)
def test_widths_are_round_and_never_less_than_asked(count, sparsity, round_to, width) -> None:
    assert kept_width(count, removed_count(count, sparsity), round_to) == width


@pytest.mark.parametrize("round_to", [1, 2, 8, 16])
def test_a_width_says_what_it_was_rounded_to(round_to) -> None:
    for count in range(1, 41):
        made = {kept: kept_width(count, count - kept, round_to) for kept in range(1, count + 1)}
        for width in set(made.values()):
            step = rounding_of(width, count, round_to)
            # all that is made this width, and nothing else
            expected = range(max(1, width - step + 1), width + 1)
            assert [kept for kept, found in made.items() if found == width] == [*expected]


def test_a_ranking_over_all_layers_takes_from_where_least_is_needed() -> None:
    # by hand: means are 1 and 2.5, so in means the scores are 1 × 4 and 0.4, 0.4, 0.4, 2.8 (× 2)
    scores = {
        "a": np.array([1.0, 1.0, 1.0, 1.0]),
        "b": np.array([1.0, 7.0, 1.0, 1.0, 1.0, 7.0, 1.0, 1.0]),
    }
    assert globally_removed(scores, 0.5) == {"a": 0, "b": 6}
    # 8 of 12: six of b, then two of the equal ones of a
    assert globally_removed(scores, 0.67) == {"a": 2, "b": 6}
    # 11 of 12, but a keeps one of 4 and b one of 8
    assert globally_removed(scores, 0.99) == {"a": 3, "b": 7}
    # a tenth of 40, rounded up, stays even in a layer of nothing but zeros
    dead = {"dead": np.zeros(40), "a": np.arange(1.0, 41.0)}
    assert globally_removed(dead, 0.5) == {"dead": 36, "a": 4}


def test_global_widths_leave_the_layer_narrow_that_is_needed_least() -> None:
    tensors = some_tensors(FLAT, 13)
    for tower in ("hidden", "value_hidden"):
        tensors[f"{tower}.1.weight"][:7] *= 0.01
        tensors[f"{tower}.1.bias"][:7] *= 0.01
    result = compress(Pruning(0.5, scope="global", round_to=1), FLAT, tensors)
    # 10 of 21 go: the 7 small ones of hidden.1, and 3 more
    widths = parts_of(result.graph.architecture).hidden
    assert sum(widths) == 11 and widths[1] <= 2
    removed = least_important(FLAT, result.graph.architecture, tensors)
    assert_silences(result, FLAT, tensors, removed)


def test_global_widths_are_decided_again_with_the_units() -> None:
    link, context = Pruning(0.5, scope="global", round_to=1, reselect_every=2), Context()
    even = altered(FLAT, observation_shape=(8,), hidden=(8, 8), separate_value=False)
    new = some_tensors(even, 13)
    for layer in ("hidden.0", "hidden.1"):
        # as weights begin: orthogonal, each unit of norm 1, so that nothing tells them apart
        new[f"{layer}.weight"][...], new[f"{layer}.bias"][...] = np.eye(8), 0.0
    trained = {name: tensor.copy() for name, tensor in new.items()}
    kept = {"hidden.0": [0, 2, 3, 4, 5, 7], "hidden.1": [1, 6]}
    for layer, units in kept.items():
        small = [unit for unit in range(8) if unit not in units]
        trained[f"{layer}.weight"][small] *= np.float32(0.001)
    results = [compress(link, even, tensors, context) for tensors in (new, trained, trained)]
    # 8 of 16 go. Of equal ones those of the first layer: 7, since a tenth stays, and one more
    assert [widths_of(result.graph.architecture) for result in results] == [[1, 7], [1, 7], [6, 2]]
    first, second = kept.values()
    narrow = results[2].tensors
    np.testing.assert_array_equal(narrow["hidden.0.weight"], trained["hidden.0.weight"][first])
    np.testing.assert_array_equal(
        narrow["hidden.1.weight"], trained["hidden.1.weight"][second][:, first]
    )
    assert context.breaks == 1
    # weights of a new generation are others: not those that the widths were decided by
    result = apply(link, Policy.of(even, new, PolicyVersion(7, 0)), context)
    assert widths_of(result.graph.architecture) == [1, 7]


def test_a_layer_with_its_own_share_is_not_in_the_ranking() -> None:
    link = Pruning(0.5, scope="global", per_layer={"hidden.1": 0.3}, round_to=1)
    result = compress(link, FLAT, some_tensors(FLAT, 15))
    assert parts_of(result.graph.architecture).hidden == (6, 7)  # 2 of 9; 6 of 12, ranked alone


def test_the_layers_of_each_part_of_an_observation_are_of_their_kind() -> None:
    assert kind_of_layer("camera:convolutions.0") == kind_of_layer("convolutions.2")
    widths = Widths(0.5, {"convolutions": 0.0}, ranked=False, round_to=1)
    counts = {"camera:convolutions.0": 8, "value_map:convolutions.0": 8, "hidden.0": 8}
    assert widths.by_share(counts) == {**counts, "hidden.0": 4}
    own = Widths(0.5, {"value_map:convolutions": 0.25}, ranked=False, round_to=1)
    assert own.by_share({**counts, "value_hidden.0": 8}) == {
        "camera:convolutions.0": 4,
        "value_map:convolutions.0": 6,
        "hidden.0": 4,
        "value_hidden.0": 4,
    }
