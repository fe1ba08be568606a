"""The largest numbers of a run: one bound for each quantity, wherever it is checked."""

from __future__ import annotations

from typing import Final

LARGEST_NUMBER: Final = 1e12
"""Bound of a reward and of an observation. Squares of sums of such numbers are finite in float32,
so that one environment cannot spoil a shared batch."""

LARGEST_ACTION: Final = 1e6
"""Bound of a sampled action: squared distances of such numbers are finite in float32."""

MOST_CHAIN_BYTES: Final = 1000
"""Bound of a chain's id: a trainer's heartbeat counts steps by it, under a longer name of at most
1024 bytes."""

LARGEST_FIGURE: Final = 1e100
"""Bound of a return and of any other figure of a role: sums over a run are finite."""
