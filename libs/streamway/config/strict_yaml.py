"""YAML as configuration is written: a key that stands twice is an error, not a silent choice of the last one."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

# libyaml reads a file of a thousand tenants in a tenth of a second, the same in Python takes five times as long.
_Safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Safe):  # type: ignore[misc] # which of the two is known when it runs
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Refuses a key that was there; one that `<<` brings may be given anew, as in YAML itself."""
        seen: set[Any] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"the key {key.value[:64]!r} stands there twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        made: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return made


def parse(text: str) -> Any:
    """What the text holds, None when it is empty. Raises ValueError with one line that says where it is wrong."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 — a safe loader, made stricter
    except yaml.MarkedYAMLError as problem:
        # Not the lines around it, as its own text would: they may hold what nobody else should read.
        mark = problem.problem_mark or problem.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise ValueError(where + " ".join(f"{problem.context or ''} {problem.problem or ''}".split())) from None
    except yaml.YAMLError as problem:
        raise ValueError(" ".join(str(problem).split())) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
