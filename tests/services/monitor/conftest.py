"""A monitor's state for the tests in this folder."""

from __future__ import annotations

import pytest

from tests.support.monitor import Monitor


@pytest.fixture
def monitor(tools) -> Monitor:
    return Monitor(tools)
