"""Writes the pictures of the dashboard in docs/pictures/ from short real runs, which take minutes.

python -m tools.screenshots [RUNS_DIR]; an existing folder of an earlier call is taken as it is.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from PIL import Image
from playwright.sync_api import sync_playwright

PICTURES: Final = Path(__file__).parents[1] / "docs" / "pictures"
_SEEDS: Final = (1, 2, 3)
#: Keys of the runs: all parts of the page have something to show.
_KEYS: Final = (
    "run.max_env_steps=400_000",
    "run.metrics_every_s=0.5",
    "compressor.chain=[int8, onnx]",
    "evaluator.every_s=3",
    "tuner.enabled=true",
    "tuner.settle_s=1",
    "tuner.every_s=1",
    "tuner.remember=false",
)
_SWEEP: Final = {
    "config": "cartpole",
    "name": "rates",
    "search": {
        "optimiser.learning_rate": {"log": [1e-4, 1e-1]},
        "loss.entropy_cost": {"range": [0.0, 0.05]},
        "policy.hidden": {"choices": [[32], [64, 64]]},
    },
    "trials": 10,
    "steps": 10_000,
    "judgements": 2,
}
#: Picture → address, and width and height in pixels.
_SHOWN: Final = {
    "dashboard-runs": ("", 1000, 760),
    "dashboard-run": ("#cartpole-1", 1000, 1120),
    "dashboard-sweep": ("#search:sweep%2Frates", 1000, 760),
}
#: Colours of a picture: text and lines need few.
_COLOURS: Final = 96
_DEADLINE_S: Final = 1800


def main(runs: Path) -> None:
    """Train where there are no runs yet, then take the pictures, light and dark."""
    if not runs.exists():
        _train(runs)
    PICTURES.mkdir(exist_ok=True)
    with _dashboard(runs) as address, sync_playwright() as player:
        browser = player.chromium.launch(executable_path=shutil.which("chromium"))
        for scheme in ("light", "dark"):
            for name, (place, width, height) in _SHOWN.items():
                size = {"width": width, "height": height}
                page = browser.new_page(viewport=size, color_scheme=scheme)
                page.goto(f"{address}{place}")
                _wait(page, place)
                path = PICTURES / f"{name}-{scheme}.png"
                taken = Image.open(io.BytesIO(page.screenshot(full_page=not place)))
                taken.quantize(_COLOURS).save(path, optimize=True)
                page.close()
                print(f"{path}: {path.stat().st_size // 1000} kB")


def _train(runs: Path) -> None:
    for seed in _SEEDS:
        _aclearn("train", "cartpole", *_KEYS, f"run.dir={runs}", f"run.seed={seed}")
    sweep = runs / "sweep.yaml"
    sweep.write_text(json.dumps({**_SWEEP, "set": {"run.dir": str(runs)}}))
    _aclearn("sweep", str(sweep))


def _aclearn(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "aclearn", *arguments], check=True, timeout=_DEADLINE_S)


@contextmanager
def _dashboard(runs: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "aclearn", "dashboard", str(runs), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"http://\S+", process.stdout.readline())
            assert address is not None, "the dashboard has printed no address"
            yield address[0]
        finally:
            process.terminate()


def _wait(page: Any, place: str) -> None:
    if not place:
        for seed in _SEEDS:
            page.get_by_label(f"compare cartpole-{seed}", exact=True).check()
        page.locator("#compared .u-label", has_text=f"mean of {len(_SEEDS)} runs").wait_for()
    elif place.startswith("#search:"):
        page.locator("polyline.trial").first.wait_for()
    else:
        page.locator("#run canvas").first.wait_for()
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def _arguments(given: Sequence[str]) -> Path:
    return Path(given[0]) if given else Path(tempfile.mkdtemp()) / "runs"


if __name__ == "__main__":
    main(_arguments(sys.argv[1:]))
