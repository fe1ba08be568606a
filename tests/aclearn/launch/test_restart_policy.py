from __future__ import annotations

import pytest

from aclearn.launch.restart_policy import RestartPolicy


@pytest.mark.parametrize(
    ("policy", "failures", "delays"),
    [
        # the delay doubles up to the ceiling
        (RestartPolicy(10, 300.0, 0.5, 3.0), [0, 1, 2, 3, 4], [0.5, 1.0, 2.0, 3.0, 3.0]),
        (RestartPolicy(2, 100.0, 1.0, 8.0), [0, 10, 20], [1.0, 2.0, None]),
        (RestartPolicy(0, 100.0, 1.0, 8.0), [0], [None]),
        # a failure exactly as old as the window is out, for the budget and for the delay
        (RestartPolicy(2, 100.0, 1.0, 8.0), [0, 50, 100, 120, 500], [1.0, 2.0, 2.0, None, 1.0]),
        (RestartPolicy(1, 10.0, 0.5, 8.0), range(0, 1100, 11), [0.5] * 100),
        # a long row of failures stays at the ceiling without overflow
        (RestartPolicy(5000, 1e9, 0.5, 1.0), range(3000), [0.5] + [1.0] * 2999),
    ],
)
def test_restarts_are_bounded_in_a_window_and_delayed_by_the_failures_in_it(
    policy: RestartPolicy, failures: list[int], delays: list[float | None]
) -> None:
    assert [policy.failed(float(now)) for now in failures] == delays
