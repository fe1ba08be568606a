"""A publication's folder: whole whenever its process is killed, and edits in it are not lost."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import aclearn
from aclearn.errors import ConfigError, RunFolderError, RunFolderTaken
from aclearn.runs import is_publication
from services.commands.publishing.folder import files_of, new_folder
from tests.support.waiting import run_python

_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(aclearn.__file__).parents[1])}
_NAMES = ["README.md", "models/policy.onnx"]
_PUBLISH = """
import os, sys
from pathlib import Path
from services.commands.publishing.folder import new_folder

def publish(out, text, **options):
    with new_folder(Path(out), **options) as folder:
        (folder / "models").mkdir()
        for name in ("README.md", "models/policy.onnx"):
            (folder / name).write_text(text)
"""


def _publish(out: Path, text: str, **options: bool) -> None:
    with new_folder(out, **options) as folder:
        (folder / "models").mkdir()
        for name in _NAMES:
            (folder / name).write_text(text)


def _text(out: Path) -> str:
    """The text of a whole publication, whose files are all of the same."""
    assert is_publication(out) and sorted(files_of(out)) == sorted([*_NAMES, "publication.json"])
    [text] = {(out / name).read_text() for name in _NAMES}
    return text


def test_a_kill_at_any_step_leaves_the_old_or_the_new_folder_for_the_next_call(
    tmp_path: Path,
) -> None:
    """A child kills itself before its n-th call into the file system, for every n."""
    script = _PUBLISH + (
        """
def killed_before(call):
    calls = 0
    def counted(original):
        def wrapped(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == call:
                os.kill(os.getpid(), 9)
            return original(*args, **kwargs)
        return wrapped
    for name in ("open", "write", "fsync", "mkdir", "replace", "rename", "unlink", "rmdir"):
        setattr(os, name, counted(getattr(os, name)))

for call in range(1, 200):
    out = Path(sys.argv[1]) / str(call) / "it"
    publish(out, "old")
    child = os.fork()
    if child == 0:
        killed_before(call)
        publish(out, "new", force=True)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        print(call)
        break
"""
    )
    done = run_python("-c", script, tmp_path, env=_ENVIRONMENT)
    assert done.stderr == ""
    unharmed = int(done.stdout)
    outs = [tmp_path / str(call) / "it" for call in range(1, unharmed + 1)]
    missing = [out for out in outs if not out.exists()]
    assert len(missing) == 1  # between the two renames
    found = []
    for out in outs:
        if out not in missing:
            _text(out)
        with pytest.raises(RunFolderTaken, match="exists already; --force replaces it"):
            _publish(out, "newest")
        found.append(_text(out))
        assert [path.name for path in out.parent.iterdir()] == ["it"], "nothing is left over"
        _publish(out, "newest", force=True)
        assert _text(out) == "newest"
    assert found == ["old"] * found.count("old") + ["new"] * found.count("new")
    assert min(found.count("old"), found.count("new")) > 5


def test_what_was_made_in_the_place_of_a_folder_between_two_renames_never_removes_it(
    tmp_path: Path,
) -> None:
    out, old = tmp_path / "it", tmp_path / ".it.publishing" / "old"
    _publish(out, "old")
    old.parent.mkdir()
    out.rename(old)  # so a kill leaves it
    out.mkdir()
    (out / "mine").touch()
    with pytest.raises(ConfigError, match=f"{out} is in {old} and cannot be put back"):
        _publish(out, "new", force=True)
    (out / "mine").unlink()  # an empty folder is in nobody's way
    with pytest.raises(RunFolderTaken, match="exists already; --force replaces it"):
        _publish(out, "new")
    assert _text(out) == "old"


def test_edited_files_are_refused_by_name_until_a_second_choice(tmp_path: Path) -> None:
    out = tmp_path / "it"
    _publish(out, "old")
    (out / "README.md").write_text("mine")
    (out / "models" / "policy.onnx").unlink()  # nothing of it can be lost
    with pytest.raises(RunFolderTaken, match=r"edited .*: README\.md; .* with --discard-edits"):
        _publish(out, "new", force=True)
    with pytest.raises(RunFolderTaken, match="--force replaces it"):
        _publish(out, "new", discard_edits=True)
    assert (out / "README.md").read_text() == "mine"
    _publish(out, "new", force=True, discard_edits=True)
    assert _text(out) == "new"
    with pytest.raises(RunFolderTaken, match=r"README\.md"), new_folder(out, force=True):
        (out / "README.md").write_text("mine")  # while the new one is made
    assert (out / "README.md").read_text() == "mine"


def test_files_that_no_publication_wrote_stay(tmp_path: Path) -> None:
    out, mine = tmp_path / "it", tmp_path / "mine"
    _publish(out, "old")
    mine.mkdir()
    (out / "data").symlink_to(mine)
    with pytest.raises(RunFolderTaken, match="no publication wrote, for instance data"):
        _publish(out, "new", force=True, discard_edits=True)
    (out / "publication.json").write_text(json.dumps({"format": 1, "files": _NAMES}))
    with pytest.raises(RunFolderError, match="format 1, expected 2"):
        _publish(out, "new", force=True, discard_edits=True)
    assert (out / "README.md").read_text() == "old" and (out / "data").is_symlink()


def test_of_two_that_publish_to_one_folder_the_second_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "it"
    with new_folder(out) as folder:
        with pytest.raises(RunFolderTaken, match=r"another process publishes to .*/it;"):
            _publish(out, "second")
        _publish(tmp_path / "other", "beside it")
        (folder / "README.md").write_text("first")
    assert (out / "README.md").read_text() == "first"
