"""What is known of a tenant, as bytes that outlive the process: thresholds are not found anew after each start.

What is on the scale of one encoder's cosines (labels, threshold, floors, verifier) is of no use with another; the pairs that must
not be tried again are.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from services.cache.core.features import BUCKETS, NAMES
from services.cache.core.labels import Label, Row
from services.cache.core.records import Damaged, sealed, unsealed
from services.cache.core.refinement import Curve, Seen
from services.cache.core.semantic.standing import Standing
from services.cache.core.staleness import BORDERS, OF_A_CLASS
from services.cache.core.threshold import Source
from services.cache.core.verifier import FeatureVerifier


class _Label(msgspec.Struct, array_like=True):
    similarity: float
    right: bool
    share: float
    row: bytes
    words: bytes
    probability: float | None
    beside: bool


class _Saved(msgspec.Struct, array_like=True):
    encoder: str
    value: float
    source: Source
    bound: float | None
    requests: int
    labels: list[_Label]
    floors: dict[str, tuple[float, list[bytes]]]
    denied: list[tuple[bytes, bytes]]
    verifier: tuple[list[float], list[float], list[float]] | None
    counts: tuple[int, int, int, int, int]
    refused: dict[str, int]
    # What follows was not there in earlier versions.
    balance: float | None = None
    served_wrong: float = 0.0
    trust: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    stale: list[list[tuple[float, bool]]] = msgspec.field(default_factory=list)
    curve: tuple[float, float] | None = None
    used: dict[str, int] = msgspec.field(default_factory=dict)


_pack = msgspec.msgpack.Encoder().encode
_saved = msgspec.msgpack.Decoder(_Saved)


def pack_standing(standing: Standing, encoder: str) -> bytes:
    """For `adopt_standing`. About 100 bytes for each label that the rules doubted, 30 for others."""
    pooled, ledger = standing.pooled, standing.ledger
    floors, denied = standing.wrong_hits.records()
    stale, curve, used = standing.staleness.kept(pooled.requests)
    return sealed(
        _pack(
            _Saved(
                encoder=encoder,
                value=pooled.threshold.value,
                source=pooled.threshold.source,
                bound=pooled.threshold.bound,
                requests=pooled.requests,
                labels=[_packed(label) for label in pooled.labels],
                floors=floors,
                denied=denied,
                verifier=standing.verifier.learned(),
                counts=(ledger.asked, ledger.hits, ledger.audits, ledger.compared, ledger.wrong),
                refused=dict(ledger.refused),
                balance=pooled.allowance.balance,
                served_wrong=ledger.served_wrong,
                trust=standing.trust.kept(),
                stale=[[(each.similarity, each.right) for each in seen] for seen in stale],
                curve=curve,
                used=used,
            )
        )
    )


def adopt_standing(standing: Standing, value: bytes, encoder: str) -> None:
    """Makes a tenant's standing what was saved. Raises Damaged, and has changed nothing then."""
    try:
        saved = _saved.decode(unsealed(value))
        labels = [_unpacked(label) for label in saved.labels]
        stale = _classes(saved.stale)
        curve = None if saved.curve is None else Curve(*saved.curve)
        if curve is not None and not (math.isfinite(curve.t) and 0 < curve.g < math.inf):
            raise ValueError("a curve that cannot be")
        if not math.isfinite(saved.balance or 0.0) or not math.isfinite(saved.served_wrong):
            raise ValueError("a balance that is no number")
        verifier = FeatureVerifier()
        if saved.verifier is not None:
            verifier.restore(*saved.verifier)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as problem:
        raise Damaged(str(problem)) from problem
    ledger = standing.ledger
    if saved.counts[0] > ledger.asked:
        ledger.asked, ledger.hits, ledger.audits, ledger.compared, ledger.wrong = saved.counts
        ledger.served_wrong = saved.served_wrong
        ledger.refused.clear()
        ledger.refused.update(saved.refused)
    if saved.encoder != encoder:
        standing.wrong_hits.restore({}, saved.denied)
        return
    standing.wrong_hits.restore(saved.floors, saved.denied)
    standing.pooled.restore(saved.value, saved.source, saved.bound, saved.requests, labels)
    if saved.balance is not None:
        standing.pooled.allowance.restore(saved.balance)
    standing.trust.restore(saved.trust)
    standing.staleness.restore(stale, curve, saved.used)
    standing.verifier = verifier


def _classes(saved: list[list[tuple[float, bool]]]) -> list[list[Seen]]:
    """Of another number of classes nothing is known."""
    if len(saved) != len(BORDERS) + 1:
        return [[] for _ in range(len(BORDERS) + 1)]
    if not all(math.isfinite(similarity) for seen in saved for similarity, _ in seen):
        raise ValueError("a comparison that cannot be")
    return [[Seen(*each) for each in seen[-OF_A_CLASS:]] for seen in saved]


def _packed(label: Label) -> _Label:
    numbers, words = (
        (b"", b"") if label.row is None else (np.array(label.row.numbers, "<f4").tobytes(), label.row.words)
    )
    return _Label(label.similarity, label.right, label.share, numbers, words, label.probability, label.beside)


def _unpacked(label: _Label) -> Label:
    if not 0 < label.share <= 1 or not math.isfinite(label.similarity):
        raise ValueError("a label that cannot be")
    row = Row(tuple(np.frombuffer(label.row, "<f4").tolist()), label.words) if label.row else None
    if row is not None and (len(row.numbers) != len(NAMES) or max(row.words, default=0) >= BUCKETS):
        raise ValueError("a label with other features")
    return Label(label.similarity, label.right, label.share, row, label.probability, label.beside)
