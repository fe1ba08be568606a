"""The example learns, with weights at its actors that are older than the learner's."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.waiting import run_python

_EXAMPLE = Path(__file__).parents[2] / "examples" / "plain_impala.py"


def test_it_learns_from_older_policies() -> None:
    # an untrained policy balances the pole for about 20 steps
    done = run_python("-W", "error", _EXAMPLE, "--target", "30", "--max-steps", "60000")
    assert done.returncode == 0, done.stdout + done.stderr
    lags = [float(lag) for lag in re.findall(r"lag (\S+)", done.stdout)]
    assert lags and max(lags) > 1.0
    assert "target reached after" in done.stdout
