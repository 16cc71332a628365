"""How much better or worse than others an entry is, learned from comparisons with it: the per-entry part of the threshold.

All entries share one curve, the chance that a question at similarity s gets a right answer:

    L(s) = 1 / (1 + exp(-g (s - t)))                       g, t: fitted to the last comparisons of all entries

An entry has an offset b on the scale of its logarithm of odds. Before anything is known of it b is 0, held there as by `PRIOR`
comparisons with even odds; each comparison (s, right) pulls it to where its likelihood is greatest, after D. Schroeder et al.,
vCache (2025), whose entries each have a curve of their own and need more comparisons than most entries ever get. b / g is what
the entry's similarities are shifted by, at most `MOST`.

The shifted similarity is what the threshold sees, in decisions and in comparisons alike. So the budget is kept by the threshold
as before, whatever the shifts are worth.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

# Comparisons at even odds that an unknown entry counts as having.
PRIOR: Final = 6.0
# A similarity is shifted by no more.
MOST: Final = 0.03
# Of an entry, the last ones; of all, for the curve.
_OF_AN_ENTRY: Final = 64
_OF_ALL: Final = 512
_ENTRIES: Final = 10_000
# Comparisons before there is a curve, and between two fits of it.
_LEAST: Final = 60
_FIT_EVERY: Final = 50
_STEPS: Final = 12
# Where the curve is steeper or flatter it says more than a few hundred comparisons can.
_STEEPEST, _FLATTEST = 200.0, 5.0


class Seen(NamedTuple):
    """One comparison: how alike the questions were, and whether the answers said the same."""

    similarity: float
    right: bool


class Curve(NamedTuple):
    """L, see the module: `t` where the odds are even, `g` above 0 how steep."""

    t: float
    g: float


class Refinement:
    """Shifts by entry; the longest unused entries are forgotten."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, deque[Seen]] = OrderedDict()
        self._all: deque[Seen] = deque(maxlen=_OF_ALL)
        self._unfitted = 0
        self.curve: Curve | None = None

    def shift(self, entry: str) -> float:
        """What the similarities of an entry are to be shifted by; 0 for one that nothing is known of."""
        seen = self._entries.get(entry)
        return shift(seen, self.curve) if seen and self.curve is not None else 0.0

    def take(self, entry: str, seen: Seen) -> None:
        """A comparison with an entry, at its similarity without a shift."""
        of_entry = self._entries.setdefault(entry, deque(maxlen=_OF_AN_ENTRY))
        self._entries.move_to_end(entry)
        of_entry.append(seen)
        if len(self._entries) > _ENTRIES:
            self._entries.popitem(last=False)
        self._all.append(seen)
        self._unfitted += 1
        if len(self._all) >= _LEAST and (self.curve is None or self._unfitted >= _FIT_EVERY):
            self._unfitted = 0
            self.curve = fitted(self._all)


def shift(seen: Iterable[Seen], curve: Curve) -> float:
    """-MOST … MOST: b / g of the greatest posterior."""
    logits = [(curve.g * (each.similarity - curve.t), each.right) for each in seen]
    b = 0.0
    for _ in range(_STEPS):
        slope, weight = -PRIOR / 4 * b, PRIOR / 4
        for logit, right in logits:
            chance = _chance(logit + b)
            slope += right - chance
            weight += chance * (1 - chance)
        step = slope / weight
        b += max(-1.0, min(1.0, step))
        if abs(step) < 1e-4:
            break
    return max(-MOST, min(MOST, b / curve.g))


def fitted(seen: Sequence[Seen]) -> Curve | None:
    """The curve that makes the comparisons likeliest, held a little to a flat one so that there is one for separated ones too.

    None where they say nothing: all right, all wrong, or less right the more alike.
    """
    rights = sum(each.right for each in seen)
    if not 0 < rights < len(seen):
        return None
    middle = sum(each.similarity for each in seen) / len(seen)
    a, g = math.log(rights / (len(seen) - rights)), 20.0
    for _ in range(_STEPS):
        # The gradient and the Hessian of the likelihood in a and g, for a + g (s - middle); a ridge on g.
        da, dg, aa, ag, gg = 0.0, -1e-4 * g, 1e-9, 0.0, 1e-4
        for each in seen:
            x = each.similarity - middle
            chance = _chance(a + g * x)
            error, spread = each.right - chance, chance * (1 - chance)
            da += error
            dg += error * x
            aa += spread
            ag += spread * x
            gg += spread * x * x
        det = aa * gg - ag * ag
        if det <= 1e-12:
            break
        a += max(-2.0, min(2.0, (gg * da - ag * dg) / det))
        g += max(-20.0, min(20.0, (aa * dg - ag * da) / det))
    if not (math.isfinite(a) and math.isfinite(g)) or g < _FLATTEST:
        return None
    g = min(g, _STEEPEST)
    return Curve(middle - a / g, g)


def _chance(logit: float) -> float:
    return 1 / (1 + math.exp(-max(-40.0, min(40.0, logit))))
