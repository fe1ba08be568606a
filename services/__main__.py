"""`aclearn` before its imports: Ctrl-C in the first second ends it without a traceback."""

from __future__ import annotations

import os
import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; nothing but the standard library is loaded before."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in a script's background
        # Nothing has begun that must be cleaned up, and an exception might get lost in an import.
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    from services.cli import main as run

    run()


if __name__ == "__main__":
    main()
