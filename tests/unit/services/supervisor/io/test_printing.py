"""An answer on a terminal: Markdown that scrolls, and nothing that a model could do to the screen."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from services.supervisor.io.printing import Plain, Pretty, printer, table_console


def screen(width: int = 60) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=12, color_system=None)


def shown(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def pieces(text: str, size: int = 7) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def test_markdown_is_shown_as_such_and_every_word_of_a_long_answer_stays() -> None:
    console = screen()
    text = "# Rivers\n\n" + "".join(f"Paragraph {number} is **here**.\n\n" for number in range(40)) + "- end"
    with Pretty(console) as show:
        for piece in pieces(text):
            show.piece(piece)
    final = shown(console)
    assert all(f"Paragraph {number} is here." in final for number in range(40)), "higher than the terminal"
    assert "**" not in final.rpartition("Paragraph 39")[2]
    assert " • end" in final


def test_html_is_text_and_links_say_where_they_lead() -> None:
    console = screen()
    with Pretty(console) as show:
        show.piece("<think>so</think>\n\n<b>bold</b> [here](https://example.org/x)\n")
    assert "<think>so</think>" in shown(console)
    assert "<b>bold</b>" in shown(console)
    assert "https://example.org/x" in shown(console)


def test_a_model_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    console = screen()
    with Pretty(console) as show:
        show.piece("a\x1b]0;title\x07b\x1b[2Jc\n")
    assert "\x1b]0;" not in shown(console)
    assert "\x1b[2J" not in shown(console)
    with Plain() as show_plain:
        show_plain.piece("a\x1b[2Jb\x9bc")
    assert capsys.readouterr().out == "a[2Jbc\n"


def test_what_is_read_again_begins_on_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with Plain() as show:
        show.piece("lost")
        show.anew()
        show.piece("again")
    assert capsys.readouterr().out == "lost\nagain\n"


def test_pipes_and_simple_terminals_get_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(printer(Console(file=io.StringIO()), plain=False), Plain)
    assert isinstance(printer(screen(), plain=True), Plain)
    assert isinstance(printer(screen(), plain=False), Pretty)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(printer(screen(), plain=False), Plain)


def test_a_table_in_a_pipe_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.StringIO())
    monkeypatch.delenv("COLUMNS", raising=False)
    assert table_console().width > 200
    monkeypatch.setenv("COLUMNS", "90")
    assert table_console().width == 90
