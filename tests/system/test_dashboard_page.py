"""The dashboard's page and a report in headless Chromium; skipped where there is none."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from aclearn.runs.lock import lock_all
from services.dashboard.app import make_app
from services.dashboard.monitors import Monitors
from services.dashboard.report import report_of
from services.dashboard.run_index import RunIndex
from services.dashboard.serve import _listen
from tests.support.answering_monitor import Answering
from tests.support.searches import write_population, write_sweep

sync_api = pytest.importorskip("playwright.sync_api")
_CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(_CHROMIUM is None, reason="there is no chromium")
_TOKEN = "a-token-of-a-test"
_MARKUP = "<img src=x onerror=alert(1)>-1"
_TITLES = "all => all.map(each => each.ariaLabel.split(' over ')[0])"
_FOCUSED = "document.activeElement.ariaLabel || document.activeElement.innerText"
_AXE = Path(__file__).parents[1] / "support" / "vendor" / "axe-core" / "axe.min.js"


def _write(run: Path, steps: list[int]) -> None:
    (run / "logs").mkdir(parents=True, exist_ok=True)
    (run / "logs" / "actor-0.log").write_text("level=WARNING event=<b>odd</b>\n")
    decision = {
        **{"time_s": 2, "verdict": "accepted", "reason": "+10 %", "temperature": 0.0},
        **{"counts": {"actors": 2}, "kept": {"actors": 2}, "rate": 5.0, "baseline": None},
    }
    (run / "tuner.jsonl").write_text(json.dumps(decision) + "\n")
    seed = run.name[-1]  # the only difference of the configurations
    (run / "config.yaml").write_text(f"env: {{id: CartPole-v1}}\nrun: {{seed: {seed}}}\n")
    waits = {"trainer": {"unrolls": 0.6, "working": 0.4}, "actor": {"emulator": 1.0}}
    with (run / "metrics.jsonl").open("a") as file:
        for i in steps:
            line = {
                **{name: float(i) for name in ("time_s", "env_steps", "learned_steps")},
                "updates": i,
                "entropy": 0.5,
                "learning_rate": 1e-5,
                "return_mean_100": i / 10,
                "queue_fill": 0.5,
                "wait_share": waits,
                "compressor_artifact_bytes": 1000 + i,
                "dropped_steps": {"lag": i},
            }
            file.write(json.dumps(line) + "\n")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page as wide as a phone's, in dark mode; no message may be on its console."""
    with _page(browser, "dark") as page:
        yield page


@contextmanager
def _page(browser: Any, scheme: str) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme=scheme)
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
    write_sweep(tmp_path / "runs" / "search")
    write_population(tmp_path / "runs" / "evolved")
    with (
        _listen("127.0.0.1", 0) as listener,
        RunIndex(tmp_path / "runs", tmp_path / "store") as index,
        Monitors() as monitors,
    ):
        app = make_app(index, monitors, host="127.0.0.1", token=None, actions_token=_TOKEN)
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
    page.get_by_label("one line for runs of equal settings").uncheck()
    page.get_by_text("tag-2 (1 run, no interval)").first.wait_for()
    page.get_by_label("Figure").select_option("entropy")
    page.get_by_text("entropy (nats); smoothing: none").wait_for()
    page.get_by_label("Filter").fill("tag-2")
    assert page.locator("#runs tbody tr").count() == 1
    page.get_by_role("link", name="tag-2").click()
    page.get_by_text("Bottleneck: actor").wait_for()
    assert page.locator(".flow h4").all_text_contents() == [
        *("actor", "training queue", "trainer", "compressor")
    ]
    titles = page.locator(".chart").evaluate_all(
        "all => all.map(e => e.ariaLabel.split(' over')[0])"
    )
    assert {"return", "dropped steps by reason", "tuner's counts", "compression: size (bytes)"} <= {
        *titles
    }
    page.get_by_label("Axis").select_option("time_s")
    page.locator("#run .u-label", has_text="wall time (s)").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(13, 17, 23)"
    shutil.rmtree(tmp_path / "runs" / "tag-2")
    page.get_by_text("it may have been deleted").wait_for()


