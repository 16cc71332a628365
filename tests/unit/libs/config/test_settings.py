"""Settings: precedence, what stops a start, and what is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel, Field, SecretStr
from pydantic_settings import SettingsConfigDict

from streamway.config import ServiceSettings, SharedSettings, load
from streamway.runtime.process import StartError


class EdgeLike(ServiceSettings):
    """Stands for a service's own settings."""

    model_config = SettingsConfigDict(env_prefix="STREAMWAY_EDGE_")
    section: ClassVar[str] = "edge"

    port: int = Field(default=8080, ge=0, le=65535, description="Port.")
    routers: tuple[str, ...] = Field(default=(), description="Addresses.")
    secret: SecretStr | None = Field(default=None, description="Secret.")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "streamway.yaml") -> None:
    Path(name).write_text(text, encoding="utf-8")


def port(*arguments: str) -> int:
    return load(EdgeLike, SharedSettings, arguments=arguments)[0].port


def refusal(*arguments: str) -> str:
    with pytest.raises(StartError) as caught:
        load(EdgeLike, SharedSettings, arguments=arguments)
    text = str(caught.value)
    assert "\n" not in text, "a refusal is one line"
    return text


def test_the_command_line_wins_over_the_environment_over_the_file_over_the_default(monkeypatch) -> None:
    assert port() == 8080
    write("edge: {port: 1}")
    assert port() == 1
    monkeypatch.setenv("STREAMWAY_EDGE_PORT", "2")
    assert port() == 2
    assert port("--port", "3") == 3


def test_an_empty_variable_counts_as_absent(monkeypatch) -> None:
    monkeypatch.setenv("STREAMWAY_EDGE_PORT", "")
    assert port() == 8080


def test_lists_are_json_on_the_command_line_and_in_the_environment(monkeypatch) -> None:
    monkeypatch.setenv("STREAMWAY_EDGE_ROUTERS", '["a:1"]')
    assert load(EdgeLike, arguments=[])[0].routers == ("a:1",)
    assert load(EdgeLike, arguments=["--routers", '["b:1", "c:2"]'])[0].routers == ("b:1", "c:2")


def test_a_file_can_be_named(monkeypatch, tmp_path: Path) -> None:
    write("edge: {port: 5}", "other.yaml")
    monkeypatch.setenv("STREAMWAY_CONFIG", str(tmp_path / "other.yaml"))
    assert port() == 5


def test_the_shared_section_reaches_every_service() -> None:
    write("shared: {log_level: debug}\nrouter: {anything: 1}\nedge:\n")
    assert load(EdgeLike, SharedSettings, arguments=[])[1].log_level == "debug"


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("STREAMWAY_EDGE_PROT", "did you mean STREAMWAY_EDGE_PORT?"),
        ("STREAMWAY_EGDE_PORT", "did you mean STREAMWAY_EDGE_PORT?"),
        ("STREAMWAY_VALKEY_URI", "did you mean STREAMWAY_VALKEY_URL?"),
        ("STREAMWAY_SOMETHING_ELSE", "see docs/configuration.md"),
    ],
)
def test_a_misspelt_variable_stops_the_start(monkeypatch, variable: str, hint: str) -> None:
    monkeypatch.setenv(variable, "1")
    assert variable in refusal()
    assert hint in refusal()


class _Inner(BaseModel):
    depth: int = 1


class _Nested(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="STREAMWAY_ADAPTER_", env_nested_delimiter="__")
    section: ClassVar[str] = "adapter"
    inner: _Inner = Field(default_factory=_Inner)


def test_a_field_of_a_model_inside_is_set_by_a_variable_of_its_own(monkeypatch) -> None:
    monkeypatch.setenv("STREAMWAY_ADAPTER_INNER__DEPTH", "5")
    (settings,) = load(_Nested, arguments=[])
    assert settings.inner.depth == 5
    monkeypatch.setenv("STREAMWAY_ADAPTER_INNER__DEEPTH", "5")
    with pytest.raises(StartError, match="did you mean STREAMWAY_ADAPTER_INNER__DEPTH"):
        load(_Nested, arguments=[])


def test_a_variable_of_another_service_is_not_ours_to_judge(monkeypatch) -> None:
    monkeypatch.setenv("STREAMWAY_ROUTER_PORT", "nonsense")
    assert port() == 8080


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("edge: {prot: 1}", "unknown setting 'prot'"),
        ("egde: {port: 1}", "unknown section 'egde'"),
        ("edge: {port: many}", "STREAMWAY_EDGE_PORT"),
        ("edge: {port: 70000}", "STREAMWAY_EDGE_PORT"),
        ("edge: [1]", "mapping of sections"),
        ("- edge", "mapping of sections"),
        ("edge: {port: [", "is not YAML"),
        ("1: {a: 2}", "unknown section 1"),
        ("edge: {1: 2}", "unknown setting"),
    ],
)
def test_a_wrong_file_stops_the_start_and_is_named(content: str, part: str) -> None:
    write(content)
    assert part in refusal()


def test_a_file_that_is_not_text_or_not_there_stops_the_start(monkeypatch) -> None:
    Path("streamway.yaml").write_bytes(b"\xff\xfe\x00")
    assert "streamway.yaml" in refusal()
    monkeypatch.setenv("STREAMWAY_CONFIG", "missing.yaml")
    assert "missing.yaml" in refusal()


def test_a_list_that_is_not_json_stops_the_start(monkeypatch) -> None:
    monkeypatch.setenv("STREAMWAY_EDGE_ROUTERS", "a:1")
    assert "routers" in refusal()


@pytest.mark.parametrize("arguments", [("--prot", "1"), ("--port",), ("stray",), ("--por", "1")])
def test_a_wrong_argument_stops_the_start(arguments: tuple[str, ...]) -> None:
    assert "--help" in refusal(*arguments)


def test_an_empty_mesh_token_is_refused_instead_of_meaning_none() -> None:
    assert "STREAMWAY_MESH_TOKEN" in refusal("--mesh-token", "")


def test_secrets_are_masked_in_what_is_shown(monkeypatch, capsys) -> None:
    monkeypatch.setenv("STREAMWAY_EDGE_SECRET", "hunter2")
    monkeypatch.setenv("STREAMWAY_MESH_TOKEN", "hunter2")
    monkeypatch.setenv("STREAMWAY_VALKEY_URL", "redis://:hunter2@localhost:6379/0")
    with pytest.raises(SystemExit) as ended:
        load(EdgeLike, SharedSettings, arguments=["--print-config"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "hunter2" not in text
    shown = json.loads(text)
    assert shown["edge"]["port"] == 8080
    assert shown["shared"]["mesh_token"] == "********"


def test_settings_are_frozen() -> None:
    (settings,) = load(EdgeLike, arguments=[])
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1
