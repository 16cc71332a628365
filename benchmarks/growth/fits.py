"""Models fitted to what was measured. They are shown beside the data; nothing is refused by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import curve_fit


@dataclass(frozen=True, slots=True)
class Rate:
    """R(n) = R0 / (1 + k n): what one stream of n gets. All together can't get more than R0 / k."""

    r0: float
    k: float
    r_squared: float

    def __call__(self, n: float) -> float:
        """Of n streams."""
        return self.r0 / (1 + self.k * n)


@dataclass(frozen=True, slots=True)
class Bytes:
    """M(n) = base + each × n, by least relative error."""

    base: float
    each: float

    def __call__(self, n: float) -> float:
        """Bytes of n tasks."""
        return self.base + self.each * n


@dataclass(frozen=True, slots=True)
class Held:
    """ΔM(r, t) = α r + β ln(1 + t) + γ [t > T]: what a connection takes more, t seconds after it was opened, at r tokens/s."""

    alpha: float
    beta: float
    gamma: float
    after_s: float
    r_squared: float

    def __call__(self, rate: float, seconds: float) -> float:
        """Bytes."""
        return self.alpha * rate + self.beta * float(np.log1p(seconds)) + self.gamma * (seconds > self.after_s)


def fit_rate(points: Sequence[tuple[float, float]]) -> Rate:
    """To (streams, rate of one of them); at least two."""
    n, rate = np.array(points, dtype=float).T

    def model(x: Any, r0: float, k: float) -> Any:
        return r0 / (1 + k * x)

    (r0, k), _ = curve_fit(
        model, n, rate, p0=(float(rate.max()), 1 / float(n.max())), bounds=((0, 0), (np.inf, np.inf))
    )
    return Rate(float(r0), float(k), r_squared(rate, model(n, r0, k)))


def fit_bytes(points: Sequence[tuple[float, float]]) -> Bytes:
    """To (tasks, bytes of all); each point counts by its relative error."""
    n, held = np.array(points, dtype=float).T
    columns = np.stack([np.ones_like(n), n], axis=1) / held[:, None]
    base, each = np.linalg.lstsq(columns, np.ones_like(n), rcond=None)[0]
    return Bytes(float(base), float(each))


def fit_held(points: Sequence[tuple[float, float, float]]) -> Held:
    """To (tokens/s of a connection, seconds since it was opened, bytes more): T is tried at each time that was seen, the rest is
    least squares."""
    rate, seconds, held = np.array(points, dtype=float).T
    found: Held | None = None
    for after in sorted(set(seconds.tolist()))[:-1]:
        columns = np.stack([rate, np.log1p(seconds), seconds > after], axis=1)
        weights = np.linalg.lstsq(columns, held, rcond=None)[0]
        alpha, beta, gamma = (float(value) for value in weights)
        fitted = Held(alpha, beta, gamma, float(after), r_squared(held, columns @ weights))
        if found is None or fitted.r_squared > found.r_squared:
            found = fitted
    if found is None:
        raise ValueError("there must be at least two times")
    return found


def r_squared(measured: Any, said: Any) -> float:
    """Share of the variance that the model explains."""
    rest, all_ = float(((measured - said) ** 2).sum()), float(((measured - measured.mean()) ** 2).sum())
    return 1 - rest / all_ if all_ else 0.0
