"""The chat that is kept between two commands."""

from __future__ import annotations

import stat
from pathlib import Path

from services.supervisor.io.chat_file import FILE_NAME, ChatFile, Kept, Turn

KEPT = Kept("127.0.0.1:7001", "m", (Turn("user", "a"), Turn("assistant", "b")), "why?", "0197", "bec", 9, 4)


def test_it_comes_back_as_it_was_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    file = ChatFile(tmp_path / "made")
    assert file.read() is None
    file.write(KEPT)
    assert file.read() == KEPT
    assert stat.S_IMODE((tmp_path / "made" / FILE_NAME).stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "made").iterdir()] == [FILE_NAME]


def test_what_is_no_chat_or_cannot_be_written_is_none(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('{"router": 1}')
    assert ChatFile(tmp_path).read() is None
    blocked = tmp_path / "file"
    blocked.write_text("")
    ChatFile(blocked).write(KEPT)
    assert ChatFile(blocked).read() is None


def test_a_chat_that_grew_too_large_is_not_kept(tmp_path: Path) -> None:
    file = ChatFile(tmp_path)
    file.write(KEPT)
    file.write(Kept("r", "m", (Turn("user", "x" * 9_000_000),)))
    assert file.read() == KEPT
