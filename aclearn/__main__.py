"""`aclearn` before its imports: early signals to end, and modules that hide the commands."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; before that, only the standard library is loaded."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in a script's background
        # Nothing needs cleaning up yet, and an import might swallow an exception.
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    if os.getpid() == 1:  # of a container: without a handler the kernel ignores its SIGTERM
        signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    from aclearn.errors import HiddenPackage
    from aclearn.hidden_packages import check_packages

    try:
        check_packages()
    except HiddenPackage as error:
        print(f"aclearn: {error}", file=sys.stderr)
        sys.exit(1)
    importlib.import_module("services.cli").main()
    raise AssertionError("the command line exits")


if __name__ == "__main__":
    main()
