"""What each rule saves and what it costs: pairs that nothing but this rule keeps from being served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.cache_eval.data import Asked
from benchmarks.cache_eval.figures import table
from services.cache.core.vetoes.chain import RULES
from services.cache.core.vetoes.text import Text

# Below it nothing would be served, with or without rules.
AT_LEAST = 0.92


@dataclass(frozen=True, slots=True)
class Near:
    """A question and a stored one at least so alike; `right`: the answer to the one answers the other."""

    asked: str
    stored: str
    right: bool


def nearest(stream: Sequence[Asked], vectors: npt.NDArray[np.float32]) -> list[Near]:
    """For each new text of a stream the nearest one before it, where that is alike enough."""
    found, seen, places = [], set[str](), list[int]()
    for at, asked in enumerate(stream):
        if asked.text in seen:
            continue
        if places:
            scores = vectors[places] @ vectors[at]
            best = int(np.argmax(scores))
            stored = stream[places[best]]
            if scores[best] >= AT_LEAST:
                found.append(Near(asked.text, stored.text, stored.category == asked.category))
        seen.add(asked.text)
        places.append(at)
    return found


def report_rules(name: str, near: Iterable[Near]) -> None:
    """Prints a row for each rule that objects to any of them."""
    counts: dict[tuple[str, bool, str], int] = Counter()
    totals = Counter[bool]()
    for each in near:
        totals[each.right] += 1
        asked, stored = Text(each.asked), Text(each.stored)
        objections = [rule.name for rule in RULES if rule.judge(asked, stored) is not None]
        for rule in objections:
            counts[rule, each.right, "any"] += 1
        if len(objections) == 1:
            counts[objections[0], each.right, "alone"] += 1
        counts["all", each.right, "any"] += bool(objections)
    print(f"rules on {name}, similarity >= {AT_LEAST}: {totals[False]} wrong and {totals[True]} right answers\n")
    rows = [
        (rule, *(counts[rule, right, how] for how in ("any", "alone") for right in (False, True)))
        for rule in ("all", *(each.name for each in RULES))
        if counts[rule, False, "any"] + counts[rule, True, "any"]
    ]
    table(("rule", "objects to wrong", "to right", "alone: saves", "alone: costs"), rows)
