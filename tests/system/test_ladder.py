"""The ladder of chains in a real run: the rung changes, and survives a monitor and a compressor."""

from __future__ import annotations

import json

from tests.support.system import CARTPOLE, TOYS, Run, System


def _until_all_act(run: Run, share: float, what: str) -> None:
    run.wait_for(
        lambda: (
            run.last().get("compressed_share") == share
            and run.last()["monitor_directives_unacknowledged"] == 0.0
        ),
        what,
    )


def test_a_plugin_changes_the_chain_of_living_actors_and_it_stays(system: System) -> None:
    system.cwd = TOYS
    said = system.folder / "said.json"
    run = system.train(
        system.config(
            CARTPOLE,
            monitor={"plugins": [{"toy_plugin:SetsRung": {"file": str(said)}}]},
            compressor={"ladder": [["int8", "onnx"], ["onnx"], []]},
        )
    )
    _until_all_act(run, 1.0, "int8 acts")
    pids = run.pids()
    said.write_text(json.dumps({"rung": 1}))
    run.wait_for(lambda: run.last().get("compressor_rung") == 1.0, "the rung is the second")
    _until_all_act(run, 0.0, "the uncompressed policy acts")
    assert run.pids() == pids
    said.unlink()  # so that the next monitor's plug-in says nothing
    for name in ("monitor-0", "compressor-0"):
        run.wait_for_new(name, run.kill_role(name))
    run.wait_for(
        lambda: run.last().get("compressor_artifacts", 0) > 0, "the new compressor compresses"
    )
    assert run.last()["compressor_rung"] == 1.0
    said.write_text(json.dumps({"rung": 0, "share": 0.5}))
    run.wait_for(lambda: run.last().get("compressor_rung") == 0.0, "the rung is the first again")
    run.wait_for(lambda: 0.0 < run.last().get("compressed_share", 0.0) < 1.0, "two policies act")
    summary = run.finish()  # checks the account in every line
    assert summary["dropped_steps"].get("lost", 0) == 0
    assert "event=rung before=0 now=1 chain=onnx " in run.log("compressor-0")
