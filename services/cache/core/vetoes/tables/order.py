"""Words by which a change of order changes nothing, and those by which it changes everything."""

from __future__ import annotations

from typing import Final

from services.cache.core.vetoes.tables.words import words

JOINS: Final = words(
    """
    and or vs versus & / plus nor 和 与 跟 或 或者 还是 及 以及 同 、
    """
)
# "A is married to B" says the same as "B is married to A".
SYMMETRIC: Final = words(
    """
    marry married date dating meet met engage engaged divorce related relate similar same equal equivalent identical
    different differ difference between compare comparison compatible close near next beside friend friends
    acquaintance neighbour neighbor sibling twin cousin colleague classmate roommate partner connect connected link
    linked together mix combine distance versus 结婚 同学 同事 朋友 相同 一样 区别 不同 差别 相似 比较 对比 之间 距离
    一起 同时 夫妻 兄弟 姐妹 邻居 兼容 混合 同居 约会 认识 相等
    """
)
# A chunk that begins with one of these may stand in front or at the end.
FRONTED: Final = words(
    """
    in on at for with when if while during after before using under as since because by near about from to via 在 用
    如果 当 关于 对于 通过
    """
)
# What stands before "from": "from A to B", and words after which "A to B" is a direction.
DIRECTED: Final = words(
    """
    convert converting conversion translate translating translation migrate migrating migration switch switching
    transfer transferring move moving change changing upgrade downgrade fly flying flight flights drive travel train
    trains bus route exchange send post ship port rewrite transform cast travelling traveling go get getting commute
    parse put pay load import export copy sync send
    """
)
HAN_FROM: Final = frozenset(["从", "由", "自", "把", "将"])
HAN_TO: Final = words(
    """
    到 飞 转 转成 转为 转换成 转换为 翻译成 译成 换成 换 改成 改为 变成 至 去 飞往 前往 寄到 发到 转到 迁移到 升级到
    导入到 导入 转化为 翻译 兑换成 兑换
    """
)
BE: Final = words(
    """
    am is are was were be been being get gets got
    """
)
# With one of these, which part comes first is the question.
ORDERING: Final = words(
    """
    before after than over against since until cause causes caused beat beats 比 之前 之后 以前 以后 前 后 到 从 先 再
    导致 引起 大于 小于 早于 晚于 优于
    """
)
