"""What `make up` says: what it lacks, where the mesh is, and the key that nobody can be told twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import up

COMPOSE = ("docker", "compose", "--env-file", ".run/compose.env")


def docker(folder: Path, *, engine: bool = True, compose: bool = True, build: int = 0, start: int = 0) -> None:
    """A command that answers as Docker's does."""
    command = folder / "docker"
    command.write_text(
        f"""#!/bin/sh
case "$*" in
  "version "*) {"echo 28.1" if engine else "exit 1"};;
  "compose version "*) {"echo 5.6.1" if compose else "exit 125"};;
  "buildx version") exit 0;;
  *" --profile tools build") exit {build};;
  *" up --detach --wait") exit {start};;
  *" port edge 8080") echo 127.0.0.1:8081;;
  *) exit 9;;
esac
""",
        encoding="utf-8",
    )
    command.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_the_address_comes_last_but_for_the_key_and_the_key_once(
    path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    docker(path)
    up.up(COMPOSE, tmp_path / ".run")
    first = capfd.readouterr().out.splitlines()
    assert first[-3] == "all healthy: http://127.0.0.1:8081"
    assert first[-2].startswith("your API key, shown only now: sw-")
    up.up(COMPOSE, tmp_path / ".run")
    assert capfd.readouterr().out.splitlines() == ["all healthy: http://127.0.0.1:8081"]


@pytest.mark.parametrize(
    ("lacks", "said"),
    [
        (None, "there is no `docker` command"),
        ({"engine": False}, "no Docker engine answers"),
        ({"compose": False}, "has no Compose 2 or newer"),
    ],
)
def test_without_an_engine_nothing_is_made_and_it_says_what_is_missing(
    path: Path, tmp_path: Path, lacks: dict[str, bool] | None, said: str
) -> None:
    if lacks is not None:
        docker(path, **lacks)
    with pytest.raises(SystemExit, match=said) as ended:
        up.up(COMPOSE, tmp_path / ".run")
    assert "make run" in str(ended.value)
    assert not (tmp_path / ".run").exists()


@pytest.mark.parametrize(("failing", "said"), [("build", "the images could not be built"), ("start", "logs SERVICE")])
def test_a_key_that_was_made_is_shown_even_if_the_rest_fails(
    path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], failing: str, said: str
) -> None:
    docker(path, **{failing: 3})
    with pytest.raises(SystemExit, match=said):
        up.up(COMPOSE, tmp_path / ".run")
    assert "your API key, shown only now: sw-" in capfd.readouterr().out
