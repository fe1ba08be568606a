"""Runs that cannot work are rejected first, in one line that says how to mend it."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch

from aclearn.config import Config, config_from_yaml, config_of_keys, load_config
from aclearn.errors import AclearnError, ConfigError, EnvironmentFailure
from aclearn.launch import StopFlag
from aclearn.policies.devices import choose_amp
from aclearn.types import ActionSpec, EnvSpec, LeafSpec, ObservationSpec
from aclearn.types.action_spec import ActionPart
from compress.methods.quantizer import Quantizer
from services.launcher.role_commands import monitor_addresses
from services.role import isolated
from services.role.context import RoleContext, RunEnv
from services.role.isolated import Answer, Call
from services.start import preflight
from services.start.preflight import Checked, check_policy, check_role, check_run
from services.start.probe import check_environment, probe_environment
from tests.support.calls_here import Here
from tests.support.env_specs import plain_spec
from tests.support.keys import make_keys
from tests.support.waiting import wait_for

_ROOT = Path(__file__).parents[3]
_HERE = _ROOT / "tests" / "support"


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes a configuration of CartPole with changes; `broken_envs` can be imported."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(_ROOT), str(_HERE), str(tmp_path)]))
    for folder in (_HERE, tmp_path):
        monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)

    def load(*overrides: str):
        places = [f"run.dir={tmp_path / 'runs'}", "run.name=r"]
        return load_config(_ROOT / "configs" / "cartpole.yaml", [*places, *overrides])

    return load


def _check(config: Config, folder: Path, call: Call = isolated.call) -> Checked | None:
    bound, _ = monitor_addresses(config, folder)
    return check_run(config, bound, resume=False, stop=StopFlag(), call=call)


def _env(how: str, at: str) -> tuple[str, str]:
    return "env.id=broken_envs:Broken", f"env.kwargs={{how: {how}, at: {at}}}"


_PLACE = f"of {_HERE / 'broken_envs.py'}, in"
_WRONG: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "actions": (("env.id=broken_envs:Speaking",), ["Speaking", "Text actions are not supported"]),
    "evaluated in other spaces": (
        ("evaluator.every_s=60", "evaluator.env={id: Acrobot-v1}"),
        ["evaluator.env: it has ", "→ 3 actions", "→ 2 actions", "leave the spaces as they are"],
    ),
    "evaluated in what cannot be made": (
        (
            "evaluator.every_s=60",
            "evaluator.env={id: 'broken_envs:Broken', kwargs: {how: raises, at: made}}",
        ),
        ["evaluator.env: environment broken_envs:Broken", "no licence for this machine"],
    ),
    "no first deviation": (
        ("policy.initial_std=0.5",),
        ["policy.initial_std: ", "no Box actions", "(2 actions); remove it"],
    ),
    "no deviations": (
        ("policy.std_from_observations=true",),
        ["policy.std_from_observations: ", "no Box actions", "(2 actions); remove it"],
    ),
    "observations": (("env.id=broken_envs:Storyteller",), ["Storyteller", "env.ignore: [story]"]),
    "unknown id": (("env.id=CartPol-v1",), ["CartPol-v1", "did you mean CartPole-v1"]),
    "broken module": (
        ("env.id=spoilt:make",),
        ["'spoilt' cannot be imported", "NameError", "[line 2 of ", "spoilt.py, in <module>]"],
    ),
    "raises when made": (
        _env("raises", "made"),
        ["cannot be made (OSError: no licence for this machine) [line ", _PLACE],
    ),
    "exits when made": (_env("exits", "made"), ["SystemExit: the window was closed", _PLACE]),
    "hangs when made": (
        (*_env("hangs", "made"), "actors.step_timeout_s=0.5"),
        ["no answer within 0.5 s (actors.step_timeout_s)"],
    ),
    "raises at reset": (_env("raises", "reset"), ["is reset for the first time: OSError", _PLACE]),
    "raises at step": (_env("raises", "step"), ["is stepped for the first time: OSError", _PLACE]),
    "images needed": (("policy.architecture=nature",), ["policy.architecture", "'nature'", "mlp"]),
    "too large": (
        ("actors.unroll_length=4096", "actors.envs_per_group=4096"),
        ["actors.unroll_length", "actors.envs_per_group", "MiB"],
    ),
    "chain": (
        ("compressor.chain=[{distill: nature}]",),
        ["compressor.chain: ", "distill", "nature"],
    ),
    "rung": (
        ("compressor.ladder=[[onnx], [onnx, int8], []]",),
        ["compressor.ladder: rung 1: ", f"{Quantizer().id}: ", "onnx"],
    ),
    "a min_action_prob that leaves nothing": (
        ("env.id=Acrobot-v1", "compressor.chain=[onnx]", "compressor.min_action_prob=0.4"),
        ["compressor.min_action_prob: 0.4 for each of 3 actions"],
    ),
    "strategy": (
        ("compressor.chain=[int8, onnx]", "monitor.strategies=[threshold, staged]"),
        ["monitor.strategies: threshold and staged both set the rung of the ladder; keep one"],
    ),
    "broken strategy": (
        ("compressor.chain=[int8, onnx]", "monitor.strategies=['spoilt:Mine']"),
        ["monitor.strategies", "'spoilt' cannot be imported", "NameError", "spoilt.py"],
    ),
    "broken loss": (
        ("loss.kind=spoilt:Loss",),
        ["loss.kind", "'spoilt' cannot be imported", "NameError", "[line 2 of ", "spoilt.py"],
    ),
    "argument of a corrector": (
        ("correctors=[vtrace, {'toys.toy_corrector:ConstantTargets': {taget: 3}}]",),
        ["correctors[1] 'toys.toy_corrector:ConstantTargets'", "'taget'", "it takes target"],
    ),
    "unknown indicator": (
        ("monitor.indicators=[tests.support.toys.toy_indicator:BestStrek]",),
        [
            "monitor.indicators 'tests.support.toys.toy_indicator:BestStrek'",
            "did you mean BestStreak",
        ],
    ),
    "no keys": (
        ("network.keys_dir=nowhere",),
        ["cannot read keys from", "nowhere: No such", "aclearn keys"],
    ),
    "a foreign address": (
        ("monitor.port=5555", "network.bind_host=203.0.113.7", "network.keys_dir=keys"),
        ["monitor.port", "tcp://203.0.113.7:5555", "no such host or interface"],
    ),
    "a file for a folder": (("run.dir=spoilt.py",), ["run.dir", "spoilt.py is not a folder"]),
}
if not torch.cuda.is_available():
    _WRONG["trainer's GPU"] = (("trainer.device=cuda",), ["trainer.device: cuda is not there"])
    _WRONG["predictor's GPU"] = (
        ("actors.inference=predictor", "predictor.runtime=torch", "predictor.device=cuda:1"),
        ["predictor.device: cuda:1 is not there"],
    )


#: No line of the user's own files caused these: no place is named.
_NOT_OF_A_LINE = ("unknown id", "images needed")


@pytest.mark.parametrize("case", _WRONG)
def test_a_run_that_cannot_begin_is_refused_in_one_line(case: str, load, tmp_path: Path) -> None:
    overrides, words = _WRONG[case]
    (tmp_path / "spoilt.py").write_text("import os\nundefined\n")
    make_keys(Path("keys"))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(AclearnError) as refused:
        _check(load(*overrides), tmp_path, Here())
    said = str(refused.value)
    assert "\n" not in said, said
    for word in words:
        assert word in said, said
    if case in _NOT_OF_A_LINE:
        assert "[line" not in said
    assert sorted(path for path in tmp_path.rglob("*") if path.name != "__pycache__") == before


@pytest.mark.parametrize(
    ("how", "at", "words"),
    [
        ("ends the process", "reset", r"\(exit status 3\) while it was reset .*: goodbye"),
        ("crashes", "step", r"\(killed by SIGABRT\) while it was stepped"),
    ],
)
def test_an_environment_that_ends_its_process_is_refused(
    how: str, at: str, words: str, load, tmp_path: Path
) -> None:
    with pytest.raises(EnvironmentFailure, match=rf"broken_envs:Broken.* {words}"):
        _check(load(*_env(how, at)), tmp_path)


_CORRECTOR = ("correctors=[{'toys.toy_corrector:ConstantTargets': {target: 3}}]",)
_NETWORK = ("policy.architecture=own_networks:Plain", "policy.hidden=null")
_HALF = ("env.id=broken_envs:Picture", "trainer.amp=auto")


@pytest.mark.parametrize(
    "overrides",
    [(), _CORRECTOR, _NETWORK, _HALF, (*_CORRECTOR, *_NETWORK, *_HALF)],
    ids=("nothing", "corrector", "network", "half precision", "all"),
)
def test_one_process_answers_all_that_needs_torch(
    overrides: tuple[str, ...], load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch")  # as in `aclearn train`
    here = Here()
    checked = _check(load(*overrides), tmp_path, here)
    assert here.called == ["try_environment"] + ["say_answers"] * bool(overrides)
    assert checked is not None
    half = choose_amp("auto", torch.device("cpu"))
    expected = "bf16" if half and "trainer.amp=auto" in overrides else "off"
    assert checked.config.trainer.amp == expected


_NO_GPU = {
    "trainer": ("trainer.device=cuda:99",),
    "predictor": (
        "actors.inference=predictor", "predictor.runtime=torch", "predictor.device=cuda:99",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("role", "other"), [("trainer", "predictor"), ("predictor", "trainer")])
def test_a_role_by_hand_is_refused_for_its_own_gpu_only(role: str, other: str, load) -> None:
    def check(*overrides: str) -> EnvSpec | None:
        context = RoleContext(role, 0, load(*overrides), RunEnv("ipc:///nowhere"))
        try:
            return check_role(context)
        finally:
            context.close()

    assert check(*_NO_GPU[other]) is not None
    with pytest.raises(ConfigError, match=rf"{role}\.device: cuda:99 is not there"):
        check(*_NO_GPU[role])


def test_a_port_that_is_taken_is_refused_and_a_free_one_is_free_afterwards(load, tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        config = load(f"monitor.port={port}")
        with pytest.raises(AclearnError, match=rf"monitor\.port: .*127\.0\.0\.1:{port}.* in use"):
            _check(config, tmp_path)
    for _ in range(2):
        checked = _check(config, tmp_path, Here())
        assert checked is not None and checked.spec == plain_spec((4,), "float32", 2, 1)


def test_an_environment_that_prints_moves_and_leaves_a_process_is_no_trouble(
    load, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    known = set(psutil.pids())
    here = Path.cwd()
    folder = f"env.kwargs={{folder: {tmp_path / 'elsewhere'}}}"
    config = load("env.id=broken_envs:Talkative", folder)
    assert probe_environment(config) == plain_spec((3,), "float32", 2, 1)
    assert Path.cwd() == here
    left = lambda: {p.pid for p in psutil.Process().children(recursive=True)} - known  # noqa: E731
    wait_for(lambda: not left(), "the process that it left is gone", context=lambda: str(left()))


def test_an_environment_that_hangs_is_given_up_and_a_signal_ends_the_wait(load) -> None:
    config = load("actors.step_timeout_s=20", "monitor.silent_after_s=60")
    hangs = Answer({"phase": "reset"}, late=True, exit="killed by SIGKILL", printed="")
    stop = StopFlag()
    with pytest.raises(EnvironmentFailure, match=r"within 90 s while it was reset .* raise actors"):
        probe_environment(config, stop=stop, call=lambda *_, **__: hangs)
    stop.set("SIGINT")
    assert probe_environment(config, stop=stop, call=lambda *_, **__: hangs) is None


def test_a_check_reports_what_breaks_and_is_itself_protected(load) -> None:
    spec, report = check_environment(load("env.id=broken_envs:Promising"))
    assert spec == plain_spec((3,), "float32", 2, 1)
    assert report.mend == ["reset: observation has the shape (5,), its space says (3,)"]
    with pytest.raises(EnvironmentFailure, match=r"ended \(exit status 3\) while it was checked"):
        check_environment(load(*_env("ends the process", "step")))


def test_a_check_of_several_agents_names_their_faults(load) -> None:
    config = load("env.id=tests.support.agents_env:Faulty", "env.kwargs={fault: nan reward, at: 3}")
    _, report = check_environment(config)
    assert report.fine == [] and "reward_range: agent red: reward is nan" in report.mend[-1]


def test_a_replay_memory_must_hold_a_batch_of_all_agents() -> None:
    keys = {
        "env.id": "a",
        "loss.kind": "dqn",
        "trainer.unrolls_per_batch": 2,
        "actors.envs_per_group": 4,
        "actors.unroll_length": 16,
        "replay.size": 2 * 4 * 16,
        "replay.start": 1,
    }
    spec = plain_spec((4,), "float32", 2)
    check_policy(config_of_keys(keys), spec)
    spec = replace(spec, agents=3)
    with pytest.raises(ConfigError, match=r"replay\.size: 384 new steps of 3 .* set it to 384"):
        check_policy(config_of_keys(keys), spec)
    check_policy(config_of_keys({**keys, "replay.size": 384}), spec)


def test_a_mask_of_probabilities_needs_actions_that_have_some() -> None:
    torque = ActionSpec.of((ActionPart((), (1,), "float32", low=(-2.0,), high=(2.0,)),))
    spec = replace(plain_spec((3,), "float32", 2), action=torque)
    keys = {"env.id": "Pendulum-v1", "correctors": ["no_correction", "epsilon_correction"]}
    with pytest.raises(ConfigError, match=r"^correctors\[1\] epsilon_correction: .*; remove it$"):
        check_policy(config_of_keys(keys), spec)
    keys = {"env.id": "Pendulum-v1", "correctors": ["vtrace", "tv_mask"]}
    with pytest.raises(ConfigError, match=r"^correctors\[1\] tv_mask: .*; take ratio_mask$"):
        check_policy(config_of_keys(keys), spec)


def test_a_memory_is_checked_against_the_sequences_of_a_batch() -> None:
    keys = {
        "env.id": "a",
        "policy.memory.kind": "gru",
        "loss.kind": "ppo",
        "trainer.unrolls_per_batch": 1,
        "actors.envs_per_group": 4,
        "trainer.minibatches": 8,
    }
    spec = plain_spec((4,), "float32", 2)
    with pytest.raises(ConfigError, match=r"trainer\.minibatches: a batch has 4 sequences"):
        check_policy(config_of_keys(keys), spec)
    check_policy(config_of_keys(keys), replace(spec, agents=2))
    check_policy(config_of_keys({**keys, "trainer.minibatches": 4}), spec)


@pytest.mark.parametrize(
    "policy",
    [{"memory.kind": "gru"}, {"architecture": "tests.support.own_networks:Remembers"}],
)
def test_a_part_of_an_observation_with_a_name_of_the_onnx_graph_is_refused(policy) -> None:
    keys = {"env.id": "a", **{f"policy.{key}": value for key, value in policy.items()}}
    for taken in ("state_0", "next_state_0", "parameters"):
        leaves = {name: LeafSpec((2,), "float32") for name in (taken, "other")}
        spec = replace(plain_spec((4,), "float32", 2), observation=ObservationSpec(leaves))
        with pytest.raises(ConfigError, match=rf"^policy: the observation's part '{taken}' has"):
            check_policy(config_of_keys(keys), spec)


@pytest.mark.parametrize(
    ("network", "keys", "words"),
    [
        ("Plain", {"trainer.burn_in_steps": 3}, "trainer.burn_in_steps: .* keeps no state"),
        ("Remembers", {"loss.kind": "impact", "trainer.burn_in_steps": 3}, None),
        (
            "Remembers",
            {"trainer.compile": True},
            "policy.architecture: .* trainer.compile to false",
        ),
    ],
)
def test_a_memory_of_a_network_of_ones_own_is_checked_too(network, keys, words) -> None:
    keys = {"env.id": "a", "policy.architecture": f"tests.support.own_networks:{network}", **keys}
    spec = plain_spec((4,), "float32", 2)
    if words is None:
        check_policy(config_of_keys(keys), spec)
        return
    with pytest.raises(ConfigError, match=words):
        check_policy(config_of_keys(keys), spec)


@pytest.mark.parametrize(
    ("keys", "cores", "words"),
    [
        ("trainer: {processes: 2}", 1, "trainer.processes: 2 trainers share the 1 cores"),
        ("trainer: {processes: 2}", 2, ""),
        ("trainer: {processes: 2, device: cuda}", 1, ""),
        (
            "resident: {envs: 8, devices: 2}",
            4,
            "resident.devices: 2 trainers of 4 threads each share the 4 cores",
        ),
        ("resident: {envs: 8, devices: 2, threads: 2}", 4, ""),
    ],
)
def test_more_trainers_than_cores_are_doubted(monkeypatch, keys, cores, words) -> None:
    monkeypatch.setattr(preflight, "usable_cores", lambda: cores)
    config = config_from_yaml(f"env: {{id: CartPole-v1}}\n{keys}\n")
    found = list(preflight._doubt_ranks(config))
    assert len(found) == bool(words) and all(words in sentence for sentence in found)
