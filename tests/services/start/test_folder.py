"""The run folder of roles started by hand: the first makes it, the same run shares it."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from aclearn.config import Config
from aclearn.errors import ConfigError, RunFolderError
from aclearn.runs import RunFolder, lock_role
from services.launcher.local_run import open_run_folder
from services.start import folder as module
from services.start.folder import role_folder


def _config(runs: Path, **sections) -> Config:
    """The configuration of run "r" in `runs`, on CartPole."""
    policy = {"architecture": "mlp", "hidden": [64, 64]}
    fields = {"env": {"id": "CartPole-v1"}, "policy": policy, **sections}
    run = {"dir": str(runs), "name": "r", **fields.pop("run", {})}
    return Config.model_validate({"run": run, **fields})


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The parent of run "r"'s folder, made by its first role. The run has learned something."""
    with role_folder(_config(tmp_path), "monitor") as folder:
        folder.metrics_path.write_text('{"learned_steps": 1}\n')
    return tmp_path


def _events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_the_first_role_makes_the_folder_and_the_others_find_it(tmp_path, caplog) -> None:
    caplog.set_level(logging.INFO)
    config = _config(tmp_path)
    with role_folder(config, "monitor") as first, role_folder(config, "trainer") as second:
        assert first.path == second.path == tmp_path / "r"
        assert second.read_config_yaml() == config.to_yaml()
    assert _events(caplog) == []


def test_a_process_that_is_every_role_in_turn_writes_alone(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("aclearn.runs.lock._PREDECESSOR_WITHIN_S", 0.0)
    config = _config(tmp_path, run={"deterministic": True})
    with (
        open_run_folder(config, resume=False) as folder,
        pytest.raises(RunFolderError, match="written by aclearn train"),
    ):
        lock_role(folder.path, "trainer", by_hand=False)


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        (
            {"env": {"id": "Acrobot-v1"}},
            "env.id is 'CartPole-v1' there, 'Acrobot-v1' here. Start",
        ),
        (
            {"policy": {"architecture": "mlp", "hidden": [7]}},
            "policy.hidden is (64, 64) there, (7,) here. Start",
        ),
        (
            {"env": {"id": "CartPole-v1", "kwargs": {"x": 1}}, "optimiser": {"learning_rate": 0.5}},
            "env.kwargs.x is None there, 1 here. Start",
        ),
        (
            {"env": {"id": "Acrobot-v1"}, "policy": {"architecture": "mlp", "hidden": [7]}},
            "env.id is 'CartPole-v1' there, 'Acrobot-v1' here; policy.hidden is (64, 64) there",
        ),
    ],
)
def test_the_folder_of_another_run_is_refused_by_every_key(runs, sections, words) -> None:
    before = (runs / "r" / "config.yaml").read_bytes()
    with pytest.raises(ConfigError) as refused:
        role_folder(_config(runs, **sections), "monitor")
    assert f"the run folder {runs / 'r'} is of another run: {words}" in str(refused.value)
    assert "under another run.name" in str(refused.value)
    assert (runs / "r" / "config.yaml").read_bytes() == before


def test_what_only_the_other_run_says_is_a_difference_too(tmp_path) -> None:
    there = _config(tmp_path, env={"id": "CartPole-v1", "kwargs": {"x": 1}})
    with (
        role_folder(there, "monitor"),
        pytest.raises(ConfigError, match=r"env\.kwargs\.x is 1 there, None here"),
    ):
        role_folder(_config(tmp_path), "trainer")


def test_a_run_that_learned_nothing_is_replaced_once_no_process_writes_there(
    tmp_path, caplog
) -> None:
    mistaken = _config(tmp_path, env={"id": "X-v1"})
    with role_folder(mistaken, "monitor") as folder:
        folder.metrics_path.write_text('{"learned_steps": 0}\n')
        with pytest.raises(ConfigError, match=r"env\.id is 'X-v1' there, 'CartPole-v1' here"):
            role_folder(_config(tmp_path), "trainer")
        assert folder.read_config_yaml() == mistaken.to_yaml()
    with role_folder(_config(tmp_path), "monitor") as folder:
        assert folder.read_config_yaml() == _config(tmp_path).to_yaml()
        assert not folder.metrics_path.exists()
        role_folder(_config(tmp_path), "trainer").close()  # shared again
    assert _events(caplog) == [f"{tmp_path / 'r'} had learned nothing; it is replaced"]


def test_other_settings_may_differ_and_are_named_in_the_log(runs, caplog) -> None:
    changes = {"optimiser": {"learning_rate": 0.5}, "run": {"seed": 9}}
    role_folder(_config(runs, **changes), "monitor").close()
    assert _events(caplog) == [
        f"event=config_differs folder={runs / 'r'} keys=optimiser.learning_rate,run.seed"
    ]


def test_odd_values_are_no_difference(tmp_path) -> None:
    odd = {"nan": float("nan"), "far": float("-inf"), "huge": 10**400, "ü/\u2028 x": "a\x07b"}
    config = _config(tmp_path, env={"id": "CartPole-v1", "kwargs": odd})
    with role_folder(config, "monitor") as first, role_folder(config, "trainer") as second:
        assert second.path == first.path


def test_another_way_to_the_same_folder_is_no_difference(runs, caplog, monkeypatch) -> None:
    monkeypatch.chdir(runs)
    (runs / "link").symlink_to(runs / "r")
    with role_folder(_config(Path("."), run={"name": "link"}), "monitor") as folder:
        assert folder.path.resolve() == (runs / "r").resolve()
    assert _events(caplog) == []


class _Maker:
    """Another role that makes the same folder at the same time, and continues to write there.

    It has made the folder just before this one tries; its configuration follows after this many
    looks. Time passes only while this role waits.
    """

    def __init__(self, config: Config, *, looks: float) -> None:
        self._config, self._looks = config, looks
        self._path = Path(config.run.dir) / str(config.run.name)
        self.now = 100.0

    def create(self, *_, **__) -> RunFolder:
        if self._path.exists():
            raise RunFolderError("it is being written")
        self._path.mkdir()
        return RunFolder.create(self._config.run.dir, str(self._config.run.name), "too late\n")

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._looks -= 1
        if self._looks == 0:
            (self._path / "config.yaml").write_text(self._config.to_yaml())


def _race(monkeypatch: pytest.MonkeyPatch, maker: _Maker) -> None:
    monkeypatch.setattr(
        module, "RunFolder", SimpleNamespace(create=maker.create, open=RunFolder.open)
    )
    monkeypatch.setattr(
        module, "time", SimpleNamespace(monotonic=lambda: maker.now, sleep=maker.sleep)
    )


def test_a_role_waits_for_the_one_that_is_making_the_folder(tmp_path, monkeypatch) -> None:
    maker = _Maker(_config(tmp_path), looks=3)
    _race(monkeypatch, maker)
    with role_folder(_config(tmp_path), "monitor") as folder:
        assert folder.path == tmp_path / "r"
    assert 100.0 < maker.now < 105.0


def test_a_folder_that_stays_empty_is_refused_after_five_seconds(tmp_path, monkeypatch) -> None:
    maker = _Maker(_config(tmp_path), looks=float("inf"))
    _race(monkeypatch, maker)
    with pytest.raises(RunFolderError, match="exists already and is not a run folder"):
        role_folder(_config(tmp_path), "monitor")
    assert 105.0 < maker.now < 105.2
    assert list((tmp_path / "r").iterdir()) == []
