"""What turns a sentence into its opposite, and what says of itself that something fails."""

from __future__ import annotations

from typing import Final

from services.cache.core.vetoes.tables.words import words

ENGLISH: Final = words(
    """
    not n't no never without avoid avoiding none neither nor cannot non nobody nothing nowhere lack lacking except
    unless hardly refrain
    """
)
CHINESE: Final = words(
    """
    不 没 没有 无 未 别 勿 非 不能 不要 不会 不是 不可 不可以 不用 不需要 不必 不应该 不应 不得 不准 不许 不让 无法
    无需 无须 尚未 从未 从不 避免 并非 切勿 除了 缺乏 不含 不支持 不再 不想 不行 不了 不到 未能
    """
)
# "isn't it", "why not", "不是吗": not counted; whole phrases, before the single words are looked at.
ENGLISH_IDLE: Final = frozenset(
    [
        ("not", "only"),
        ("no", "longer", "than"),
        ("no", "problem"),
        ("whether", "or", "not"),
        ("or", "not"),
        ("no", "matter"),
    ]
)
# These turn a question round once more: "难道不需要 …吗" asks 需要.
CHINESE_TURNS: Final = frozenset(["难道", "岂"])
# A text with one of these says without a negation what another says with one: "fails", "doesn't work".
FAILURE: Final = words(
    """
    fail failing failed failure error broken break stuck stop stopped decline declined reject rejected refuse refused
    deny denied unable impossible missing wrong blocked crash crashing faulty trouble problem issue lost 失败 报错
    错误 出错 坏 故障 拒绝 异常 崩溃 断
    """
)
