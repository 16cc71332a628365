"""Words that narrow a question to a case, or widen it."""

from __future__ import annotations

from typing import Final

from services.cache.core.vetoes.tables.words import words

WORDS: Final = words(
    """
    only free cheap cheapest best worst pregnant pregnancy breastfeeding child children kid kids baby babies
    toddler infant teenager senior seniors elderly adult adults student students beginner beginners vegan vegetarian
    gluten halal kosher diabetic disabled wheelchair pet pets international overseas abroad foreign domestic urgent
    emergency same_day express business commercial personal corporate self_employed part_time full_time first_time
    expired lost stolen damaged broken deceased former ex shared joint multiple several another second refurbished
    temporary permanently automatically manually offline simultaneously both becoming become near nearby local
    official legally safely outside inside colleague friend husband wife partner son daughter mother father parents
    company team 只 仅 仅仅 只有 免费 孕妇 怀孕 哺乳期 儿童 小孩 孩子 宝宝 婴儿 老人 老年人 学生 新手 初学者 素食 清真
    残疾人 宠物 国际 海外 境外 国外 国内 外国人 紧急 加急 当日达 商用 企业 公司 个人 自雇 兼职 全职 首次 过期 丢失
    被盗 损坏 质量问题 共享 联名 多个 二手 翻新 临时 永久 自动 手动 离线 附近 本地 官方 最好 最便宜 同事 朋友 丈夫
    妻子 儿子 女儿 父母 团队 未成年 未成年人 糖尿病 高血压 夜间 批量 全部 所有
    """
)
PHRASES: Final = frozenset(word for word in WORDS if "_" in word)
