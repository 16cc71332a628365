"""What the section `models` of streamway.yaml may say, and what each fault is called.

models:
  aliases: {gpt-4o-mini: qwen3}
  fallbacks:
    qwen3: [smollm2]
  choices:
    assistant: {large: qwen3, small: smollm2, first_token_ms: 2000, kv_used: 0.9, return_below: 0.7, hold_s: 10}
  prices:
    qwen3: {input: 0.10, output: 0.40, cached: 0.025}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from streamway.models.prices import Price
from streamway.models.routing import Choice, ModelRouting

_MOST_NAMES: Final = 1_000
_MOST_FALLBACKS: Final = 8
_DEFAULT: Final = Choice("", "")


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value or len(value.encode(errors="replace")) > 256:
        raise ValueError("must be the name of a model, 1 to 256 bytes of text; put numbers in quotes")
    return value


Name: TypeAlias = Annotated[str, BeforeValidator(_name)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ChoiceRow(_Row):
    """See `Choice`."""

    large: Name
    small: Name
    first_token_ms: Annotated[float, Field(ge=1, le=3_600_000)] = _DEFAULT.first_token_ms
    kv_used: Annotated[float, Field(gt=0, le=1)] = _DEFAULT.kv_used
    return_below: Annotated[float, Field(gt=0, le=1)] = _DEFAULT.return_below
    hold_s: Annotated[float, Field(ge=0, le=3_600)] = _DEFAULT.hold_s


Money: TypeAlias = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class PriceRow(_Row):
    """See `Price`. Without `cached` those tokens cost what others of the prompt do."""

    input: Money
    output: Money
    cached: Money | None = None

    def price(self) -> Price:
        """As a value."""
        return Price(self.input, self.output, self.input if self.cached is None else self.cached)


class ModelsRows(_Row):
    """The whole section."""

    aliases: Annotated[dict[Name, Name], Field(max_length=_MOST_NAMES)] = {}
    fallbacks: Annotated[
        dict[Name, Annotated[list[Name], Field(min_length=1, max_length=_MOST_FALLBACKS)]],
        Field(max_length=_MOST_NAMES),
    ] = {}
    choices: Annotated[dict[Name, ChoiceRow], Field(max_length=_MOST_NAMES)] = {}
    prices: Annotated[dict[Name, PriceRow], Field(max_length=_MOST_NAMES)] = {}


def routing_of(content: Any) -> ModelRouting:
    """The section as values. Raises ValueError: where in the section, what is wrong."""
    try:
        rows = ModelsRows.model_validate(content or {})
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(ascii(part)[1:-1] if isinstance(part, str) else str(part) for part in first["loc"])
        raise ValueError(f"{where or 'the section'}: {first['msg'].removeprefix('Value error, ')}") from None
    _check_aliases(rows)
    for where, one in _models_named(rows):
        if one in rows.aliases or one in rows.choices:
            raise ValueError(f"{where}: {one!r} must be a model, not an alias or a choice")
    return ModelRouting(
        dict(rows.aliases),
        {name: tuple(others) for name, others in rows.fallbacks.items()},
        {name: Choice(**row.model_dump()) for name, row in rows.choices.items()},
        {name: row.price() for name, row in rows.prices.items()},
    )


def _check_aliases(rows: ModelsRows) -> None:
    for alias, target in rows.aliases.items():
        if target in rows.aliases:
            raise ValueError(f"aliases.{alias}: {target!r} is an alias itself; name what it stands for")
        if alias in rows.choices:
            raise ValueError(f"aliases.{alias}: there is a choice of this name too; keep one of them")
        if alias in rows.fallbacks:
            raise ValueError(f"fallbacks.{alias}: is an alias; give the fallbacks to {target!r}")
    for name, row in rows.choices.items():
        if row.large == row.small:
            raise ValueError(f"choices.{name}: large and small are the same model")


def _models_named(rows: ModelsRows) -> Iterator[tuple[str, str]]:
    for name, row in rows.choices.items():
        yield f"choices.{name}.large", row.large
        yield f"choices.{name}.small", row.small
    for name, others in rows.fallbacks.items():
        for one in others:
            yield f"fallbacks.{name}", one
    for name in rows.prices:
        yield f"prices.{name}", name
