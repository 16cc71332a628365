"""The search: NSGA-II (Deb and others, 2002) over the ladders, for three figures at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.problem import ElementwiseProblem
from pymoo.operators.crossover.sbx import SBX
from pymoo.operators.mutation.pm import PM
from pymoo.operators.repair.rounding import RoundingRepair
from pymoo.operators.sampling.rnd import IntegerRandomSampling
from pymoo.optimize import minimize

from benchmarks.tune.model import Figures, Model
from benchmarks.tune.parameters import DEFAULT, LADDERS, Configuration, at, steps_of

REUSE_GOAL: Final = 0.895
P99_GOAL: Final = 0.954
# What nobody gets for the figures that are looked for: more refusals, or a text that stutters.
_MORE_REFUSED: Final = 0.001
_LONGER_GAPS: Final = 1.25


@dataclass(frozen=True, slots=True)
class Found:
    """A configuration and what it gives."""

    configuration: Configuration
    figures: Figures


class _Problem(ElementwiseProblem):  # type: ignore[misc] # it has no types
    """Least p99, most reuse, least cost; no more refusals than the default's, gaps at most a quarter longer."""

    def __init__(self, model: Model) -> None:
        most = [len(ladder) - 1 for ladder in LADDERS.values()]
        super().__init__(n_var=len(most), n_obj=3, n_ieq_constr=2, xl=0, xu=np.array(most), vtype=int)
        self._model = model
        self._base = model.figures(DEFAULT)

    def _evaluate(self, x: Any, out: dict[str, Any], *_: Any, **__: Any) -> None:
        found = self._model.figures(at([int(step) for step in x]))
        out["F"] = [found.p99_ms, -found.reuse, found.cost_us]
        out["G"] = [
            found.refused - self._base.refused - _MORE_REFUSED,
            found.gap_p99_ms / max(1e-9, self._base.gap_p99_ms) - _LONGER_GAPS,
        ]


class _Sampling(IntegerRandomSampling):  # type: ignore[misc] # it has no types
    """At random, but for the default, which is there from the beginning."""

    def _do(self, problem: Any, n_samples: int, **settings: Any) -> Any:
        drawn = super()._do(problem, n_samples, **settings)
        drawn[0] = steps_of(DEFAULT)
        return drawn


def search(model: Model, *, population: int, generations: int, seed: int, tell: Callable[[str], None]) -> list[Found]:
    """The front: none of it is worse than another in all three figures. The same for the same seed. `tell` gets a line a
    generation."""

    def progress(algorithm: Any) -> None:
        best = algorithm.opt.get("F")
        tell(
            f"generation {algorithm.n_gen}/{generations}: front of {len(best)}, first token p99 from"
            f" {best[:, 0].min():,.0f} ms, reuse to {-best[:, 1].min():.1%}, CPU from {best[:, 2].min():.1f} µs a token;"
            f" {model.runs} runs simulated"
        )

    algorithm = NSGA2(
        pop_size=population,
        sampling=_Sampling(),
        crossover=SBX(prob=0.9, eta=15, vtype=float, repair=RoundingRepair()),
        mutation=PM(prob_var=0.3, eta=10, vtype=float, repair=RoundingRepair()),
        eliminate_duplicates=True,
    )
    result = minimize(_Problem(model), algorithm, ("n_gen", generations), seed=seed, callback=progress, verbose=False)
    # Of those that give the same, the one that changes least.
    least: dict[tuple[float, ...], Found] = {}
    for x in sorted((tuple(map(int, row)) for row in np.atleast_2d(result.X)), key=_changes):
        figures = model.figures(at(x))
        least.setdefault((figures.p99_ms, -figures.reuse, figures.cost_us), Found(at(x), figures))
    return [least[key] for key in sorted(least)]


def _changes(steps: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """How many settings are not the default's."""
    return sum(step != base for step, base in zip(steps, steps_of(DEFAULT), strict=True)), steps


def reaches(figures: Figures, base: Figures) -> bool:
    """Whether the goal is reached: most requests on a connection that was there, and first tokens sooner than the default's."""
    return figures.reuse >= REUSE_GOAL and figures.p99_ms <= P99_GOAL * base.p99_ms


def choose(front: list[Found], base: Figures) -> Found:
    """The cheapest that reaches the goal; where none does, the one with the earliest first tokens that is reused enough."""
    good = [row for row in front if reaches(row.figures, base)]
    if good:
        return min(good, key=lambda row: (row.figures.cost_us, row.figures.p99_ms))
    reused = [row for row in front if row.figures.reuse >= REUSE_GOAL]
    return min(reused or front, key=lambda row: row.figures.p99_ms)
