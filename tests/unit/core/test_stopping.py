"""Signals are noted, handlers come back, and what ends the program cannot be taken for success."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from ostinato.core.stop_request import SIGNALS, StopSignals


def send(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0)  # handlers run between two instructions of the main thread


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_the_first_signal_is_recorded(number: signal.Signals) -> None:
    before = [signal.getsignal(one) for one in SIGNALS]
    with StopSignals() as stop:
        assert stop.received is None
        send(number)
        assert stop.received is number
        if number != signal.SIGINT:
            send(number)  # again: still going on
    assert [signal.getsignal(one) for one in SIGNALS] == before


def test_a_second_ctrl_c_raises_immediately() -> None:
    with pytest.raises(KeyboardInterrupt), StopSignals() as stop:
        send(signal.SIGTERM)
        send(signal.SIGINT)
        pytest.fail("went on")
    assert stop.received is signal.SIGTERM


def test_handlers_come_back_after_an_error() -> None:
    before = [signal.getsignal(one) for one in SIGNALS]
    with pytest.raises(ZeroDivisionError), StopSignals():
        raise ZeroDivisionError
    assert [signal.getsignal(one) for one in SIGNALS] == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 128 + signal.SIGUSR1)])
def test_the_exit_code_says_which_signal(number: signal.Signals, code: int) -> None:
    with StopSignals() as stop:
        send(number)
    with pytest.raises(SystemExit) as left:
        stop.end_program()
    assert left.value.code == code


def test_ctrl_c_raises_keyboard_interrupt() -> None:
    with StopSignals() as stop:
        send(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        stop.end_program()


def test_without_a_signal_the_program_continues() -> None:
    with StopSignals() as stop:
        pass
    stop.end_program()


def test_ignored_signals_stay_ignored() -> None:
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with StopSignals() as stop:
            send(signal.SIGUSR1)
        assert stop.received is None
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_of_the_users_is_called_when_all_is_saved() -> None:
    """As job schedulers' helpers set one to queue the job again."""
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        with StopSignals() as stop:
            send(signal.SIGUSR1)
            assert heard == []
        with pytest.raises(SystemExit):
            stop.end_program()
        assert heard == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_another_thread_sets_no_handlers() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def inside() -> None:
        with StopSignals():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.parametrize(("number", "ended"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 0)])
def test_a_forked_child_can_be_ended_and_outlives_ctrl_c(number: signal.Signals, ended: int) -> None:
    with StopSignals() as stop:
        child = os.fork()
        if child == 0:
            send(number)
            os._exit(0 if stop.received is None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == ended


def test_after_some_signals_the_program_goes_on() -> None:
    with StopSignals(return_on=[signal.SIGTERM]) as stop:
        send(signal.SIGTERM)
        send(signal.SIGTERM)
        assert (stop.is_asked, stop.received, stop.why) == (True, None, "SIGTERM")
    stop.end_program()
