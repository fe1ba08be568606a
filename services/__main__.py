"""`python -m services`: the command line, as `aclearn`."""

from __future__ import annotations

from aclearn.__main__ import main

if __name__ == "__main__":
    main()
