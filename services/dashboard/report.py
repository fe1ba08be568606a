"""A run as one HTML file with everything in it: scripts, styles, curves, logs."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from pathlib import Path
from typing import Any, Final

from aclearn.errors import RunFolderError
from aclearn.runs import runs_in
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
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
<form id="choices">
<label>Axis <select id="axis"></select></label>
<label>Smoothing <select id="smoothing">
<option value="1">none</option>
<option value="5">mean of 5 points</option>
<option value="21">mean of 21 points</option>
</select></label>
</form>
<div id="run"></div>
</main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


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
    data = {"axes": AXES, "run": run_view(run), "logs": logs(run)}
    return _page(run.id, data).encode()


def _page(title: str, data: dict[str, Any]) -> str:
    script, style = _joined(_SCRIPTS), _joined(_STYLES)
    # "<" would end the element
    text = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    policy = (
        f"default-src 'none'; script-src {allowed_source(script)}; "
        f"style-src {allowed_source(style)}; base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=policy, title=html.escape(title), style=style, data=text, script=script
    )


def _joined(names: tuple[str, ...]) -> str:
    return "\n".join((_STATIC / name).read_text(encoding="utf-8") for name in names)


def allowed_source(text: str) -> str:
    """The source expression that allows exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
