"""The generated pages tell every setting and every error, and each setting is told well."""

from __future__ import annotations

import pytest

from scripts.generate_docs import configuration, engines, errors, settings_classes
from streamway.config import SERVICE_PREFIXES
from streamway.errors import TABLE, reason_name
from streamway.models.abilities import Ability

CLASSES = list(settings_classes())
FIELDS = [(kind, name) for kind in CLASSES for name in kind.model_fields]


def test_every_reason_and_every_setting_is_on_its_page() -> None:
    page = errors()
    assert all(f"| `{reason_name(reason)}` |" in page for reason in TABLE)
    page = configuration()
    # A group of settings has a row for each of its own.
    variables = [f"{kind.prefix()}{name}".upper() for kind, name in FIELDS]
    assert not [name for name in variables if f"| `{name}` |" not in page and f"| `{name}__" not in page]
    assert "| `STREAMWAY_ADAPTER_SIMULATION__FAULTS__STALL_S` |" in page


def test_the_table_of_engines_has_each_ability_and_each_engine_that_was_asked() -> None:
    page = engines()
    assert all(f"| `{ability}` |" in page for ability in Ability)
    for engine in ("vLLM", "llama.cpp", "simulated"):
        assert f"| {engine}" in page


@pytest.mark.parametrize("kind", CLASSES[1:], ids=lambda kind: kind.section)
def test_every_section_is_known_to_the_loader(kind) -> None:
    assert SERVICE_PREFIXES[kind.section] == kind.prefix()


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda part: getattr(part, "section", part))
def test_a_setting_has_a_sentence_and_a_default_that_is_in_its_own_range(kind, name: str) -> None:
    field = kind.model_fields[name]
    assert (field.description or "").endswith((".", ")")), "a description is a sentence"
    assert not field.is_required()


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.section)
def test_defaults_are_valid(kind) -> None:
    kind.model_validate(kind().model_dump())
