"""The allocator's switch, in its own process."""

from __future__ import annotations

import sys

import pytest

from aclearn.launch.resources import keep_freed_memory
from tests.support.waiting import run_python

_PROGRAM = """
import resource
import sys
import threading
import numpy
from aclearn.launch.resources import keep_freed_memory

def faults_of_a_step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        blocks = [numpy.empty(16 << 20, numpy.uint8) for _ in range(6)]
        for block in blocks:
            block[::4096] = 1
        del block, blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = faults_of_a_step()
assert keep_freed_memory()
found = []

def later():
    faults_of_a_step()
    found.append(faults_of_a_step())

if sys.argv[1] == "thread":
    thread = threading.Thread(target=later)
    thread.start()
    thread.join()
else:
    later()
print(before, found[0])
"""


def test_elsewhere_than_on_linux_it_says_that_it_did_nothing(monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed_memory() is False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
@pytest.mark.parametrize("where", ["main", "thread"])
def test_memory_that_was_freed_costs_no_new_page_faults(where) -> None:
    # six arrays of 16 MiB are 24 576 pages of 4 KiB, unless the kernel gives huge ones, and more
    # than one heap of a thread's own arena holds
    result = run_python("-c", _PROGRAM, where, check=True)
    before, after = map(int, result.stdout.split())
    assert before > 100
    assert after < before / 10
