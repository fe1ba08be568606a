"""The chain of AcceRL as a user runs it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.support.waiting import run_python

_EXAMPLE = Path(__file__).parents[2] / "examples" / "compress_policy.py"


def test_the_papers_chain_compresses_a_policy_that_then_plays() -> None:
    done = run_python(_EXAMPLE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    said = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in done.stdout.splitlines())
    assert re.fullmatch(r"prune=0\.5>distill>int8(-7bit)?>onnx", said["chain"]), done.stdout
    before, after = (int(size.replace(",", "")) for size in said["bytes"].split(" → "))
    # conv 32·4·8² + 64·32·4² + 64·64·3², dense 3136·2048, heads 2048·7, and a bias for each unit
    weights = 8_192 + 32_768 + 36_864 + 6_422_528 + 14_336 + (32 + 64 + 64 + 2048 + 7)
    assert before == 4 * weights
    # half of each layer's units, a byte for each weight; the rest are biases and scales
    pruned = 16 * 4 * 8**2 + 32 * 16 * 4**2 + 32 * 32 * 3**2 + 1024 * 32 * 7**2 + 6 * 1024
    assert pruned < after < 1.01 * pruned
