"""The sbatch script, and the run that it starts with a stand-in for srun."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from aclearn.errors import AclearnError
from aclearn.runs import is_metrics_line
from services.commands.manifests import slurm
from tests.support.keys import make_keys
from tests.support.metrics_lines import check_lines
from tests.support.waiting import DEADLINE_S

#: Starts as many local processes as it is asked for, and passes SIGTERM on.
_SRUN = """#!/bin/bash
echo "srun $*" >> srun.log
while [[ $1 == --* ]]; do
  [[ $1 == --ntasks=* ]] && count=${1#--ntasks=}
  shift
done
trap 'kill $(jobs -p) 2>/dev/null' TERM
for ((task = 0; task < count; task++)); do "$@" & done
status=0
for job in $(jobs -p); do wait "$job" || status=$?; done
wait
exit $status
"""


def _script(capsys, *overrides: str, config: str = "cartpole", **options) -> str:
    given = {"nodes": 1, "time": "1:00:00", "keys": Path("keys"), **options}
    slurm(config, list(overrides), **given)
    return str(capsys.readouterr().out)


@pytest.fixture(autouse=True)
def _keys(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_keys(Path("keys"))


def _free_job() -> int:
    """Number of a job whose port nothing listens at."""
    for job in range(os.getpid() % 10_000, 10_000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", 20_000 + job)):
                return job
    raise AssertionError("no port is free")


def test_the_script_starts_a_run_that_learns_and_ends(tmp_path, capsys) -> None:
    bounds = ["run.max_updates=3", "run.target_return=null", "run.name=r"]
    script = tmp_path / "run.sbatch"
    script.write_text(_script(capsys, *bounds, "actors.processes=2"))
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "srun").write_text(_SRUN)
    (commands / "aclearn").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m aclearn "$@"\n')
    for each in commands.iterdir():
        each.chmod(each.stat().st_mode | stat.S_IXUSR)
    environment = os.environ | {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "SLURM_JOB_ID": str(_free_job()),
    }
    done = subprocess.run(
        ["bash", str(script)], env=environment, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "runs" / "r"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    check_lines([line for line in lines if is_metrics_line(line)])
    assert lines[-1]["updates"] >= 3
    started = re.findall(
        r"--het-group=(\d) --ntasks=(\d) .* role (\w+)", (tmp_path / "srun.log").read_text()
    )
    assert sorted(started) == [("0", "1", "monitor"), ("0", "1", "trainer"), ("1", "2", "actor")]


def test_the_job_asks_for_what_its_roles_take(capsys) -> None:
    options = ["trainer.device=cuda", "actors.processes=6", "run.name=r"]
    lines = _script(capsys, *options, config="cluster", nodes=3, time="0-8:00:00").splitlines()
    asked = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    at = asked.index("hetjob")
    assert {"--job-name=r", "--time=0-8:00:00", "--gpus-per-node=1"} <= set(asked[:at])
    assert "--nodes=1 --ntasks=5 --cpus-per-task=1" in asked  # all roles but actors
    assert asked[at + 1 :] == ["--nodes=3 --ntasks=6 --cpus-per-task=1"]
    alone = _script(capsys, config="resident/cartpole")  # the trainer steps the environments
    assert "het" not in alone and "role trainer" in alone
    threads = ["trainer.workers=2", "compressor.processes=1", "compressor.cpu_share=2.5"]
    fewer, more = (
        re.search(r"--nodes=1 --ntasks=(\d+)", _script(capsys, *given, config="cluster"))
        for given in (["trainer.workers=1", "compressor.processes=1"], threads)
    )
    assert fewer and more and int(more[1]) == int(fewer[1]) + 1 + 2
    quoted = _script(capsys, "env.kwargs={'a': '$(x) y'}", "run.name=r")
    assert "'env.kwargs={'\"'\"'a'" in quoted


@pytest.mark.parametrize(
    ("override", "options", "said"),
    [
        ("trainer.device=cuda:1", {}, "trainer.device: cuda:1 cannot be expressed"),
        ("run.deterministic=true", {}, "run.deterministic: .* set it to false"),
        ("population.members=4", {}, "population.members: the script is that of one run"),
        ("actors.processes=2", {"nodes": 3}, "--nodes: 3 nodes need as many actors"),
        (
            "run.seed=2",
            {"nodes": 3, "config": "resident/cartpole"},
            "--nodes: no actor is needed: the trainer steps the env",
        ),
        ("run.seed=2", {"time": "soon"}, "--time: expected a time of Slurm"),
        ("run.seed=2", {"keys": Path("none")}, "cannot read keys from none/allowed.json"),
    ],
)
def test_what_a_job_cannot_express_is_refused_by_name(override, options, said, capsys) -> None:
    with pytest.raises(AclearnError, match=said):
        _script(capsys, override, **options)
