"""Requests to a predictor, and a served predictor."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.support.predicting import Serving


@pytest.fixture
def serving(roles, tools) -> Iterator[Serving]:
    serving = Serving(roles, tools)
    yield serving
    if serving.predictor is not None:
        serving.predictor.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("predictor-")]
