"""A role may open as many files as the system lets it."""

from __future__ import annotations

import pytest

from tests.support.waiting import run_python

_PROGRAM = """
import resource
from aclearn.launch import allow_many_connections
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
allow_many_connections()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(("soft", "hard", "then"), [(256, 2048, 2048), (1024, 1024, 1024)])
def test_the_own_limit_is_raised_and_the_system_s_stays(soft: int, hard: int, then: int) -> None:
    program = _PROGRAM.format(soft=soft, hard=hard)
    ended = run_python("-c", program, check=True)
    assert ended.stdout.split() == [str(then), str(hard)]
