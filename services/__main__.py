"""`aclearn` before its imports: an early Ctrl-C ends it without a traceback."""

from __future__ import annotations

import os
import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; before that, only the standard library is loaded."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in a script's background
        # Nothing needs cleaning up yet, and an import might swallow an exception.
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    from services.cli import main as run

    run()


if __name__ == "__main__":
    main()
