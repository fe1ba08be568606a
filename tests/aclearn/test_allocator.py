"""The allocator's switch, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aclearn.allocator import keep_freed_memory

_PROGRAM = """
import resource
import numpy
from aclearn.allocator import keep_freed_memory

def faults_of_a_step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        numpy.empty(16 << 20, numpy.uint8)[::4096] = 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = faults_of_a_step()
assert keep_freed_memory()
faults_of_a_step()
print(before, faults_of_a_step())
"""


def test_elsewhere_than_on_linux_it_says_that_it_did_nothing(monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed_memory() is False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_memory_that_was_freed_costs_no_new_page_faults() -> None:
    # ten arrays of 16 MiB are 40 960 pages of 4 KiB, unless the kernel gives huge ones
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    before, after = map(int, result.stdout.split())
    assert before > 100
    assert after < before / 10