def test_new_lines_go_into_the_charts_and_what_is_open_stays_open(
    address: str, page: Any, tmp_path: Path
) -> None:
    page.goto(f"{address}#tag-1")
    page.get_by_text("Log of actor-0 (1 warning)").click()
    page.locator("#run canvas").first.evaluate("canvas => { canvas.dataset.mine = 'yes'; }")
    _write(tmp_path / "runs" / "tag-1", [777])
    page.locator("dd", has_text="777").first.wait_for()
    page.locator(".chart[aria-label*='return_mean_100 77.7']").wait_for()
    assert page.locator("canvas[data-mine=yes]").count() == 1
    assert page.locator("details[open] pre", has_text="<b>odd</b>").is_visible()


def test_the_keyboard_chooses_sorts_and_opens_runs_and_their_markup_is_text(
    address: str, page: Any
) -> None:
    page.goto(address)
    page.get_by_label("compare tag-1").wait_for()
    page.get_by_label("Filter").focus()
    reached = list[str]()
    for _ in range(20):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            "document.activeElement.ariaLabel || document.activeElement.innerText"
        )
        reached.append(focused)
        if focused == "agent steps":
            page.keyboard.press("Enter")
        elif focused == "compare tag-1":
            page.keyboard.press("Space")
            break
    assert reached[:2] == ["Table of runs", "compare all runs of the table"]
    assert page.locator("th[aria-sort=ascending]").inner_text() == "agent steps"
    page.locator("#compared canvas").wait_for()
    assert page.evaluate("document.activeElement.ariaLabel") == "compare tag-1"
    page.get_by_role("link", name=_MARKUP).focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=_MARKUP).wait_for()
    assert page.locator("img").count() == 0


def test_a_sweep_and_a_population_are_pictures_with_their_best_configuration(
    address: str, page: Any
) -> None:
    page.goto(address)
    page.get_by_role("link", name="search", exact=True).click()
    page.get_by_text("3 trials: 1 complete, 1 pruned, 1 fail").wait_for()
    assert page.locator("polyline.trial").count() == 3
    assert page.locator("polyline.best").get_attribute("data-trial") == "0"
    page.get_by_role("link", name="search/trial-1-seed-1").focus()
    assert page.locator("polyline.marked").get_attribute("data-trial") == "1"
    assert page.locator("meter").first.get_attribute("aria-label") == (
        "importance of optimiser.learning_rate"
    )
    with page.expect_download() as download:
        page.get_by_role("link", name="Download best.yaml").click()
    assert download.value.path().read_text() == "optimiser: {learning_rate: 0.001}\n"
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.get_by_role("link", name="All runs").click()
    page.get_by_role("link", name="evolved", exact=True).click()
    page.get_by_text("The best so far: member 1 in round 3, fitness 9.").wait_for()
    assert page.locator("circle.member").count() == 8 + 9  # one member died before a fitness
    assert page.locator("polyline.copies").count() == 2 + 2
    assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_axe_finds_nothing_serious(address: str, browser: Any, scheme: str) -> None:
    with _page(browser, scheme) as page:
        for place in ("", "#tag-1", "#search:sweep%2Fsearch", "#search:population%2Fevolved"):
            page.goto(f"{address}{place}")
            if place:
                page.locator("#run h3").first.wait_for()
            else:
                page.get_by_label("compare all runs of the table").check()
                page.locator("#compared canvas").wait_for()
            page.evaluate(
                "for (const each of document.querySelectorAll('details')) each.open = true"
            )
            assert _serious(page) == []
        page.goto(f"{address}login")
        assert _serious(page) == []


