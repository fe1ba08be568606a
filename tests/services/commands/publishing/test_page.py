"""The page's CartPole is gymnasium's, and which runs get a page."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from services.commands.publishing import page
from services.evaluator.saved_policy import load_run
from tests.support.saved_runs import save_run

_NODE = shutil.which("node")


@pytest.mark.skipif(_NODE is None, reason="there is no node")
def test_cartpole_in_javascript_is_gymnasiums() -> None:
    env = gymnasium.make("CartPole-v1").unwrapped
    rng = np.random.default_rng(3)
    episodes = []
    for seed in range(20):
        env.reset(seed=seed)
        start, seen, ended = env.state.tolist(), [], False
        actions = []
        while not ended:
            # mostly to the side to which the pole falls: long episodes and both ends
            helps = int(env.state[2] + env.state[3] > 0)
            actions.append(helps if rng.random() < 0.5 + seed / 40 else 1 - helps)
            observation, reward, ended, _, _ = env.step(actions[-1])
            seen.append([*observation.tolist(), reward, ended])
        episodes.append((start, actions, seen))
    script = (
        (page._STATIC / "cartpole.js").read_text()
        + f"""
      const episodes = {json.dumps([(start, actions) for start, actions, _ in episodes])};
      console.log(JSON.stringify(episodes.map(([state, actions]) => actions.map((action) => {{
        const [next, reward, terminated] = environment.step(state, action);
        state = next;
        return [...Float32Array.from(state), reward, terminated];
      }}))));
      const begun = Array.from({{length: 1000}}, environment.begin).flat();
      if (begun.length !== 4000 || begun.some((x) => !(Math.abs(x) <= 0.05))) throw begun;
    """
    )
    done = subprocess.run([_NODE, "-e", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert max(len(actions) for _, actions, _ in episodes) > 100
    for (_, _, expected), found in zip(episodes, json.loads(done.stdout), strict=True):
        assert [row[5] for row in found] == [row[5] for row in expected]
        np.testing.assert_allclose(
            np.array(found, np.float64), np.array(expected, np.float64), rtol=2e-7, atol=1e-9
        )


def test_a_page_needs_its_environment_as_it_is_and_its_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pole = load_run(save_run(tmp_path / "a", {"id": "CartPole-v1"}))
    other = load_run(save_run(tmp_path / "b", {"id": "Acrobot-v1"}))
    kwargs = {"id": "CartPole-v1", "kwargs": {"sutton_barto_reward": True}}
    rules = load_run(save_run(tmp_path / "c", kwargs))
    assert "plays CartPole-v1, and this is Acrobot-v1" in str(page.why_no_page(other))
    assert "without env.kwargs" in str(page.why_no_page(rules))
    assert "lacks ort.wasm.min.js" in str(page.why_no_page(pole))
    page.runtime_folder().mkdir(parents=True)
    for name in page.RUNTIME_FILES:
        (page.runtime_folder() / name).write_bytes(b"1")
    assert page.why_no_page(pole) is None
    folder = tmp_path / "out"
    page.write_page(pole, "<script>alert(1)</script>", folder)
    text = (folder / "index.html").read_text()
    assert "<script>alert" not in text and "&lt;script&gt;alert(1)" in text
    assert {path.name for path in (folder / "onnxruntime-web").iterdir()} == {*page.RUNTIME_FILES}
