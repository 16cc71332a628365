"""Tests that run side by side, and those that must not."""

from __future__ import annotations

import fcntl
import threading
import time
from pathlib import Path

from tests.support.alone import Machine


class Holder:
    """Holds the machine in a thread until `leave` is called."""

    def __init__(self, folder: Path, *, alone: bool) -> None:
        self._machine, self._alone = Machine(folder), alone
        self._may_leave, self.inside = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        self._may_leave.set()
        self._thread.join(10)

    def _hold(self) -> None:
        with self._machine.held(alone=self._alone):
            self.inside.set()
            assert self._may_leave.wait(10)


def waits_in_the_door(folder: Path) -> bool:
    with (folder / "machine.door").open("w") as door:
        try:
            fcntl.flock(door, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_ordinary_tests_run_side_by_side(tmp_path: Path) -> None:
    one, two = Holder(tmp_path, alone=False), Holder(tmp_path, alone=False)
    assert one.inside.wait(10)
    assert two.inside.wait(10)
    one.leave()
    two.leave()


def test_one_that_must_be_alone_waits_for_those_that_run_and_goes_before_those_that_come(tmp_path: Path) -> None:
    runs = Holder(tmp_path, alone=False)
    assert runs.inside.wait(10)
    alone = Holder(tmp_path, alone=True)
    until = time.monotonic() + 10
    while not waits_in_the_door(tmp_path):
        assert time.monotonic() < until
    comes = Holder(tmp_path, alone=False)
    assert not alone.inside.is_set()
    runs.leave()
    assert alone.inside.wait(10)
    assert not comes.inside.is_set()
    alone.leave()
    assert comes.inside.wait(10)
    comes.leave()


def test_who_is_alone_after_one_that_was_alone_does_not_wait_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with machine.held(alone=True, next_alone=True):
        pass
    comes = Holder(tmp_path, alone=False)
    with machine.held(alone=True):
        assert not comes.inside.is_set()
    assert comes.inside.wait(10)
    comes.leave()


def test_the_machine_is_kept_for_nobody_who_shares_it(tmp_path: Path) -> None:
    with Machine(tmp_path).held(alone=False, next_alone=True):
        pass
    alone = Holder(tmp_path, alone=True)
    assert alone.inside.wait(10)
    alone.leave()
