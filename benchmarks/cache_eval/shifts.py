"""Orders of a stream in which subjects come one after the other: what was learned of one is used on the next."""

from __future__ import annotations

import random
from collections.abc import Sequence

from benchmarks.cache_eval.data import Asked


def by_subject(stream: Sequence[Asked], seed: int, at_once: int = 1) -> list[Asked]:
    """So many categories at a time, mixed; categories in a random order."""
    draw = random.Random(seed)
    subjects: dict[str, list[Asked]] = {}
    for each in stream:
        subjects.setdefault(each.category, []).append(each)
    names = draw.sample(list(subjects), len(subjects))
    order = []
    for at in range(0, len(names), at_once):
        block = [each for name in names[at : at + at_once] for each in subjects[name]]
        order += draw.sample(block, len(block))
    return order


def shifted(stream: Sequence[Asked], orders: int) -> dict[str, list[list[Asked]]]:
    """Some of them, by what is said of them. The seeds are others than those with which decisions were tuned."""
    half = -(-len({each.category for each in stream}) // 2)
    kinds = {"by subject": 1, "six subjects at a time": 6, "half of the subjects, then the others": half}
    return {
        said: [by_subject(stream, seed, at_once) for seed in range(11, 11 + orders)] for said, at_once in kinds.items()
    }
