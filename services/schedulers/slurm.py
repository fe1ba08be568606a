"""The sbatch script of a run: a heterogeneous job, with all roles but actors on its first node."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

from aclearn.config import Config
from aclearn.errors import ConfigError
from aclearn.wire import key_path, load_key, load_list
from services.launcher.seed_runs import busy_threads
from services.roles import ACTOR, MONITOR, ROLES, TRAINER, RoleSpec
from services.schedulers.checks import gpus

#: Seconds from the signal to save until Slurm kills, of the job's time.
_SAVE_S: Final = 60
#: Ports of the monitor, one a job: two jobs may share a node.
_FIRST_PORT, _PORTS = 20_000, 10_000
#: A run is over, or lost, without either of the two; the others get the time to save.
_END: Final = f"""\
wait -n "$monitor" "$trainer"
status=$?
for _ in {{1..{_SAVE_S}}}; do [ -n "$(jobs -rp)" ] || break; sleep 1; done
kill $(jobs -rp) 2>/dev/null  # srun passes it on to its processes
wait
exit "$status"\
"""
_TIME = re.compile(r"\d+|\d+:\d\d(:\d\d)?|\d+-\d+(:\d\d){0,2}", re.ASCII)


def slurm_script(
    config: Config,
    source: str,
    overrides: list[str],
    *,
    nodes: int,
    time: str,
    keys: Path,
) -> str:
    """The script for `sbatch`.

    Args:
        config: of a run with a name.
        source: the configuration as the user named it; all nodes read it.
        nodes: those of the actors; the first node is another one.
        time: of the job, as Slurm writes it.
        keys: those of the cluster, in a folder that all nodes see.

    Raises:
        ConfigError: the job cannot run this configuration.
        EndpointError: the keys cannot be used.
    """
    if config.run.deterministic:
        raise ConfigError(
            "run.deterministic: a single process runs all roles; set it to false, or call "
            "`srun aclearn train`"
        )
    if config.population.enabled:
        raise ConfigError(
            "population.members: the script is that of one run; call `aclearn evolve --on ray` on "
            "a Ray cluster, or set it to null"
        )
    if not _TIME.fullmatch(time):
        raise ConfigError(f"--time: expected a time of Slurm such as 2:00:00, got {time!r:.50}")
    if nodes > 1 and (reason := ACTOR.unused(config)) is not None:
        raise ConfigError(f"--nodes: {reason}; leave it out")
    if 0 < ACTOR.processes(config) < nodes:
        raise ConfigError(
            f"--nodes: {nodes} nodes need as many actors; set actors.processes to that or more"
        )
    load_list(keys)
    for spec in ROLES.values():
        if spec.processes(config):
            load_key(key_path(keys, spec.name))
    here = [spec for spec in ROLES.values() if spec is not ACTOR and spec.processes(config)]
    actors = ACTOR.processes(config)
    key = "trainer.device" if config.resident.envs is None else "resident.device"
    device = config.trainer.device if config.resident.envs is None else config.resident.device
    devices = gpus(device, key) * config.ranks
    if "predictor" in {spec.name for spec in here}:
        devices += gpus(config.predictor.device, "predictor.device") * config.predictor.processes
    cpus = sum(spec.processes(config) * _threads(spec, config) for spec in here)
    lines = [
        "#!/bin/bash",
        f"# Made by `aclearn slurm {shlex.quote(source)}`; submit it by `sbatch` in this folder.",
        f"#SBATCH --job-name={config.run.name}",
        f"#SBATCH --time={time}",
        "#SBATCH --requeue",
        f"#SBATCH --signal=TERM@{_SAVE_S}",
        f"#SBATCH --nodes=1 --ntasks={cpus} --cpus-per-task=1",
    ]
    if devices:
        lines.append(f"#SBATCH --gpus-per-node={devices}")
    if actors:
        lines += [
            "#SBATCH hetjob",
            f"#SBATCH --nodes={nodes} --ntasks={actors} --cpus-per-task={ACTOR.threads(config)}",
        ]
    named = f"run.name={config.run.name}"
    network = (f"network.keys_dir={keys}", "network.bind_host=0.0.0.0")
    options = shlex.join([*network, *overrides, named])
    lines += [
        "set -uo pipefail",
        f"port=$(({_FIRST_PORT} + SLURM_JOB_ID % {_PORTS}))",
        "role() {  # kind, address of the monitor, options of srun",
        '  srun "${@:3}" --overlap --cpu-bind=none --kill-on-bad-exit=0 \\',
        f'    aclearn role "$1" {shlex.quote(source)} --monitor "$2" \\',
        f"    {options} &",
        "}",
    ]
    steps = []
    first = "--het-group=0 " if actors else ""  # only a heterogeneous job has groups
    for spec in here:
        host = "0.0.0.0" if spec is MONITOR else "$(hostname)"
        tasks = f"{first}--ntasks={spec.processes(config)}"
        steps.append(f'role {spec.name} "tcp://{host}:$port" {tasks}')
        if spec in (MONITOR, TRAINER):
            steps.append(f"{spec.name}=$!")
    if actors:
        tasks = f"--het-group=1 --ntasks={actors}"
        steps.append(f'role {ACTOR.name} "tcp://$(hostname):$port" {tasks}')
    return "\n".join([*lines, *steps, _END, ""])


def _threads(spec: RoleSpec, config: Config) -> int:
    if spec is TRAINER and config.resident.envs is not None:
        return config.resident.threads or 1  # not the cores of the machine that writes the script
    return busy_threads(spec, config)
