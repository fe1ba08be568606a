"""A population on disk, as Python sees it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from aclearn.config import Config, load_config
from aclearn.errors import RunFolderError
from aclearn.population import Best, Lineage
from aclearn.population.file import best_folder, member_folder, read_lineage
from aclearn.runs import metrics_columns, read_metrics
from services.api.plain_errors import plain_errors
from services.api.run import Run
from services.population.folder import CONFIG_FILE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Population:
    """The folder of an `aclearn evolve`, running or over; each attribute reads the files.

    Attributes:
        path: the same, absolute.

    Raises:
        RunFolderError: there is no population.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        read_lineage(self.path)

    @property
    def name(self) -> str:
        """The population's name."""
        return self.path.resolve().name

    @property
    @plain_errors
    def config(self) -> Config:
        """The configuration of all members, `population.yaml`."""
        return load_config(self.path / CONFIG_FILE)

    @property
    @plain_errors
    def lineage(self) -> Lineage:
        """Every round: hyper-parameters, fitness and parents of each member."""
        return read_lineage(self.path)

    @property
    @plain_errors
    def members(self) -> list[Run]:
        """The runs of the members that have begun, in the order of their numbers."""
        numbers = range(len(self.lineage.now.members))
        folders = (member_folder(self.path, number) for number in numbers)
        return [Run(folder) for folder in folders if (folder / "config.yaml").is_file()]

    @property
    @plain_errors
    def best(self) -> Run:
        """The run folder of the best agent so far, with one checkpoint.

        Raises:
            RunFolderError: no member has been judged yet.
        """
        if not (best_folder(self.path) / "config.yaml").is_file():
            raise RunFolderError(f"no member of {self.path} has been judged yet; wait for a round")
        return Run(best_folder(self.path))

    @property
    @plain_errors
    def best_member(self) -> Best | None:
        """Who the best agent so far was, with its fitness and hyper-parameters; None before one."""
        return self.lineage.best

    @property
    @plain_errors
    def metrics(self) -> dict[str, Any]:
        """The metrics, one array for each name with one value for each round; see `Run.metrics`."""
        read_lineage(self.path)  # says what is wrong with the folder
        path = self.path / "metrics.jsonl"
        return metrics_columns(read_metrics(path) if path.exists() else [])

    @plain_errors
    def plot(self, out: str | Path | None = None) -> Figure:
        """Fitness and hyper-parameters over rounds with lineage, as `aclearn plot` draws them.

        A notebook shows the figure if it is the last value of a cell.

        Args:
            out: a .png, .pdf or .svg to write it to; an existing one is replaced.

        Raises:
            AclearnError: there is nothing to draw yet, or the picture cannot be written.
        """
        from aclearn.views.learning_curves import check_picture, write_picture
        from aclearn.views.population_plot import figure_of_population

        if out is not None:
            check_picture(Path(out))
        figure = figure_of_population(self.path)
        if out is not None:
            write_picture(figure, Path(out))
        return figure

    def __repr__(self) -> str:
        return f"Population({str(self.path)!r})"
