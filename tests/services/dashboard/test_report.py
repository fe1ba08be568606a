"""A run as one HTML file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aclearn.errors import ConfigError, RunFolderError
from services.cli import app
from services.dashboard.report import report_of


def _run(path: Path) -> Path:
    (path / "logs").mkdir(parents=True)
    (path / "config.yaml").write_text("run: {target_return: 9}\n")
    lines = [{"time_s": i, "env_steps": 10 * i, "return_mean_100": i / 2} for i in (1, 2)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    (path / "logs" / "actor-0.log").write_text("</script><script>alert(1)</script>\n")
    return path


def test_the_page_has_curves_and_logs_and_loads_nothing(tmp_path: Path) -> None:
    page = report_of(_run(tmp_path / "a")).decode()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert found is not None
    data = json.loads(found[1])
    assert data["run"]["curves"]["lines"]["return_mean_100"] == [0.5, 1]
    assert data["logs"] == {"actor-0": ["</script><script>alert(1)</script>"]}
    assert [chart["title"] for chart in data["run"]["charts"]] == ["return"]
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)
    assert "<script>alert" not in page


def test_its_policy_allows_exactly_its_own_script_and_style(tmp_path: Path) -> None:
    page = report_of(_run(tmp_path / "a")).decode()
    policy = re.search(r'Policy" content="([^"]+)"', page)
    assert policy is not None
    for element in ("script", "style"):
        text = re.search(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        assert text is not None
        digest = base64.b64encode(hashlib.sha256(text[1].encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}';" in policy[1]
    assert policy[1].startswith("default-src 'none'")


def test_a_name_with_markup_is_shown_as_text(tmp_path: Path) -> None:
    page = report_of(_run(tmp_path / "<b>&x")).decode()
    assert "<title>&lt;b&gt;&amp;x</title>" in page
    assert "<b>" not in page


@pytest.mark.parametrize("kind", ["nothing", "folder of runs", "empty"])
def test_what_is_no_run_with_metrics_is_refused(tmp_path: Path, kind: str) -> None:
    run = _run(tmp_path / "a")
    if kind == "empty":
        (run / "metrics.jsonl").write_text('{"half')
    path = {"nothing": tmp_path / "x", "folder of runs": tmp_path, "empty": run}[kind]
    with pytest.raises(RunFolderError, match=r"no run folder|no metrics line yet"):
        report_of(path)


def test_the_command_writes_a_page_once(tmp_path: Path) -> None:
    run, out = _run(tmp_path / "a"), tmp_path / "a.html"
    arguments = ["report", str(run), "--out", str(out)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert out.read_bytes().startswith(b"<!doctype html>")
    again = CliRunner().invoke(app, arguments)
    assert isinstance(again.exception, ConfigError)
    assert CliRunner().invoke(app, [*arguments, "--force"]).exit_code == 0
    other = CliRunner().invoke(app, ["report", str(run), "--out", str(tmp_path / "a.txt")])
    assert "ends in .html" in str(other.exception)
