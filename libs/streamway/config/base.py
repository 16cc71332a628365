"""How every service reads its settings.

A setting of service `edge` named `port` is `--port` on its command line, `STREAMWAY_EDGE_PORT` in the environment and
`edge: {port: …}` in `streamway.yaml`. What all services share has the prefix `STREAMWAY_` and the section `shared`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn, TypeVar

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from streamway.config import strict_yaml
from streamway.runtime.start import StartError

# Every prefix that exists, so that a misspelt one is told from another service's.
SERVICE_PREFIXES: Final = {
    "edge": "STREAMWAY_EDGE_",
    "router": "STREAMWAY_ROUTER_",
    "adapter": "STREAMWAY_ADAPTER_",
    "cache": "STREAMWAY_CACHE_",
    "up": "STREAMWAY_UP_",
    "client": "STREAMWAY_CLIENT_",
}
CONFIG_VARIABLE: Final = "STREAMWAY_CONFIG"
# A section of streamway.yaml that is no settings class; `streamway.tenancy` reads it, and reads it again when it changes.
TENANCY_SECTION: Final = "tenancy"
# The same of `streamway.models`.
MODELS_SECTION: Final = "models"
_S = TypeVar("_S", bound="ServiceSettings")


class ServiceSettings(BaseSettings):
    """Base of all settings: frozen, unknown names refused.

    Subclasses set `section`, and `model_config` with their `env_prefix`. Each field has a type, a unit in its name, a
    range, a default and one sentence: `docs/configuration.md` is generated from them.
    """

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_ignore_empty=True, nested_model_default_partial_update=True
    )
    section: ClassVar[str] = ""
    _file: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, _FileSection(settings_cls)

    @classmethod
    def prefix(cls) -> str:
        """Prefix of its environment variables."""
        return str(cls.model_config.get("env_prefix", ""))

    def shown(self) -> dict[str, Any]:
        """The effective values with secrets masked."""
        dump = self.model_dump(mode="json")
        return {
            name: "********" if isinstance(getattr(self, name), SecretStr) else value for name, value in dump.items()
        }


class _FileSection(PydanticBaseSettingsSource):
    """The section of streamway.yaml that belongs to one settings class."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        section = file_sections().get(getattr(self.settings_cls, "section", ""), {})
        return {str(name): value for name, value in section.items()}


def config_file() -> Path | None:
    """Where streamway.yaml is: what STREAMWAY_CONFIG names, or the one in the working directory if it exists."""
    named = os.environ.get(CONFIG_VARIABLE)
    path = Path(named) if named else Path("streamway.yaml")
    return path if named or path.exists() else None


def file_sections() -> Mapping[str, Any]:
    """Reads streamway.yaml. Raises StartError."""
    path = config_file()
    if path is None:
        return {}
    try:
        content = strict_yaml.parse(path.read_text(encoding="utf-8")) or {}
    except OSError as problem:
        raise StartError(f"cannot read the configuration {path}: {problem.strerror}; check {CONFIG_VARIABLE}") from None
    except UnicodeDecodeError:
        raise StartError(f"the configuration {path} is not UTF-8 text; check {CONFIG_VARIABLE}") from None
    except ValueError as problem:
        raise StartError(f"{path} is not YAML: {problem}") from None
    known = ["shared", *SERVICE_PREFIXES, TENANCY_SECTION, MODELS_SECTION]
    if not isinstance(content, dict) or not all(isinstance(part, dict | None) for part in content.values()):
        raise StartError(f"{path} must be a mapping of sections: {', '.join(known)}")
    unknown = set(content) - set(known)
    if unknown:
        raise StartError(f"{path} has the unknown section {min(unknown, key=str)!r}; known: {', '.join(known)}")
    return {name: part or {} for name, part in content.items()}


def load(*kinds: type[_S], arguments: Sequence[str] | None = None) -> list[Any]:
    """Builds the settings of one process from its command line, environment and file.

    `kinds` are the service's own class first, then shared ones. `--print-config` prints the effective values as JSON and
    exits. Raises `StartError` with one line for whatever is unknown, misspelt or out of range.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = _Parser(prog=f"streamway {kinds[0].section}", allow_abbrev=False)
    parser.add_argument("--print-config", action="store_true", help="print the effective settings as JSON and exit")
    for kind in kinds:
        group = parser.add_argument_group(kind.section or "settings")
        for name, field in kind.model_fields.items():
            help_text = (field.description or "").replace("%", "%%")
            group.add_argument(
                f"--{name.replace('_', '-')}",
                dest=f"{kind.section}.{name}",
                default=None,
                metavar="VALUE",
                help=help_text,
            )
    given = vars(parser.parse_args(words))
    print_config = given.pop("print_config")
    _refuse_unknown_variables(kinds)
    made = []
    for kind in kinds:
        own = {
            key.split(".", 1)[1]: _parsed(value)
            for key, value in given.items()
            if value is not None and key.split(".", 1)[0] == kind.section
        }
        try:
            made.append(kind(**own))
        except ValidationError as problem:
            raise StartError(_first_problem(kind, problem)) from None
        except ValueError as problem:
            raise StartError(f"{kind.prefix()}…: {' '.join(str(problem).split())}") from None
    if print_config:
        print(
            json.dumps({kind.section: settings.shown() for kind, settings in zip(kinds, made, strict=True)}, indent=2)
        )
        sys.exit(0)
    return made


class _Parser(argparse.ArgumentParser):
    """Tells a wrong argument in one line, as everything that stops a start is told."""

    def error(self, message: str) -> NoReturn:
        raise StartError(f"{message}; see --help")


def _parsed(value: str) -> Any:
    """Lists and mappings on the command line are JSON, as in the environment; everything else stays text."""
    if value[:1] in "[{":
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _variables(model: type[BaseModel], prefix: str, delimiter: str) -> set[str]:
    """Names of the variables that set a model's fields; with a delimiter, those of the models inside it too."""
    names: set[str] = set()
    for name, field in model.model_fields.items():
        variable = f"{prefix}{name}".upper()
        names.add(variable)
        if delimiter and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            names |= _variables(field.annotation, f"{variable}{delimiter}", delimiter)
    return names


def _refuse_unknown_variables(kinds: Sequence[type[ServiceSettings]]) -> None:
    """A misspelt STREAMWAY_… variable stops the start; those of other services are theirs to check."""
    own_prefixes = {kind.prefix() for kind in kinds}
    known = {CONFIG_VARIABLE}
    for kind in kinds:
        known |= _variables(kind, kind.prefix(), kind.model_config.get("env_nested_delimiter") or "")
    others = tuple(prefix for prefix in SERVICE_PREFIXES.values() if prefix not in own_prefixes)
    for variable in sorted(os.environ):
        name = variable.upper()
        if name.startswith("STREAMWAY_") and name not in known and not name.startswith(others):
            close = _closest(name, known)
            raise StartError(
                f"unknown setting {variable}" + (f"; did you mean {close}?" if close else "; see docs/configuration.md")
            )


def _closest(name: str, known: set[str]) -> str:
    import difflib

    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.75)), "")


def _first_problem(kind: type[ServiceSettings], problem: ValidationError) -> str:
    first = problem.errors(include_url=False, include_input=False)[0]
    name = ".".join(str(part) for part in first["loc"]) or "settings"
    if first["type"] == "extra_forbidden":
        return f"unknown setting {name!r} in the section {kind.section!r}; see docs/configuration.md"
    return f"{kind.prefix()}{name.upper()}: {first['msg']}"
