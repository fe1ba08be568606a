from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

import aclearn
from aclearn.launch import Interrupted, StopFlag, install_stop_signals, raise_on_ctrl_c
from tests.support.waiting import run_python


def _send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)  # to the only Python thread that handles signals: at once


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_signal_sets_the_flag_with_its_name(
    number: signal.Signals, request: pytest.FixtureRequest
) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # nohup ignores SIGHUP, and it would stay so
    request.addfinalizer(partial(signal.signal, number, before))
    with install_stop_signals() as flag:
        assert not flag
        _send(number)
        assert flag
        assert (flag.reason, flag.forced) == (number.name, False)


def test_the_second_ctrl_c_forces_and_the_first_reason_stays() -> None:
    with install_stop_signals() as flag:
        _send(signal.SIGTERM)
        _send(signal.SIGINT)
        assert not flag.forced
        _send(signal.SIGINT)
        assert (flag.reason, flag.forced) == ("SIGTERM", True)


def test_a_repeated_sigterm_does_not_force_and_a_reason_from_within_stays() -> None:
    with install_stop_signals() as flag:
        flag.set("target reached")
        for _ in range(5):
            _send(signal.SIGTERM)
        assert (flag.reason, flag.forced) == ("target reached", False)


def test_the_exit_status_is_of_the_signal() -> None:
    for reason, status in {"SIGTERM": 143, "SIGINT": 130, "x": 1}.items():
        flag = StopFlag()
        flag.set(reason)
        assert flag.exit_status == status


def test_ctrl_c_raises_where_no_loop_reads_a_flag() -> None:
    # a shell's background job ignores SIGINT, and so would this test in one
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        raise_on_ctrl_c()
        with pytest.raises(Interrupted):
            _send(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise_on_ctrl_c()
        _send(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_handlers_from_before_are_put_back() -> None:
    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    with install_stop_signals():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)] == before


def test_the_third_ctrl_c_ends_a_process_that_does_not_read_its_flag() -> None:
    source = (
        "import os, signal\n"
        "from aclearn.launch import install_stop_signals\n"
        "flag = install_stop_signals()\n"
        "flag.last_acts.append(lambda: print('removed', flush=True))\n"
        "for count in range(3):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print(count, flag.reason, flag.forced, flush=True)\n"
    )
    done = run_python(
        *("-c", source), env=os.environ | {"PYTHONPATH": str(Path(aclearn.__file__).parents[1])}
    )
    assert done.stdout.splitlines() == ["0 SIGINT False", "1 SIGINT True", "removed"]
    assert done.returncode == -signal.SIGINT


def test_nohup_keeps_a_closed_terminal_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with install_stop_signals() as flag:
            _send(signal.SIGHUP)
            assert not flag
    finally:
        signal.signal(signal.SIGHUP, before)
