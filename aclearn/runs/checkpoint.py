"""Checkpoints: weights and state on disk, verified when read."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast, get_args

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from aclearn.errors import CheckpointError
from aclearn.runs.atomic_file import (
    sync_folder,
    temporary_of,
    write_aside,
    write_atomically,
)
from aclearn.runs.thinning import thinned
from aclearn.types import DEFAULT_POLICY

Array = np.ndarray[Any, Any]
_log = logging.getLogger(__name__)

#: What a checkpoint is for, beside resuming: the best policy so far, or one that is kept for later.
Mark = Literal["", "best", "kept"]
_FORMAT: Final = 3
#: Times that a folder is listed whose checkpoints a live run replaces meanwhile.
_LISTINGS: Final = 5
_NAME: Final = re.compile(r"(?P<number>\d{6,})-(?P<label>\d+)(-(?P<mark>best|kept))?")
_DTYPES: Final = frozenset(
    {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
    | {"bool", "float16", "float32", "float64"}
)


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint; the arrays belong to the caller.

    Attributes:
        state: the JSON state, as saved (tuples come back as lists).
    """

    tensors: dict[str, np.ndarray[Any, Any]]
    state: dict[str, Any]
    path: Path
    label: int

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of its policies."""
        return tuple(self.state.get("policies", {})) or (DEFAULT_POLICY,)

    def of_policy(self, policy: str) -> Checkpoint:
        """The checkpoint of one of its policies, as of a run of this policy alone.

        Raises:
            CheckpointError: there is none of this name.
        """
        if policy not in self.policies:
            raise CheckpointError(
                f"{self.path} has no policy {policy!r}; its policies are {', '.join(self.policies)}"
            )
        if "policies" not in self.state:
            return self
        state = {**self.state["policies"][policy], "judged": self.state["judged"]}
        return replace(self, tensors=tensors_of(policy, self.tensors), state=state)


def prefix_of(policy: str) -> str:
    """What the names of the tensors of one of several policies begin with."""
    return f"policy/{policy}/"


def tensors_of(policy: str, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """The tensors of one of several policies, by their names in a run of it alone."""
    prefix = prefix_of(policy)
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def save_checkpoint(
    dir: Path,
    *,
    tensors: Mapping[str, np.ndarray[Any, Any]],
    state: Mapping[str, Any],
    label: int,
    keep: int,
    mark: Mark = "",
    spread: int = 0,
) -> Path:
    """Write a checkpoint durably and return its path.

    Without a mark it is now the newest, whatever its label. Marked ones are beside it for later: a
    "best" one, and "kept" ones, which stay evenly over their labels.

    `<number>-<label>.json`, with the digests, is written beside its place, then `.safetensors`; the
    renaming of the JSON commits both. Then others are removed, except the last `keep` without a
    mark, the last best one, and `spread` kept ones. Only one process may write to a folder. It
    removes nothing but whole checkpoints and the rest of a killed save or removal: see `look_into`.

    Args:
        tensors: arrays of bool, integers or floats (no bfloat16), of any memory layout.
        state: JSON with string keys and finite numbers; `state["architecture"]` names the policy.
        label: a number for users, such as updates; ≥ 0.

    Raises:
        CheckpointError: disk full, invalid values, …; nothing of it is left and the older ones
            stay.
        ValueError: `keep` or `label` is too low.
    """
    if keep < 1 or label < 0:
        raise ValueError(f"expected keep >= 1 and label >= 0, got keep={keep} label={label}")
    blob = _tensor_bytes(tensors)
    try:
        dir.mkdir(parents=True, exist_ok=True)
        for torn in look_into(dir).torn:
            remove_checkpoint(torn)
        name = f"{_next_number(dir):06d}-{label}{f'-{mark}' if mark else ''}"
        document = _document_bytes(name, label, state, blob)
        path = dir / f"{name}.json"
        try:
            aside = write_aside(path, document)
            write_atomically(path.with_suffix(".safetensors"), blob)
            os.replace(aside, path)
            sync_folder(dir)
        except BaseException:
            remove_checkpoint(path)
            raise
    except OSError as exc:
        raise CheckpointError(
            f"checkpoint {label} ({len(blob)} bytes) cannot be written to {dir} ({exc.strerror}); "
            "the ones before it stay; free space or repair the folder"
        ) from exc
    try:
        _prune(dir, keep, spread)
    except OSError as exc:
        _log.warning("event=checkpoints_not_pruned dir=%s error=%s", dir, exc.strerror)
    return path


def load_newest(
    dir: Path, *, policies: Sequence[str] | None = None, expect_architecture: str | None = None
) -> Checkpoint | None:
    """The newest undamaged checkpoint in `dir`; None if there is nothing of a checkpoint.

    Damaged ones are skipped with a warning in the log; marked ones come last.

    Args:
        policies: required names; None accepts any.
        expect_architecture: required value of `state["architecture"]`; None accepts any.

    Raises:
        CheckpointError: there are only damaged checkpoints or parts of some, or the newest
            undamaged one has another architecture or other policies.
    """
    check_parts(dir)
    checkpoint = _load_first_whole(dir)
    if checkpoint is None:
        return None
    path = checkpoint.path
    if policies is not None and set(policies) != set(checkpoint.policies):
        raise CheckpointError(
            f"{path} is of the policies {', '.join(sorted(checkpoint.policies))}, and this run has "
            f"{', '.join(sorted(policies))}: a run keeps its policies. Set the section policies as "
            "in the run's config.yaml; to add or remove one, start another run.name whose policies "
            f"begin there (policies.NAME.init_from: {path.parents[1]})"
        )
    found = checkpoint.state.get("architecture")
    if expect_architecture not in (None, found):
        raise CheckpointError(
            f"{path} belongs to another architecture: expected {expect_architecture!r}, found "
            f"{found!r}; set policy and env as in the run's config.yaml, or "
            "start under another run.name"
        )
    return checkpoint


def load_best(dir: Path) -> Checkpoint | None:
    """The last checkpoint that was saved as best; None if there is none.

    Raises:
        CheckpointError: all of them are damaged.
    """
    return _load_first_whole(dir, mark="best")


def list_checkpoints(dir: Path) -> list[Path]:
    """The JSON files of the checkpoints in `dir`, not verified.

    The newest is first; those that are marked come last, since they are older than their numbers.
    """
    newest_first = [path for _, path in sorted(_committed(dir), reverse=True)]
    return sorted(newest_first, key=lambda path: mark_of(path) != "")


def mark_of(path: Path) -> Mark:
    """The mark of the checkpoint of the JSON file `path`."""
    match = _NAME.fullmatch(path.stem)
    return cast("Mark", (match and match["mark"]) or "")


class CheckpointFiles(NamedTuple):
    """What is in a folder of checkpoints; hidden files aside.

    Attributes:
        whole: JSON files of checkpoints whose JSON is undamaged and whose weights have its size,
            newest first.
        torn: JSON paths of checkpoints of which a killed save or removal left a rest.
        strange: all other files: damaged ones, parts of a copy, files of other versions or of
            others.
    """

    whole: list[Path]
    torn: list[Path]
    strange: list[Path]


def look_into(dir: Path) -> CheckpointFiles:
    """Tell the files in `dir` apart: only what is whole or torn may be removed.

    While a checkpoint is written or removed, its JSON stands beside its place: weights without a
    JSON there are not the rest of a kill, but perhaps all that is left of a run.
    """
    paths = {path for path in dir.iterdir() if not path.name.startswith(".")}
    whole = [path for path in list_checkpoints(dir) if _is_whole(path)]
    jsons = [
        path.with_suffix("")
        for path in paths
        if path.name.endswith(temporary_of(Path(".json")).name)
    ]
    torn = [path for path in jsons if _NAME.fullmatch(path.stem) and path not in paths]
    known = {file for path in (*whole, *torn) for file in _files_of(path)}
    return CheckpointFiles(whole, torn, sorted(paths - known))


def remove_checkpoint(path: Path) -> None:
    """Remove the checkpoint of the JSON file `path`, or the rest of one.

    A kill meanwhile leaves a rest that `look_into` knows.
    """
    if path.exists():
        os.replace(path, temporary_of(path))
    for file in _files_of(path):
        file.unlink(missing_ok=True)


def check_parts(dir: Path) -> None:
    """Raise `CheckpointError` if there is no checkpoint in `dir`, but something that may be of one.

    It is what a partial copy of a run leaves.
    """
    if not dir.is_dir() or not (found := look_into(dir).strange) or list_checkpoints(dir):
        return
    names = ", ".join(path.name for path in found[:3]) + (", …" if len(found) > 3 else "")
    raise CheckpointError(
        f"{dir} has no checkpoint, but {names}: expected <number>-<label>.json beside each "
        ".safetensors of that name. Copy the missing files there; to start afresh instead, use "
        "--overwrite or another run.name"
    )


def _files_of(path: Path) -> list[Path]:
    """The files of a checkpoint, also while it is written or removed; last the JSON set aside."""
    tensors = path.with_suffix(".safetensors")
    return [path, tensors, temporary_of(tensors), temporary_of(path)]


def _is_whole(path: Path) -> bool:
    """Whether it is a checkpoint that this version wrote, as far as the JSON and sizes tell."""
    tensors = path.with_suffix(".safetensors")
    if path.is_symlink() or tensors.is_symlink():
        return False
    try:
        body = _verified_body(path, path.read_bytes())
        return bool(tensors.stat().st_size == body["tensors_bytes"])
    except (OSError, CheckpointError):
        return False


def _number(path: Path) -> int:
    match = _NAME.fullmatch(path.stem)
    return int(match["number"]) if match else 0


def _label(path: Path) -> int:
    match = _NAME.fullmatch(path.stem)
    return int(match["label"]) if match else 0


def _next_number(dir: Path) -> int:
    """A number above those of all files, whole or not."""
    matches = (_NAME.fullmatch(path.name.partition(".")[0]) for path in dir.iterdir())
    return max((int(match["number"]) for match in matches if match), default=0) + 1


def saved_labels(dir: Path) -> list[int]:
    """The labels of the checkpoints in `dir`, as of `list_checkpoints`."""
    return [_label(path) for path in list_checkpoints(dir)]


def _load_first_whole(dir: Path, *, mark: Mark | None = None) -> Checkpoint | None:
    """The first whole one with this mark, or of all; None if there is none."""
    for _ in range(_LISTINGS):
        reasons, is_replaced = [], False
        for path in list_checkpoints(dir):
            if mark not in (None, mark_of(path)):
                continue
            try:
                return load_checkpoint(path)
            except CheckpointError as exc:
                _log.warning("event=checkpoint_skipped reason=%s", exc)
                reasons.append(str(exc))
                is_replaced |= not path.exists()
        if not is_replaced:
            break
    if reasons:
        raise CheckpointError(f"every checkpoint in {dir} is damaged: " + "; ".join(reasons))
    return None


def read_state(path: Path) -> dict[str, Any]:
    """The state of the checkpoint of the JSON file `path`, without its tensors.

    Raises:
        CheckpointError: it cannot be read, or is damaged.
    """
    try:
        state: dict[str, Any] = _verified_body(path, path.read_bytes())["state"]
    except OSError as exc:
        raise CheckpointError(f"{path} cannot be read ({exc.strerror})") from exc
    return state


def load_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint of the JSON file `path`, verified bit by bit.

    Raises:
        CheckpointError: it is missing, truncated, changed or of another format.
    """
    try:
        document = path.read_bytes()
        blob = path.with_suffix(".safetensors").read_bytes()
    except OSError as exc:
        raise CheckpointError(f"{path} cannot be read ({exc.filename}: {exc.strerror})") from exc
    body = _verified_body(path, document)
    if len(blob) != body["tensors_bytes"] or _digest(blob) != body["tensors_sha256"]:
        raise CheckpointError(
            f"{path.with_suffix('.safetensors')} is damaged: expected {body['tensors_bytes']} "
            f"bytes with sha256 {body['tensors_sha256']}, found {len(blob)} with {_digest(blob)}"
        )
    try:
        tensors = safetensors.numpy.load(blob)
    except (SafetensorError, ValueError, KeyError) as exc:
        raise CheckpointError(f"{path} holds tensors that cannot be read ({exc})") from exc
    return Checkpoint(tensors, body["state"], path, body["label"])


