"""Finds modules of the user's that have the names of aclearn's packages, which are usual ones."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from aclearn.errors import HiddenPackage

_PACKAGES: Final = ("correctors", "compress", "services")


def check_packages() -> None:
    """Check that the packages beside `aclearn` are ours.

    Raises:
        HiddenPackage: another module of that name comes first on Python's path, or one is missing;
            says where it is and how to mend it.
    """
    root = Path(__file__).resolve().parents[1]
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise HiddenPackage(
                f"the package {name} of aclearn is missing; install aclearn again (it is expected "
                f"at {root / name})"
            )
        places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
        found = Path(str(places[0])).resolve() if places else Path(name)
        place = found.parent if found.name == "__init__.py" else found
        if place == root / name:
            continue
        rest = " and start Python again" if name in sys.modules else ""
        raise HiddenPackage(
            f"{place} hides the package {name} of aclearn, which is at {root / name}, since "
            f"{place.parent} comes first on Python's path; rename yours{rest}, or move it into a "
            "package of your own"
        )


def hidden_by_ours(folders: Iterable[str]) -> str | None:
    """A sentence on modules in `folders` that packages of aclearn hide; None if there are none."""
    root = Path(__file__).resolve().parents[1]
    hidden = [
        place
        for folder in dict.fromkeys(folders)
        for name in ("aclearn", *_PACKAGES)
        for place in (Path(folder, name), Path(folder, f"{name}.py"))
        if place.resolve() != root / name and (place.is_file() or any(place.glob("*.py")))
    ]
    if not hidden:
        return None
    names = " and ".join(dict.fromkeys(place.stem for place in hidden))
    return (
        f"{' and '.join(map(str, hidden))}: `import {names}` in your modules does not find this, "
        f"but the package of aclearn; rename yours"
    )
