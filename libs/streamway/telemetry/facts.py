"""What may be said of a generation in a span or a table: words, names and numbers, no text of anybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Facts = Mapping[str, str | int | float | bool | Sequence[str]]