def _verified_body(path: Path, document: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(document)
        body: dict[str, Any] = parsed["body"]
        # The form is canonical: any other byte, even a space, is damage.
        whole = document == _seal(body)
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise CheckpointError(f"{path} is damaged: not the JSON of a checkpoint ({exc})") from exc
    if not whole:
        raise CheckpointError(f"{path} is damaged: its content does not fit its sha256")
    if body.get("format") != _FORMAT:
        raise CheckpointError(
            f"{path} has format {body.get('format')}, expected {_FORMAT}; it was written by "
            "another version of aclearn"
        )
    if body.get("name") != path.stem:
        raise CheckpointError(f"{path} was saved as {body.get('name')}; rename it back")
    return body


def _document_bytes(name: str, label: int, state: Mapping[str, Any], blob: bytes) -> bytes:
    body = {
        "format": _FORMAT,
        "name": name,
        "label": label,
        "tensors_bytes": len(blob),
        "tensors_sha256": _digest(blob),
        "state": dict(state),
    }
    try:
        return _seal(body)
    except (TypeError, ValueError, RecursionError) as exc:
        raise CheckpointError(
            f"the state of checkpoint {name} must be JSON with string keys and finite numbers "
            f"({exc})"
        ) from exc


def _seal(body: Mapping[str, Any]) -> bytes:
    canonical = json.dumps(body, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return f'{{"body":{canonical},"sha256":"{_digest(canonical.encode())}"}}\n'.encode()


def _tensor_bytes(tensors: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    for name, array in tensors.items():
        if array.dtype.name not in _DTYPES:
            raise CheckpointError(
                f"tensor {name!r} has dtype {array.dtype}, expected one of {sorted(_DTYPES)}"
            )
    # Not ascontiguousarray, which makes a scalar one-dimensional.
    return safetensors.numpy.save({k: np.asarray(v, order="C") for k, v in tensors.items()})


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _committed(dir: Path) -> list[tuple[int, Path]]:
    found = ((_NAME.fullmatch(path.stem), path) for path in dir.glob("*.json"))
    return [(int(match["number"]), path) for match, path in found if match]


def _prune(dir: Path, keep: int, spread: int) -> None:
    whole = look_into(dir).whole
    marked = {mark: [path for path in whole if mark_of(path) == mark] for mark in get_args(Mark)}
    kept = sorted(marked["kept"], key=_number)
    places = thinned([_label(path) for path in kept], spread)
    stays = {*marked[""][:keep], *marked["best"][:1], *(kept[place] for place in places)}
    removed = [path for path in whole if path not in stays]
    for path in removed:
        remove_checkpoint(path)
    if removed:
        sync_folder(dir)
