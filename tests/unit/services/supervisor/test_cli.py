"""The help of the command: every command explains itself, and its examples are words it takes."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer.main
from typer.core import TyperGroup

from services.supervisor import examples
from services.supervisor.cli import app

TEXTS = {name: text for name, text in vars(examples).items() if name.isupper()}
ROWS = [row.strip() for text in TEXTS.values() for row in text.split("\n\n") if "streamway" in row]


def test_there_are_examples_and_the_commands_that_they_are_of() -> None:
    assert len(ROWS) >= 20
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    assert {"up", "chat", "top", "status", "chaos", "prune", "reload", "config", "tasks", "keys"} <= set(group.commands)


def commands(group: TyperGroup, above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        found |= commands(command, f"{name} ") if isinstance(command, TyperGroup) else {f"{above}{name}": command}
    return found


def test_every_command_has_a_sentence_and_an_example() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for name, command in commands(group).items():
        assert command.help, name
        assert f"streamway {name}" in (command.epilog or ""), name


@pytest.mark.parametrize("row", ROWS)
def test_the_words_of_an_example_are_taken(row: str) -> None:
    line = re.split(r" {3,}", row)[0]
    line = re.split(r" < ", line)[0].rpartition("| ")[2]
    words = [word for word in shlex.split(line) if not word.startswith("STREAMWAY_")]
    command: Any = typer.main.get_command(app)
    name, *rest = words
    while isinstance(command, TyperGroup):
        name, *rest = rest
        command = command.commands[name]
    # Parses all of it, and runs nothing.
    command.make_context(name, rest)
