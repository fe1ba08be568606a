"""The tutorial docs/first_hour.md, command by command, with short runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from PIL import Image

from tests.support.system import System
from tests.support.waiting import DEADLINE_S

_DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_SHORT = " run.max_updates=60 run.metrics_every_s=0.25"


def _write_files(page: str, folder: Path) -> None:
    """Write the blocks of a page that begin with the name of a file."""
    for _, text in _BLOCK.findall((_DOCS / page).read_text("utf-8")):
        named = re.match(r"# (\S+\.(?:py|yaml))\n", text)
        if named:
            (folder / named[1]).write_text(text, encoding="utf-8")


def _run(command: str, system: System) -> str:
    """The output of a command of the shell."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=system.folder,
        env={**system.environment, "PATH": path},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


#: Words of the commands that make an environment and a network of one's own.
_OWN = re.compile(r"aclearn new|my_env|config\.yaml|my_network")


def _outputs(system: System, *, own: bool) -> dict[str, str]:
    """Command → output, of the tutorial's part with one's own modules or of the rest."""
    _write_files("first_hour.md", system.folder)
    return {
        command: _run(command + _SHORT * command.startswith("aclearn train"), system)
        for language, text in _BLOCK.findall((_DOCS / "first_hour.md").read_text("utf-8"))
        if language == "sh"
        for command in text.splitlines()
        if bool(_OWN.search(command)) is own
    }


def test_every_command_of_the_first_hour_and_the_recipe_of_a_video_work(system: System) -> None:
    outputs = _outputs(system, own=False)
    assert (system.folder / "returns.png").stat().st_size > 0
    played = outputs["python play.py"]
    assert re.search(r"max_updates -?\d[\d.]*\nthe pole stood for \d+ steps", played), played
    assert outputs["python act.py"] in ("[0]\n", "[1]\n")
    _run("aclearn evaluate runs/cartpole-1 --episodes 1 --video cartpole.gif", system)
    with Image.open(system.folder / "cartpole.gif") as video:
        assert video.size == (600, 400) and getattr(video, "n_frames", 1) > 5


def test_the_own_modules_of_the_first_hour_and_the_recipe_of_a_sweep_work(system: System) -> None:
    outputs = _outputs(system, own=True)
    assert len(outputs) == 4 and "MEND" not in outputs["aclearn check-env my_env:make"]
    _write_files("recipes.md", system.folder)
    sweep = system.folder / "sweep.py"
    text = sweep.read_text().replace("500_000,", '500_000, "run.max_updates": 5,')
    sweep.write_text(text.replace("(1e-3, 2e-3)", "(1e-3,)"))
    for number in (1, 2):
        name = rf"sweep-0\.001-{number}"
        assert re.search(rf"{name} \{{'{name}': ", _run("python sweep.py", system))
