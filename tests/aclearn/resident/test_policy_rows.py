"""The rows of policies that share a kind of agents."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from aclearn.errors import ConfigError
from aclearn.resident.policy_rows import PolicyRows, rows_by_policy
from aclearn.resident.slices import Slice
from tests.support.env_specs import plain_spec

N, A, T = 4, 3, 2


def kind(name, *agents):
    spec = SimpleNamespace(agents=len(agents), agent_names=agents)
    buffers = SimpleNamespace(rewards=torch.zeros(1))
    return SimpleNamespace(name=name, agents=len(agents), spec=spec, buffers=buffers)


SHEEP = kind("sheep", "a", "b", "c")


@pytest.mark.parametrize("agents", [(0, 2), (1, 2), (1,), (0, 1, 2)])
def test_a_policys_rows_are_those_of_its_agents_in_each_environment(agents):
    own = PolicyRows(SHEEP, agents)
    #: Row e·A + j has 10·e + j.
    rows = torch.tensor([10 * e + j for e in range(N) for j in range(A)])
    expected = [10 * e + j for e in range(N) for j in agents]
    assert own.of(rows).tolist() == expected
    steps = torch.stack([rows, rows + 100])
    assert own.of_steps(steps).tolist() == [expected, [each + 100 for each in expected]]
    vectors = torch.stack([rows, -rows], dim=1)
    assert own.of_steps(vectors.unsqueeze(0))[0].tolist() == [[x, -x] for x in expected]
    # a slice has the environments 1 and 2 alone
    part = Slice(part=0, first=1, size=2)
    of_part = [10 * e + j for e in (1, 2) for j in agents]
    assert own.of(rows, part).tolist() == of_part
    written = torch.zeros(N * A, dtype=torch.int64)
    own.write(written, -own.of(rows, part), part)
    places = [e * A + j for e in (1, 2) for j in agents]
    assert {b: int(written[b]) for b in places} == dict(
        zip(places, [-x for x in of_part], strict=True)
    )
    written[places] = 0
    assert not written.any()


def test_all_rows_of_a_kind_are_not_copied():
    rows = torch.zeros(N * A, 5)
    assert PolicyRows(SHEEP, (0, 1, 2)).of(rows).data_ptr() == rows.data_ptr()


def test_a_policy_has_agents_of_one_kind():
    dogs = kind("dog", "rex")
    spec = plain_spec((2,), "float32", 3)

    def policy(*names):
        return SimpleNamespace(**vars(spec) | {"agent_names": names})

    found = rows_by_policy([SHEEP, dogs], {"x": policy("b", "c"), "y": policy("rex")})
    assert {name: (rows.place, rows.agents) for name, rows in found.items()} == {
        "x": (0, 2),
        "y": (1, 1),
    }
    with pytest.raises(ConfigError, match=r"policies\.x\.agents: .* kinds sheep, dog"):
        rows_by_policy([SHEEP, dogs], {"x": policy("b", "rex")})
