"""The commands that show runs in a browser: dashboard, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aclearn.errors import ConfigError
from aclearn.launch import die_with_parent
from aclearn.runs import check_file, write_file
from services.commands.options import ForceOption

# imports inside the commands: they may take seconds


def dashboard(
    dir: Annotated[
        Path, typer.Argument(metavar="RUNS_DIR", help="folder of the run folders, or one of them")
    ] = Path("runs"),
    host: Annotated[
        str, typer.Option(help="address to listen at; others than loopback need a token to read")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one")] = 8765,
    allow_actions: Annotated[
        bool,
        typer.Option(
            "--allow-actions",
            help="let users with the printed token stop running runs, and change some settings",
        ),
    ] = False,
) -> None:
    """Show runs in a browser, live and after their end.

    Example: aclearn dashboard runs
    """
    die_with_parent()  # of `aclearn train --dashboard`
    try:
        from services.dashboard.serve import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("starlette", "uvicorn", "sse_starlette"):
            raise ConfigError(
                f"the dashboard needs {error.name}; install it: pip install 'aclearn[dashboard]'"
            ) from error
        raise
    serve(dir, host=host, port=port, allow_actions=allow_actions)


def report(
    run: Annotated[Path, typer.Argument(help="run folder, e.g. runs/pong-1")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE.html", help="the page to write")],
    force: ForceOption = False,
) -> None:
    """Write a run as one page that needs no server and no network.

    Example: aclearn report runs/pong-1 --out pong.html
    """
    from services.dashboard.report import report_of

    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--out: {out}: expected a name that ends in .html")
    check_file(out, "--out", force=force)
    write_file(out, report_of(run), "--out")
    typer.echo(f"wrote {out}")
