from __future__ import annotations

import os
import signal
import threading

import pytest

from logproof.launch.interrupts import Interrupts


def test_a_signal_is_raised_at_the_end_of_the_block_at_the_latest() -> None:
    after: list[str] = []

    def block() -> None:
        with Interrupts():
            os.kill(os.getpid(), signal.SIGTERM)
            after.append("the block goes on")

    with pytest.raises(SystemExit) as caught:
        block()
    assert after
    assert caught.value.code == 128 + signal.SIGTERM


def test_the_first_of_several_signals_counts() -> None:
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        interrupts.check()


def test_an_error_of_the_block_is_not_replaced() -> None:
    def block() -> None:
        with Interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        block()


def test_other_threads_leave_the_handlers_alone() -> None:
    seen: list[object] = []

    def block() -> None:
        with Interrupts() as interrupts:
            seen.append(signal.getsignal(signal.SIGTERM))
            interrupts.check()

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]
