"""Labels of the time that a role works or waits."""

from __future__ import annotations

from typing import Final

OTHER_WORKERS = "the other workers"


TOTAL: Final = "total"


WORKING: Final = "working"


#: A wait's name among the parts of a meter: "waiting for unrolls".
WAITING_FOR: Final = "waiting for "


#: Labels that are waits to the thread, since it does nothing, but work to the process: threads of
#: the emulator do it.
WORK_OF_OTHERS: Final = frozenset({"emulator"})
