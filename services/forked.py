"""The program of the server from which `aclearn train` forks its roles."""

from __future__ import annotations

import os
import socket
import sys

from aclearn.launch.forking import become_fork

if __name__ == "__main__":  # not where `multiprocessing` of an environment imports it
    # what most roles import; torch would take as long again, and only trainers need it at once
    import numpy as np

    import services.actor.main
    import services.commands.role
    import services.monitor.main
    import services.start.run_role  # noqa: F401
    from services.cli import main

    arguments = become_fork(socket.socket(fileno=int(sys.argv[1])))
    if arguments is None:
        os._exit(0)
    np.random.seed()  # else a user's environments would draw alike in all actors
    sys.argv = [sys.argv[0], *arguments]
    main()
