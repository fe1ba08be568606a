"""`aclearn backtest`: policies and baselines on a period that no policy has seen."""

from __future__ import annotations
