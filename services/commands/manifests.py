"""The commands that write files for Kubernetes and Slurm."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Annotated

import typer

from aclearn.config import load_config
from aclearn.errors import ConfigError
from services.commands.options import ConfigArgument, OverridesArgument

_QUANTITY = re.compile(r"[1-9]\d*(Mi|Gi|Ti|M|G|T)", re.ASCII)


def manifests(
    config: ConfigArgument,
    out: Annotated[Path, typer.Option(help="folder to write to; an older one is replaced")],
    overrides: OverridesArgument = None,
    image: Annotated[str, typer.Option(help="image of docs/containers.md")] = "aclearn",
    storage: Annotated[str, typer.Option(help="size of the claim of the run folder")] = "10Gi",
    most_actors: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="let an autoscaler start so many actors, by their CPU"),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(help="write the keys of this folder too, in the clear; default: no Secret"),
    ] = None,
) -> None:
    """Write Kubernetes manifests of a run, or of a population if the configuration has one.

    Example: aclearn manifests cartpole --out k8s --image registry.example/aclearn
    """
    from aclearn.wire import load_list
    from aclearn.wire.keys import read_private
    from services.roles import ROLES
    from services.schedulers.checks import check_files, check_name
    from services.schedulers.folder import write_folder
    from services.schedulers.pods import key_files, metadata
    from services.schedulers.population import RAY_TOKEN, population_objects
    from services.schedulers.run import run_objects

    loaded = load_config(config, overrides or []).named_by_seed()
    name = str(loaded.run.name)
    check_name(name)
    check_files(loaded)
    if not _QUANTITY.fullmatch(storage):
        raise ConfigError(f"--storage: expected a size such as 10Gi or 500Mi, got {storage!r:.50}")
    population = loaded.population.enabled
    if population:
        for option, given in (("--most-actors", most_actors), ("--keys", keys)):
            if given is not None:
                raise ConfigError(f"{option}: a population takes none; leave it out")
        objects = dict(population_objects(loaded, image, storage))
        source = f'--from-literal={RAY_TOKEN}="$(openssl rand -hex 32)"'
    else:
        objects = dict(run_objects(loaded, image, storage, most_actors))
        source = "--from-file=keys"
    if keys is not None:
        load_list(keys)
        files = [file for spec in ROLES.values() for file in key_files(spec)]
        for file in files:
            read_private(keys / file)
        objects["keys"] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata(loaded, "keys"),
            "type": "Opaque",
            "data": {file: base64.b64encode((keys / file).read_bytes()).decode() for file in files},
        }
    write_folder(out, objects)
    typer.echo(f"wrote {len(objects)} objects to {out}; next:")
    if keys is None:
        if not population:
            typer.echo("  aclearn keys new    # once")
        typer.echo(f"  kubectl create secret generic {name}-keys {source}")
    typer.echo(f"  kubectl apply -f {out}")


def slurm(
    config: ConfigArgument,
    overrides: OverridesArgument = None,
    nodes: Annotated[int, typer.Option(min=1, max=10_000, help="nodes for the actors")] = 1,
    time: Annotated[str, typer.Option(help="time of the job, as Slurm writes it")] = "1-00:00:00",
    keys: Annotated[Path, typer.Option(help="folder of the keys; all nodes see it")] = Path("keys"),
) -> None:
    """Print an sbatch script of a run: trainer and others on the first node, actors on the rest.

    Example: aclearn slurm pong --nodes 4 > pong.sbatch
    """
    from services.schedulers.slurm import slurm_script

    given = overrides or []
    loaded = load_config(config, given).named_by_seed()
    typer.echo(slurm_script(loaded, config, given, nodes=nodes, time=time, keys=keys), nl=False)
