"""A role may open as many files as the system lets it, and steps back alone."""

from __future__ import annotations

import os
from pathlib import Path

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


_LOWER = """
import os
from pathlib import Path
from aclearn.launch.resources import lower_priority
group = Path("/proc/self/autogroup")
{own}
before = group.read_text()
lower_priority(5)
print(os.nice(0), "same" if group.read_text() == before else group.read_text().split()[-1])
"""


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="needs autogroups")
@pytest.mark.parametrize(("own", "group"), [("os.setsid()", "5"), ("", "same")])
def test_a_role_lowers_its_own_session_and_never_that_of_a_shell(own: str, group: str) -> None:
    done = run_python("-c", _LOWER.format(own=own))
    assert done.stdout.split() == [str(os.nice(0) + 5), group], done.stderr
