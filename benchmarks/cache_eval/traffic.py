"""Orders of questions: traffic whose shares are fixed beforehand, and traffic without a repeat."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.cache_eval.data import Asked, LabelledPair
from benchmarks.cache_eval.made import Question

REPEATS, NEW = 0.32, 0.20


@dataclass(frozen=True, slots=True)
class Traffic:
    """Questions in order, with the shares that were reached. `exact` is what the exact level can give, in percent."""

    name: str
    asked: list[Asked]
    repeats: int
    paraphrases: int
    new: int

    @property
    def said(self) -> str:
        """What it is made of."""
        total = len(self.asked)
        parts = (("byte-identical repeats", self.repeats), ("paraphrases", self.paraphrases), ("new", self.new))
        return f"{total} requests: " + ", ".join(f"{100 * count / total:.0f} % {name}" for name, count in parts)


def fixed(name: str, every: Sequence[Question], seed: int) -> Traffic:
    """32 % byte-identical repeats, 20 % new questions, the rest wordings nobody has used of questions that were asked.

    As long as there are new questions. Where no fresh wording is left, paraphrases become new questions.
    """
    draw = random.Random(seed)
    waiting = [Question(q.id, q.what, q.near, tuple(draw.sample(q.wordings, len(q.wordings)))) for q in every]
    draw.shuffle(waiting)
    unused: list[tuple[str, list[str]]] = []
    asked: list[Asked] = []
    counts = {"repeat": 0, "paraphrase": 0, "new": 0}
    while waiting:
        number = draw.random()
        kind = "repeat" if number < REPEATS else "new" if number < REPEATS + NEW else "paraphrase"
        if not asked or (kind == "paraphrase" and not unused):
            kind = "new"
        counts[kind] += 1
        if kind == "repeat":
            asked.append(draw.choice(asked))
        elif kind == "new":
            question = waiting.pop()
            asked.append(Asked(question.wordings[0], question.id))
            if len(question.wordings) > 1:
                unused.append((question.id, list(question.wordings[1:])))
        else:
            place = draw.randrange(len(unused))
            id_, wordings = unused[place]
            asked.append(Asked(wordings.pop(), id_))
            if not wordings:
                unused.pop(place)
    return Traffic(name, asked, counts["repeat"], counts["paraphrase"], counts["new"])


def of_pairs(name: str, pairs: Sequence[LabelledPair], seed: int) -> Traffic:
    """The same share of repeats over pairs people wrote.

    Each question has two wordings at most, so there are fewer paraphrases than in `fixed`.
    """
    return fixed(name, questions_of(pairs), seed)


def without_repeats(name: str, every: Sequence[Question], seed: int, *, alike: bool) -> Traffic:
    """One wording of every question: each hit is wrong.

    `alike`: the first wording of each, so that neighbours differ in nothing but what makes them another question; else any.
    """
    draw = random.Random(seed)
    asked = [Asked(q.wordings[0] if alike else draw.choice(q.wordings), q.id) for q in _distinct(every)]
    draw.shuffle(asked)
    return Traffic(name, asked, 0, 0, len(asked))


def questions_of(pairs: Sequence[LabelledPair]) -> list[Question]:
    """Both texts of a reusable pair are wordings of one question, those of a trap are two questions."""
    every = []
    for pair in pairs:
        if pair.reusable:
            every.append(Question(pair.id, pair.category, "", (pair.a, pair.b)))
        else:
            every += [
                Question(f"{pair.id}/{side}", pair.category, "", (text,))
                for side, text in (("a", pair.a), ("b", pair.b))
            ]
    return _distinct(every)


def _distinct(every: Sequence[Question]) -> list[Question]:
    """Without questions that have a text of an earlier one: nobody says whether those are the same."""
    seen: set[str] = set()
    found = []
    for question in every:
        texts = {text.casefold() for text in question.wordings}
        if not texts & seen:
            seen |= texts
            found.append(question)
    return found
