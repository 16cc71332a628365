"""Pairs of chats whose last turns match: served, by what is compared."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.cache_eval.data import Conversation, is_reported
from benchmarks.cache_eval.encoder import Encoded
from benchmarks.cache_eval.figures import Rate, table
from services.cache.core.semantic.self_contained import is_self_contained
from services.cache.core.vetoes.chain import Chain
from services.cache.core.vetoes.text import Text
from streamway.cachekey import canonical_form, context_key, question_of
from streamway.v1 import common_pb2

_THRESHOLDS = (0.85, 0.90, 0.95)
ARMS = (
    "last turn only",
    "last turn and rules",
    "equal context and rules",
    "self-contained, or equal context, and rules",
)


def report_conversations(name: str, chats: Sequence[Conversation], encoded: Encoded) -> None:
    """Prints what is served by what is compared beside the last turn."""
    shown = [chat for chat in chats if is_reported(chat.id)]
    if not shown:
        return
    print(f"## {name}: conversations, reported half; served, % (95 % interval)\n")
    chain = Chain()
    rows: list[tuple[object, ...]] = []
    for threshold in _THRESHOLDS:
        for arm in ARMS:
            cells = []
            for reusable in (True, False):
                these = [chat for chat in shown if chat.reusable is reusable]
                cells.append(
                    str(Rate(sum(_served(chat, arm, threshold, encoded, chain) for chat in these), len(these)))
                )
            rows.append((arm, f"{threshold:.2f}", *cells))
    table(("compared", "similarity >=", "reusable", "traps"), rows)
    kinds = sorted({(not chat.reusable, chat.category) for chat in shown})
    rows = []
    for trap, kind in kinds:
        these = [chat for chat in shown if chat.category == kind]
        counts: list[object] = [
            Rate(sum(_served(chat, arm, 0.90, encoded, chain) for chat in these), len(these)) for arm in ARMS
        ]
        rows.append((kind, "trap" if trap else "reusable", *counts))
    table(("kind, at 0.90", "", *ARMS), rows)


def _served(chat: Conversation, arm: str, threshold: float, encoded: Encoded, chain: Chain) -> bool:
    a, b = chat.a[-1]["content"], chat.b[-1]["content"]
    free = arm.startswith("self") and is_self_contained(a) and is_self_contained(b)
    if "equal" in arm and not free and _context(chat.a) != _context(chat.b):
        return False
    one, other = encoded.of([a, b])
    if float(one @ other) < threshold:
        return False
    if arm == "last turn only":
        return True
    verdict = chain.judge(Text(b), Text(a))
    return verdict.refusal is None and not verdict.doubts


def _context(turns: list[dict[str, str]]) -> bytes:
    """The partition that the service would put it into."""
    request = common_pb2.GenerationRequest(messages=[common_pb2.Message(**turn) for turn in turns])
    form = canonical_form(request)
    assert question_of(form)
    return context_key("t", "m", form)
