"""A run on disk, as Python sees it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from aclearn.config import Config, config_from_yaml
from aclearn.errors import RunFolderError
from aclearn.runs import RunFolder, metrics_columns, read_metrics
from services.api.plain_errors import at_least, plain_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from services.evaluator.evaluate import Evaluation


class Run:
    """A run's folder, of a run that is running or over; each attribute reads the files.

    Attributes:
        path: the same, absolute.

    Raises:
        RunFolderError: there is no run.
    """

    def __init__(self, path: str | Path) -> None:
        self._folder = RunFolder.open(path)
        self.path: Path = self._folder.path

    @property
    def name(self) -> str:
        """The run's name."""
        return self._folder.name

    @property
    @plain_errors
    def config(self) -> Config:
        """The whole configuration, `config.yaml`.

        Raises:
            AclearnError: it cannot be read.
        """
        return config_from_yaml(
            self._folder.read_config_yaml(), source=str(self._folder.config_path)
        )

    @property
    @plain_errors
    def metrics(self) -> dict[str, NDArray[Any]]:
        """The metrics, one array for each name, with one value for each line of `metrics.jsonl`.

        Numbers are float64, NaN where a line has none. Nested figures are joined by a slash, as in
        `wait_share/actor/emulator`. Texts, such as `checkpoint_error`, are arrays of objects, None
        where a line has none. `pandas.DataFrame(run.metrics)` is a table of them; the names are in
        docs/metrics.md. Empty before the first line.

        Raises:
            RunFolderError: the file cannot be read, or the folder is gone.
        """
        path = self._present() / "metrics.jsonl"
        return metrics_columns(read_metrics(path) if path.exists() else [])

    @property
    @plain_errors
    def summary(self) -> dict[str, Any] | None:
        """The `summary.json` of the run's end: the last metrics line, `wall_s`, `reason`.

        None while the run goes on for the first time.

        Raises:
            RunFolderError: it cannot be read, or the folder is gone.
        """
        self._present()
        return self._folder.read_summary()

    def _present(self) -> Path:
        if not self.path.is_dir():
            raise RunFolderError(
                f"{self.path} was moved or removed; open the run at its new place (open_run)"
            )
        return self.path

    @plain_errors
    def plot(self, out: str | Path | None = None) -> Figure:
        """The return over time and over steps, as `aclearn plot` draws it.

        A notebook shows the figure if it is the last value of a cell.

        Args:
            out: a .png, .pdf or .svg to write it to; an existing one is replaced.

        Raises:
            AclearnError: there is nothing to draw yet, or the picture cannot be written.
        """
        from aclearn.views import figure_of_curves, read_curves
        from aclearn.views.learning_curves import check_picture, write_picture

        if out is not None:
            check_picture(Path(out))
        figure = figure_of_curves(read_curves(self.path))
        if out is not None:
            write_picture(figure, Path(out))
        return figure

    @plain_errors
    def evaluate(
        self,
        episodes: int = 20,
        *,
        greedy: bool = False,
        at: str | int = "newest",
        policy: str | None = None,
        seed: int = 1_000_003,
    ) -> Evaluation:
        """Play whole episodes with a checkpoint, as `aclearn evaluate` does.

        Args:
            episodes: number of episodes, at least 1.
            greedy: take the most probable action instead of sampling.
            at: which checkpoint, as of `load`.
            policy: name of the one of several whose score is wanted; all of them play.
            seed: of environments and sampling; must differ from training.

        Raises:
            AclearnError: the checkpoint or the environment cannot be used.
        """
        from services.evaluator.evaluate import evaluate

        episodes, seed = at_least("episodes", episodes, 1), at_least("seed", seed, 0)
        return evaluate(
            self.path, policy=policy, episodes=episodes, greedy=greedy, at=at, seed=seed
        )

    @plain_errors
    def evaluate_policies(
        self,
        episodes: int = 20,
        *,
        greedy: bool = False,
        at: str | int = "newest",
        seed: int = 1_000_003,
    ) -> dict[str, Evaluation]:
        """Play whole episodes with all policies of a checkpoint; returns policy → its score.

        Args and errors are those of `evaluate`.
        """
        from services.evaluator.evaluate import evaluate_policies

        episodes, seed = at_least("episodes", episodes, 1), at_least("seed", seed, 0)
        return evaluate_policies(self.path, episodes=episodes, greedy=greedy, at=at, seed=seed)

    @plain_errors
    def record(
        self,
        to: str | Path,
        *,
        greedy: bool = False,
        at: str | int = "newest",
        seed: int = 1_000_003,
    ) -> None:
        """Record one episode as a video, as `aclearn evaluate --video` does.

        It has at most 5 000 pictures, one a step. An environment that does not say how many are
        shown a second (`render_fps`) gets 30.

        Args:
            to: a .gif, or an .mp4 where the package imageio-ffmpeg is; an existing one is replaced.
            greedy: take the most probable action instead of sampling.
            at: which checkpoint, as of `load`.
            seed: of the environment and sampling; must differ from training.

        Raises:
            AclearnError: the checkpoint or the environment cannot be used or drawn, or the file not
                be written.
        """
        from services.evaluator.saved_policy import load_run
        from services.evaluator.video import check_video, write_video

        seed = at_least("seed", seed, 0)
        check_video(Path(to), force=True)
        write_video(load_run(self.path, at=at), Path(to), greedy=greedy, seed=seed)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"
