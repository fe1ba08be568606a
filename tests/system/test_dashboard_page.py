"""The dashboard's page and a report in headless Chromium; skipped where there is none."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from services.dashboard.app import make_app
from services.dashboard.report import report_of
from services.dashboard.run_index import RunIndex
from services.dashboard.serve import _listen

sync_api = pytest.importorskip("playwright.sync_api")
_CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(_CHROMIUM is None, reason="there is no chromium")
_MARKUP = "<img src=x onerror=alert(1)>-1"


def _write(run: Path, steps: list[int]) -> None:
    run.mkdir(parents=True, exist_ok=True)
    seed = run.name[-1]  # the only difference of the configurations
    (run / "config.yaml").write_text(f"env: {{id: CartPole-v1}}\nrun: {{seed: {seed}}}\n")
    waits = {"trainer": {"unrolls": 0.6, "working": 0.4}, "actor": {"emulator": 1.0}}
    with (run / "metrics.jsonl").open("a") as file:
        for i in steps:
            line = {
                **{name: float(i) for name in ("time_s", "env_steps", "learned_steps")},
                "updates": i,
                "return_mean_100": i / 10,
                "queue_fill": 0.5,
                "wait_share": waits,
            }
            file.write(json.dumps(line) + "\n")


@pytest.fixture
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page as wide as a phone's, in dark mode; no message may be on its console."""
    page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark")
    page.set_default_timeout(15_000)
    said = list[str]()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    yield page
    page.close()
    assert said == []


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    for name in ("tag-1", "tag-2", _MARKUP):
        _write(tmp_path / "runs" / name, [1, 2, 3])
    with (
        _listen("127.0.0.1", 0) as listener,
        RunIndex(tmp_path / "runs", tmp_path / "store") as index,
    ):
        app = make_app(index, host="127.0.0.1", token=None)
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def test_runs_are_compared_shown_and_followed(address: str, page: Any, tmp_path: Path) -> None:
    page.goto(address)
    page.get_by_label("compare tag-1").check()
    page.get_by_label("compare tag-2").check()
    page.get_by_text("tag (mean of 2 runs, 95 % interval").first.wait_for()
    page.get_by_label("Filter").fill("tag-2")
    assert page.locator("#runs tbody tr").count() == 1
    page.get_by_role("link", name="tag-2").click()
    page.get_by_text("Bottleneck: actor").wait_for()
    assert page.locator(".flow h4").all_text_contents() == ["actor", "training queue", "trainer"]
    page.get_by_label("Axis").select_option("time_s")
    page.locator("#run .u-label", has_text="wall time (s)").first.wait_for()
    _write(tmp_path / "runs" / "tag-2", [777])
    page.locator("dd", has_text="777").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(13, 17, 23)"
    shutil.rmtree(tmp_path / "runs" / "tag-2")
    page.get_by_text("it may have been deleted").wait_for()


def test_a_run_is_opened_by_the_keyboard_and_its_markup_is_text(address: str, page: Any) -> None:
    page.goto(address)
    link = page.get_by_role("link", name=_MARKUP)
    link.focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=_MARKUP).wait_for()
    assert page.locator("img").count() == 0


def test_a_report_opens_from_a_file(page: Any, tmp_path: Path) -> None:
    _write(tmp_path / "a", [1, 2, 3])
    (tmp_path / "a.html").write_bytes(report_of(tmp_path / "a"))
    page.goto((tmp_path / "a.html").as_uri())
    page.locator("canvas").first.wait_for()
    page.get_by_label("Axis").select_option("time_s")
    page.locator(".u-label", has_text="wall time (s)").first.wait_for()