def _serious(page: Any) -> list[str]:
    page.evaluate(_AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {node['html']} {node['failureSummary']}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def test_a_report_opens_from_a_file(page: Any, tmp_path: Path) -> None:
    _write(tmp_path / "a", [1, 2, 3])
    (tmp_path / "a.html").write_bytes(report_of(tmp_path / "a"))
    page.goto((tmp_path / "a.html").as_uri())
    page.locator("canvas").first.wait_for()
    page.get_by_label("Axis").select_option("time_s")
    page.locator(".u-label", has_text="wall time (s)").first.wait_for()
    titles = page.locator(".chart").evaluate_all(
        "all => all.map(e => e.ariaLabel.split(' over')[0])"
    )
    assert {"return", "dropped steps by reason", "tuner's counts"} <= {*titles}
    assert _serious(page) == []


def test_a_live_run_is_told_what_to_do_by_who_has_the_token(
    address: str, browser: Any, tmp_path: Path
) -> None:
    run = tmp_path / "runs" / "tag-1"
    with (
        closing(lock_all(run)),
        closing(Answering(None, run, f"ipc://{tmp_path}/monitor.sock")) as answering,
    ):
        page = browser.new_page(bypass_csp=True, viewport={"width": 390, "height": 844})
        page.set_default_timeout(30_000)
        page.goto(f"{address}#tag-1")
        page.get_by_role("heading", name="actor × 2").wait_for()
        page.get_by_text("Processes: 3").click()
        page.get_by_text("actor-1: process 1 on box").wait_for()
        page.get_by_text("Rung of the ladder: not possible. SetChain: compressor is not").wait_for()
        assert _serious(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.get_by_text("the schedule makes it 0.00001 now").wait_for()
        page.get_by_label("Base learning rate").fill("0.125")
        page.get_by_label("Token").fill(_TOKEN)
        page.get_by_role("button", name="Set base learning rate").click()
        page.get_by_text("done; the events say what follows").wait_for()
        page.get_by_text("the user's action: SetLearningRate rate 0.125").wait_for()
        assert answering.monitor.state._channel.of_user() == {"SetLearningRate": {"rate": 0.125}}
        _write(run, [4])  # the form stays while the run goes on
        page.locator("#run").get_by_text("4", exact=True).first.wait_for()
        assert page.get_by_label("Base learning rate").input_value() == "0.125"
        asked = list[str]()
        for answer in ("dismiss", "accept"):

            def take(dialog: Any, answer: str = answer) -> None:
                asked.append(dialog.message)
                getattr(dialog, answer)()

            page.once("dialog", take)
            page.get_by_role("button", name="Stop the run").click()
        page.get_by_text("the run ends: stopped by a user in the dashboard").wait_for()
        assert len(asked) == 2 and all("Stop the run tag-1?" in text for text in asked)


def test_a_wrong_token_and_a_silent_monitor_are_said(
    address: str, browser: Any, tmp_path: Path
) -> None:
    run = tmp_path / "runs" / "tag-1"
    with (
        closing(lock_all(run)),
        closing(Answering(None, run, f"ipc://{tmp_path}/monitor.sock")) as answering,
    ):
        page = browser.new_page()
        page.set_default_timeout(30_000)
        page.goto(f"{address}#tag-1")
        page.get_by_label("Token").fill("another")
        page.get_by_role("button", name="Save a checkpoint").click()
        page.get_by_text("refused: an action needs the printed token").wait_for()
        answering.silent.set()
        page.get_by_text("does not answer; this is what the files say").wait_for()
        assert page.locator("#actions").inner_text() == ""


def test_a_folder_without_runs_is_said_plainly(address: str, page: Any, tmp_path: Path) -> None:
    page.goto(address)
    page.get_by_role("link", name="tag-1").wait_for()
    shutil.rmtree(tmp_path / "runs")
    (tmp_path / "runs").mkdir()
    page.get_by_text(f"there are no runs in {tmp_path / 'runs'}").wait_for()
    assert page.locator("#runs tbody tr").count() == 0
