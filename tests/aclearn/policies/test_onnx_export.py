"""The comparison of an ONNX model with torch."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.policies.onnx_export import _is_near


@pytest.mark.parametrize(
    ("found", "reference", "near"),
    [
        ([1.0, 3.002], [1.0, 3.0], True),  # 0.001 of the largest is allowed
        ([1.0, 3.004], [1.0, 3.0], False),
        ([1.0, np.nan], [1.0, 3.0], False),
        ([1.0, np.nan], [1.0, np.nan], False),
        ([1.0, np.inf], [1.0, 3.0], False),
        ([1.0, -np.inf], [1.0, -np.inf], True),
        ([1.0, np.inf], [1.0, -np.inf], False),
        ([1.0], [1.0, 1.0], False),
    ],
)
def test_outputs_are_near_where_every_number_is(found, reference, near) -> None:
    assert _is_near(np.array(found), np.array(reference), 1e-3) is near
