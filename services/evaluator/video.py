"""Videos of an episode: GIF by Pillow, MP4 by imageio-ffmpeg."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aclearn.errors import ConfigError, EnvironmentFailure
from aclearn.runs import check_file, write_file
from services.evaluator.play import watch
from services.evaluator.saved_policy import SavedRun

_OPTION: Final = "--video"
#: Most pictures: an episode may not end.
MOST_PICTURES: Final = 5_000
#: Smaller pictures are enlarged by a whole factor to about this height, in pixels.
_HEIGHT: Final = 320

Pictures = Iterator[NDArray[np.uint8]]


def check_video(to: Path, *, force: bool = False) -> None:
    """Check in advance that `write_video` can write the file.

    Raises:
        ConfigError: it cannot be written, exists, is of another kind, or a package is missing.
    """
    if to.suffix.lower() not in _ENCODERS:
        raise ConfigError(f"{_OPTION}: {to}: expected a name that ends in .gif or .mp4")
    if to.suffix.lower() == ".mp4" and find_spec("imageio_ffmpeg") is None:
        raise ConfigError(
            f"{_OPTION}: {to}: an MP4 needs the package imageio-ffmpeg (pip install "
            "'aclearn[video]', or moviepy, which brings it); a name that ends in .gif needs none"
        )
    check_file(to, _OPTION, force=force)


def write_video(
    run: SavedRun, to: Path, *, greedy: bool = False, seed: int, most_steps: int = MOST_PICTURES
) -> tuple[int, float]:
    """Record one episode of at most `MOST_PICTURES` steps; returns its pictures and seconds.

    Args:
        most_steps: agent steps after which the episode is cut.
        to: a file that `check_video` has accepted; an existing one is replaced.

    Raises:
        AclearnError: the environment cannot be used or drawn.
    """
    to = to.absolute()  # an environment may change the working directory
    pictures, rate = watch(run, greedy=greedy, seed=seed)
    count = 0

    def counted() -> Pictures:
        nonlocal count
        first: Any = None
        for picture in islice(pictures, min(most_steps, MOST_PICTURES)):
            first = picture if first is None else first
            _check(picture, first, run.config.env.id)
            count += 1
            yield _enlarged(picture)

    data = _ENCODERS[to.suffix.lower()](counted(), rate)
    pictures.close()
    write_file(to, data, _OPTION)
    return count, count / rate


def _check(picture: Any, first: Any, env_id: str) -> None:
    """Raise `EnvironmentFailure` unless it is a picture, of the size of the first one."""
    shape: tuple[int, ...] = getattr(picture, "shape", ())
    dtype = getattr(picture, "dtype", None)
    if len(shape) != 3 or shape[2] != 3 or 0 in shape or dtype != np.uint8:
        got = type(picture).__name__ if dtype is None else f"{dtype} {tuple(shape)}"
        raise EnvironmentFailure(
            f"environment {env_id}: it gives {got} as its picture; expected an array uint8 "
            "(height, width, 3) of render_mode rgb_array, or of the environment's draw"
        )
    if shape != first.shape:
        raise EnvironmentFailure(
            f"environment {env_id}: its pictures have other sizes, {tuple(first.shape)} and "
            f"{tuple(shape)}; draw all of them in one size"
        )


def _enlarged(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    factor = max(1, _HEIGHT // picture.shape[0])
    return picture.repeat(factor, axis=0).repeat(factor, axis=1)


def _gif(pictures: Pictures, rate: float) -> bytes:
    from PIL import Image

    images = (Image.fromarray(picture) for picture in pictures)
    first = next(images)
    file = io.BytesIO()
    first.save(
        file, "GIF", save_all=True, append_images=images, duration=round(1000 / rate), loop=0
    )
    return file.getvalue()


def _mp4(pictures: Pictures, rate: float) -> bytes:
    from imageio_ffmpeg import write_frames

    first = next(pictures)
    height, width, _ = first.shape
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "video.mp4"
        # blocks of 2: the usual 16 would stretch pictures
        writer = write_frames(str(path), (width, height), fps=rate, macro_block_size=2)
        try:
            writer.send(None)
            for picture in chain([first], pictures):
                writer.send(np.ascontiguousarray(picture))
            writer.close()
            return path.read_bytes()
        except OSError as error:  # its words are the whole command
            raise EnvironmentFailure(
                f"{_OPTION}: ffmpeg could not write the MP4 in {folder} "
                f"({error.strerror or 'it ended early'}); a name that ends in .gif needs no ffmpeg"
            ) from error
        finally:
            writer.close()


_ENCODERS: Final[dict[str, Callable[[Pictures, float], bytes]]] = {".gif": _gif, ".mp4": _mp4}
