"""What the holders of one key can give a trainer: processes, and unrolls a second."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from aclearn.errors import WireError
from aclearn.wire import AllowedKey

#: Reason of a refusal, and of dropped steps.
QUOTA: Final = "quota"
#: Seconds after its last unroll in which a process takes a place of its key. It is short, so that
#: a process that was started again soon gets the place of the one before.
_LIVES_S: Final = 5.0
_ROUNDING: Final = 1e-9
#: Seconds of unrolls that a key may send at once.
_BURST_S: Final = 2.0


@dataclass
class _Use:
    """What a key has used: when each incarnation was heard, and unrolls that it has left."""

    heard: OrderedDict[str, float] = field(default_factory=OrderedDict)
    left: float = 0.0
    at: float = float("-inf")


class KeyQuota:
    """The bounds of the list of keys, for one trainer. Pure: time is an argument."""

    def __init__(self) -> None:
        self._uses: dict[str, _Use] = {}

    def check_process(self, key: AllowedKey | None, incarnation: str, now: float) -> None:
        """Raise `WireError` if the key has as many other processes as it may have."""
        if key is None or not key.processes:
            return
        heard = self._of(key).heard
        while heard and now - next(iter(heard.values())) > _LIVES_S:
            heard.popitem(last=False)
        if incarnation not in heard and len(heard) >= key.processes:
            raise WireError(
                QUOTA,
                f"the key {key.name} is for at most {key.processes} processes, which are there",
            )
        heard[incarnation] = now
        heard.move_to_end(incarnation)

    def check_rate(self, key: AllowedKey | None, now: float) -> None:
        """Raise `WireError` if the key's processes send more unrolls than they may."""
        if key is None or not key.unrolls_per_s:
            return
        use, rate = self._of(key), key.unrolls_per_s
        use.left = min(max(1.0, _BURST_S * rate), use.left + rate * (now - use.at))
        use.at = now
        if use.left < 1.0 - _ROUNDING:
            raise WireError(
                QUOTA, f"the processes of the key {key.name} may send {rate:g} unrolls a second"
            )
        use.left -= 1.0

    def _of(self, key: AllowedKey) -> _Use:
        return self._uses.setdefault(key.name, _Use())
