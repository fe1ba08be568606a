"""A run as one HTML file with everything in it: scripts, styles, curves, logs."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Final

from aclearn.errors import RunFolderError
from aclearn.runs import runs_in
from aclearn.views.html_page import joined_texts, page_of
from aclearn.views.run_state import run_state
from services.dashboard.charts import AXES
from services.dashboard.run_index import open_run
from services.dashboard.run_view import logs, run_view

_STATIC: Final = Path(__file__).parent / "static"
_SCRIPTS: Final = (
    "vendor/uPlot.iife.min.js",
    "elements.js",
    "charts.js",
    "view.js",
    "report.js",
)
_STYLES: Final = ("vendor/uPlot.min.css", "page.css")
_CHOICES: Final = """<form id="choices">
<label>Axis <select id="axis"></select></label>
<label>Smoothing <select id="smoothing">
<option value="1">none</option>
<option value="5">mean of 5 points</option>
<option value="21">mean of 21 points</option>
</select></label>
</form>
<div id="run"></div>"""


def report_of(run_dir: Path) -> bytes:
    """The page of a run, running or over; it loads nothing, and its policy forbids that.

    Raises:
        RunFolderError: it is no run folder, or has no metrics yet.
    """
    if runs_in(run_dir) != [run_dir]:
        raise RunFolderError(f"there is no run folder {run_dir}; expected runs/<name>")
    run = open_run(run_dir.resolve().name, run_dir)
    while run.series.read_on():
        pass
    if not run.series.lines:
        raise RunFolderError(
            f"{run_dir / 'metrics.jsonl'} has no metrics line yet; wait a few seconds, or look "
            "into its logs"
        )
    run.state = run_state(run_dir, run.series.newest)
    page = page_of(
        run.id,
        f"<h1>{html.escape(run.id)}</h1>\n{_CHOICES}",
        data={"axes": AXES, "run": run_view(run), "logs": logs(run)},
        style=joined_texts(_STATIC, _STYLES),
        script=joined_texts(_STATIC, _SCRIPTS),
    )
    return page.encode()
