"""The known faults of FinRL's numpy environment, for a comparison with it, step by step.

`env_stocktrading_np.py` of FinRL 0.3.7 differs from `mdp` in these points:

* The cost of a buy is not part of what can be afforded, so that the cash falls below 0,
  and then even the shares: a buy with cash below 0 sells.
* Buys take the cash in the order of the stocks: the first ones leave nothing for the others.
* The turbulence of the bar at which orders are filled decides, not the one that the policy saw.
* The reward of the last step is not its own, but the discounted sum of all.
"""

from __future__ import annotations

import numpy as np

from aclearn.envs.trading.market import Numbers
from aclearn.envs.trading.mdp import Accounts, Filled, Rules

#: FinRL's discount of the sum that replaces the last reward.
DISCOUNT = 0.99


def fill_as_finrl(accounts: Accounts, orders: Numbers, prices: Numbers, rules: Rules) -> Filled:
    """Fill orders [B, n] at prices [B, n] with the first two faults."""
    # shares may be below 0 here
    sold = np.where(orders < 0.0, np.minimum(-orders, accounts.shares), 0.0)
    proceeds = (sold * prices).sum(axis=1)
    cash = accounts.cash + proceeds * (1.0 - rules.cost)
    bought = np.zeros_like(orders)
    for i in range(orders.shape[1]):
        # below 0 where the cash is: that many shares are sold
        some = np.where(orders[:, i] > 0.0, np.minimum(cash // prices[:, i], orders[:, i]), 0.0)
        bought[:, i] = some
        cash = cash - some * prices[:, i] * (1.0 + rules.cost)
    traded = proceeds + (bought * prices).sum(axis=1)
    return Filled(Accounts(cash, accounts.shares - sold + bought), traded, traded * rules.cost)
