"""What holds for every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No clock decides over a test: machines are slow at times. And the examples are the same every
# time, so that a change is judged by what it changes.
settings.register_profile(
    "any-machine",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any-machine")
