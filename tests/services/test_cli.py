"""The command line without a process."""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from aclearn.config import Config, EnvConfig, PolicyConfig, RunConfig, load_config
from aclearn.errors import AclearnError
from aclearn.launch import StopFlag
from aclearn.runs import RunFolder
from services.cli import app, main
from services.commands.train import resumed_config
from services.evaluator.evaluate import Evaluation
from services.role.context import RoleContext
from services.role.monitor_client import NumberTaken
from services.roles import ACTOR
from services.start.run_role import run_role
from tests.support.cli import aclearn
from tests.support.waiting import run_python


@pytest.mark.parametrize("name", ["42", "null", "1e5", "true", "007"])
def test_a_run_is_resumed_by_its_name_whatever_yaml_takes_it_for(name: str, tmp_path: Path) -> None:
    path = tmp_path / "game.yaml"
    path.write_text(f"run: {{name: '{name}', dir: '{tmp_path}/a: b'}}\nenv: {{id: CartPole-v1}}\n")
    given = load_config(path)
    RunFolder.create(given.run.dir, name, given.to_yaml()).close()

    resumed = resumed_config(path, given, ["run.max_updates=3"])
    assert (resumed.run.name, resumed.run.dir) == (name, f"{tmp_path}/a: b")
    assert resumed.run.max_updates == 3


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with two runs without pictures yet."""
    for name in ("pong-1", "pong-2"):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text(
            '{"time_s": 1.0, "env_steps": 9, "learned_steps": 9, "return_mean_100": 1.0}\n'
        )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "picture"),
    [
        (("runs/pong-1",), "pong-1.png"),
        (("runs/pong-1/../pong-2",), "pong-2.png"),
        (("runs/pong-1", "runs/pong-2"), "returns.png"),
        (("runs/pong-1", "--out", "new/folder/out.svg"), "new/folder/out.svg"),
    ],
)
def test_a_picture_has_a_name_without_out_and_replaces_that_alone_without_force(
    arguments: tuple[str, ...], picture: str, here: Path
) -> None:
    assert aclearn("plot", *arguments) == f"wrote {picture}\n"
    (here / picture).write_text("mine")
    if "--out" in arguments:
        with pytest.raises(AclearnError, match=f"--out: {picture} exists already; --force repla"):
            aclearn("plot", *arguments)
        assert (here / picture).read_text() == "mine"
        arguments = (*arguments, "--force")
    aclearn("plot", *arguments)
    assert (here / picture).stat().st_size > 1000


def test_the_picture_of_a_tuner_has_a_name_of_its_own(here: Path) -> None:
    (here / "pong-1-tuner.png").mkdir()
    with pytest.raises(AclearnError, match=r"--out: pong-1-tuner\.png is a folder"):
        aclearn("plot", "--tuner", "runs/pong-1")
    with pytest.raises(AclearnError, match="leave out --each and --axis"):
        aclearn("plot", "--tuner", "--each", "runs/pong-1")


def test_a_shipped_configuration_is_written_once_and_printed_as_often_as_one_likes(
    here: Path,
) -> None:
    assert json.loads(aclearn("configs", "--schema"))["title"] == "Configuration of aclearn"
    told = aclearn("configs", "--schema", "--to", "mine/schema.json")
    assert told.strip().endswith("# yaml-language-server: $schema=mine/schema.json")
    text = aclearn("configs", "cartpole")
    assert "id: CartPole-v1" in text and f"\n{'cartpole':21} " in aclearn("configs")
    assert aclearn("configs", "cartpole", "--to", "mine/c.yaml").startswith("wrote mine/c.yaml")
    assert (here / "mine/c.yaml").read_text() == text
    for arguments, words in [
        (("cartpole", "--to", "mine/c.yaml"), "exists already; --force replaces it"),
        (("cartpol",), "did you mean cartpole"),
        (("--to", "c.yaml"), "which configuration"),
    ]:
        with pytest.raises(AclearnError, match=words):
            aclearn("configs", *arguments)


def test_the_name_of_a_shipped_configuration_is_no_path_and_a_path_is_no_name(here: Path) -> None:
    (here / "cartpole").write_text("env: {id: Mine-v0}")
    assert load_config("cartpole").env.id == "CartPole-v1"
    assert load_config("cartpole").experiment == "cartpole"
    assert load_config("./cartpole").env.id == "Mine-v0"
    assert load_config(Path("cartpole")).env.id == "Mine-v0"
    with pytest.raises(AclearnError, match=r"^cartpole\.yaml: there is no such configuration file"):
        load_config("cartpole.yaml")
    with pytest.raises(AclearnError, match=r"^mine: no configuration comes with .*\(\./mine, mine"):
        load_config("mine")


def test_keys_are_not_put_into_a_file(here: Path) -> None:
    (here / "keys").write_text("mine")
    with pytest.raises(AclearnError, match=r"^keys is a file; expected a folder"):
        aclearn("keys", "new")


def test_the_shell_completes_commands_roles_and_shipped_configurations() -> None:
    def completed(*words: str) -> list[str]:
        asked = {
            "_ACLEARN_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(("aclearn", *words)),
            "COMP_CWORD": str(len(words)),
        }
        return CliRunner().invoke(app, env=asked, prog_name="aclearn").output.split()

    assert completed("eva") == ["evaluate"]
    assert completed("role", "tr") == ["trainer"]
    assert completed("train", "cartpole_r") == ["cartpole_retrace"]
    assert completed("train", "my.ya") == []  # the shell's own completion of files


def test_a_health_check_imports_no_other_command_and_no_configuration() -> None:
    program = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from services.cli import app\n"
        "done = CliRunner().invoke(app, ['health'])\n"
        "ours = {name.split('.')[1] for name in sys.modules if name.startswith('aclearn.')}\n"
        "commands = {name for name in sys.modules if name.startswith('services.commands.')}\n"
        "print(type(done.exception).__name__, sorted(commands), 'config' in ours, 'wire' in ours)\n"
    )
    environment = {name: value for name, value in os.environ.items() if "ACLEARN" not in name}
    found = run_python("-c", program, env=environment)
    commands = ["services.commands.health", "services.commands.output"]
    assert (found.stdout, found.stderr) == (f"ConfigError {commands} False False\n", "")


@pytest.mark.parametrize("command", ["export", "role"])
def test_a_file_that_cannot_be_used_is_a_line_and_of_a_service_a_traceback(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied", "/root/policy.onnx")

    monkeypatch.setattr("services.cli.app", refuse)
    monkeypatch.setattr("sys.argv", ["aclearn", command])
    for name in ("raise_on_ctrl_c", "mark_own_process", "make_output_lossy", "forget_zero_size"):
        monkeypatch.setattr(f"services.cli.{name}", lambda: None)
    with pytest.raises(SystemExit if command == "export" else PermissionError) as ended:
        main()
    if command == "export":
        assert ended.value.code == 1
        assert capsys.readouterr().err == "aclearn: /root/policy.onnx: Permission denied\n"


def test_the_version_is_that_of_the_package() -> None:
    assert aclearn("--version") == f"aclearn {version('aclearn')}\n"


def test_evaluate_plays_with_the_seed_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def play(run: object, *, seed: int, **_: object) -> dict[str, Evaluation]:
        asked.append(seed)
        return {"default": Evaluation([1.0], [1], Path("checkpoint-7"), 7)}

    monkeypatch.setattr("services.evaluator.saved_policy.load_run", lambda path, at: None)
    monkeypatch.setattr("services.evaluator.evaluate.evaluate_run", play)
    assert "checkpoint-7: 1 episodes" in aclearn("evaluate", "r", "--seed", "3")
    aclearn("evaluate", "r")
    assert asked == [3, 1_000_003]


def test_evaluate_prints_a_line_for_each_policy_or_that_of_the_named_one(monkeypatch) -> None:
    def play(run: object, **_: object) -> dict[str, Evaluation]:
        path = Path("checkpoint-7")
        return {
            "tagger": Evaluation([1.0, 3.0], [4, 8], path, 7),
            "runner": Evaluation([-2.0], [9], path, 8, saved_mean=4.0),
        }

    monkeypatch.setattr("services.evaluator.evaluate.evaluate_run", play)
    known = SimpleNamespace(policy=["runner"].index)
    monkeypatch.setattr("services.evaluator.saved_policy.load_run", lambda path, at: known)
    both = aclearn("evaluate", "r").splitlines()
    assert [line.partition(" ± ")[0] for line in both] == [
        "checkpoint-7 tagger: 2 episodes, 6.0 steps long, return 2.00",
        "checkpoint-7 runner: 1 episodes, 9.0 steps long, return -2.00",
    ]
    assert both[1].endswith("; saved as the best, with a mean of 4.00 of the policies that count")
    assert aclearn("evaluate", "r", "--policy", "runner").splitlines() == both[1:]


def test_a_role_whose_number_was_taken_starts_over_and_asks_for_another(monkeypatch) -> None:
    env, policy = EnvConfig(id="CartPole-v1"), PolicyConfig(architecture="mlp")
    config = Config(env=env, policy=policy, run=RunConfig(name="r"))
    numbers, ran = iter([0, 1]), []

    class Stepped:
        exit_status = 7

        def __init__(self, context: RoleContext) -> None:
            self.context = context
            ran.append((context.name, context.start.number_given, context.incarnation))

        def step(self, timeout_s: float) -> bool:
            if self.context.index == 0:
                raise NumberTaken("actor-0 lives")
            return False

        def close(self) -> None:
            pass

    monkeypatch.setattr("services.start.run_role.ask_number", lambda context: next(numbers))
    monkeypatch.setattr("services.start.run_role.lower_priority", lambda nice: None)
    monkeypatch.setattr("services.start.run_role.pkgutil.resolve_name", lambda name: Stepped)
    assert run_role(ACTOR, None, config, "tcp://127.0.0.1:5799", StopFlag()) == 7
    assert [name for name, given, _ in ran if given] == ["actor-0", "actor-1"]
    assert len({incarnation for *_, incarnation in ran}) == 2
