"""The page of a publication plays its policy in headless Chromium.

Skipped where there is no chromium or no onnxruntime-web; `make onnxruntime-web` fetches that.
"""

from __future__ import annotations

import functools
import http.server
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import aclearn
from services.commands.publishing.page import RUNTIME_FILES, runtime_folder
from tests.support.saved_runs import save_run

sync_api = pytest.importorskip("playwright.sync_api")
_CHROMIUM = shutil.which("chromium")
_RUNTIME = all((runtime_folder() / name).is_file() for name in RUNTIME_FILES)
pytestmark = [
    pytest.mark.skipif(_CHROMIUM is None, reason="there is no chromium"),
    pytest.mark.skipif(not _RUNTIME, reason="no onnxruntime-web: make onnxruntime-web"),
]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    memory = {"memory": {"kind": "gru", "size": 4}}
    run = save_run(
        tmp_path, {"id": "CartPole-v1"}, policy=memory, compressor={"chain": ["fp16", "onnx"]}
    )
    made = aclearn.publish(run, tmp_path / "out", episodes=1)
    assert "index.html" in made.files
    handler = functools.partial(_Quiet, directory=str(made.path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join(20)


def test_both_models_play_whole_episodes(address: str) -> None:
    said = list[str]()
    with sync_api.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark")
        page.set_default_timeout(60_000)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(address)
        for model in ("policy.onnx", "policy-compressed.onnx"):
            page.get_by_label("Model").select_option(model)
            sync_api.expect(page.get_by_label("Model")).to_be_enabled(timeout=60_000)
            episodes = page.locator("#episodes")
            sync_api.expect(episodes).to_have_text(re.compile(r"[2-9]"), timeout=60_000)
            assert float(page.locator("#mean").text_content()) > 5
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("button", name="Play").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert page.locator("#error").text_content() == ""
        browser.close()
    assert said == []
