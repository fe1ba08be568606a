"""Videos of a policy, and environments that gymnasium's recorder takes."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import RecordVideo
from PIL import Image
from typer.testing import CliRunner

import aclearn
from aclearn.errors import ArgumentError, ConfigError, EnvironmentFailure
from services.cli import app
from tests.support.saved_runs import save_run


class Lamp(gymnasium.Env[Any, Any]):
    """An episode of `length` steps; step t is drawn in the grey 40·t, 25 pictures a second."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None, length: int = 4, broken: Any = False):
        self.render_mode, self._length, self._broken = render_mode, length, broken

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.t == self._length, False, {}

    def render(self) -> Any:
        if self._broken is True:
            raise ImportError("no screen here")
        if self._broken == "nothing":
            return None
        if self._broken == "grey":
            return np.zeros((30, 40), np.uint8)
        if self._broken == "grows":
            return np.zeros((30 + self.t, 40, 3), np.uint8)
        assert self.render_mode == "rgb_array"
        return np.full((30, 40, 3), 40 * self.t % 256, np.uint8)


_LAMP = {"id": f"{__name__}:Lamp"}


def test_a_video_has_each_step_of_an_episode_at_the_environments_speed(tmp_path: Path) -> None:
    run, video = save_run(tmp_path, _LAMP), tmp_path / "lamp.gif"
    words = ["evaluate", str(run), "--episodes", "1", "--video", str(video)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and f"wrote {video}: 4 pictures, 0 s" in done.output, done.output
    with Image.open(video) as gif:
        assert (gif.n_frames, gif.size) == (4, (400, 300))  # 10 times larger
        for t in range(4):
            gif.seek(t)
            assert gif.info["duration"] == 40
            assert gif.convert("RGB").getpixel((5, 5)) == (40 * (t + 1),) * 3
    again = CliRunner().invoke(app, words)
    assert isinstance(again.exception, ConfigError) and "--force replaces it" in str(
        again.exception
    )
    aclearn.open_run(run).record(video, greedy=True)
    done = CliRunner().invoke(app, [*words, "--force", "--max-steps", "2"])
    assert f"wrote {video}: 2 pictures" in done.output, done.output


def test_an_episode_without_an_end_is_recorded_to_a_bound(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("services.evaluator.video.MOST_PICTURES", 7)
    run = save_run(tmp_path, {**_LAMP, "kwargs": {"length": 10_000}})
    aclearn.open_run(run).record(tmp_path / "lamp.gif")
    with Image.open(tmp_path / "lamp.gif") as gif:
        assert gif.n_frames == 7


def test_an_mp4_is_made_by_imageio_ffmpeg_or_says_that_it_is_missing(
    tmp_path: Path, monkeypatch
) -> None:
    run, video = aclearn.open_run(save_run(tmp_path, _LAMP)), tmp_path / "lamp.mp4"
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setattr("services.evaluator.video.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"imageio-ffmpeg \(pip install 'aclearn\[video\]'"):
        run.record(video)
    sent: list[Any] = []

    def write_frames(path: str, size: tuple[int, int], **options: Any) -> Any:
        sent.append((size, options["fps"]))
        try:
            while True:
                sent.append((yield))
        finally:
            Path(path).write_bytes(b"video")

    fake = types.SimpleNamespace(write_frames=write_frames)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", fake)
    monkeypatch.setattr("services.evaluator.video.find_spec", lambda name: fake)
    run.record(video)
    assert sent[0] == ((400, 300), 25.0) and [p[0, 0, 0] for p in sent[1:]] == [40, 80, 120, 160]
    assert video.read_bytes() == b"video"


def test_a_real_mp4_is_written(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    aclearn.open_run(save_run(tmp_path, _LAMP)).record(tmp_path / "lamp.mp4")
    assert (tmp_path / "lamp.mp4").read_bytes()[4:8] == b"ftyp"


@pytest.mark.parametrize(
    ("env", "name", "said"),
    [
        ({**_LAMP, "kwargs": {"broken": True}}, "a.gif", r"cannot be drawn \(ImportError: no scre"),
        ({**_LAMP, "kwargs": {"broken": "nothing"}}, "a.gif", "gives NoneType as its picture; exp"),
        (
            {**_LAMP, "kwargs": {"broken": "grey"}},
            "a.gif",
            r"gives uint8 \(30, 40\) as its",
        ),
        (
            {**_LAMP, "kwargs": {"broken": "grows"}},
            "a.gif",
            r"sizes, \(31, 40, 3\) and \(32, ",
        ),
        (
            {"id": "tests.support.agents_env:Pairs"},
            "a.gif",
            "one that is drawn takes render_mode",
        ),
        (_LAMP, "a.webm", "ends in .gif or .mp4"),
        ({"id": "tests.support.space_envs:Match"}, "a.gif", "takes no arguments"),
    ],
)
def test_what_cannot_be_recorded_is_told(tmp_path: Path, env: Any, name: str, said: str) -> None:
    with pytest.raises((ConfigError, EnvironmentFailure), match=said):
        aclearn.open_run(save_run(tmp_path, env)).record(tmp_path / name)


def test_gymnasiums_recorder_takes_an_environment(tmp_path: Path, monkeypatch) -> None:
    clips: list[Any] = []

    class Clip:
        def __init__(self, frames: list[Any], fps: float) -> None:
            clips.append((len(frames), fps))

        def write_videofile(self, path: str, logger: Any) -> None: ...

    for name in ("moviepy", "moviepy.video", "moviepy.video.io"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    module = types.SimpleNamespace(ImageSequenceClip=Clip)
    monkeypatch.setitem(sys.modules, "moviepy.video.io.ImageSequenceClip", module)
    run = save_run(tmp_path, _LAMP)
    env = RecordVideo(aclearn.make_env(run, render_mode="rgb_array"), str(tmp_path / "videos"))
    env.reset(seed=1)
    for _ in range(4):
        env.step(0)
    env.close()
    assert clips == [(5, 25.0)]


def test_an_atari_game_shows_the_screen_that_the_policy_sees() -> None:
    overrides = {"env.atari.noop_max": 0}
    env = aclearn.make_env("pong", overrides, render_mode="rgb_array")
    seen, _ = env.reset()
    seen, *_ = env.step(0)
    np.testing.assert_array_equal(env.render()[..., 1], seen[-1])
    assert env.metadata["render_fps"] == 15.0
    env.close()
    with pytest.raises(ArgumentError, match="rgb_array only"):
        aclearn.make_env("pong", render_mode="human")
    with pytest.raises(ArgumentError, match='with render_mode="rgb_array"'):
        aclearn.make_env("cartpole").render()
