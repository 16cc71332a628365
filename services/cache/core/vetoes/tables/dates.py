"""Words that place something in time, by slot: two texts are compared slot by slot."""

from __future__ import annotations

from typing import Final

from services.cache.core.vetoes.tables.words import words

# slot: lines of "value: words". A word of two parts is written with _ .
_WORDS: Final[dict[str, str]] = {
    "weekday": """
        monday: monday mondays mon 周一 星期一 礼拜一
        tuesday: tuesday tuesdays tue tues 周二 星期二 礼拜二
        wednesday: wednesday wednesdays wed 周三 星期三 礼拜三
        thursday: thursday thursdays thu thurs 周四 星期四 礼拜四
        friday: friday fridays fri 周五 星期五 礼拜五
        saturday: saturday saturdays 周六 星期六 礼拜六
        sunday: sunday sundays 周日 周天 星期天 星期日 礼拜天
        weekend: weekend weekends 周末 双休日
        weekday: weekday weekdays 工作日 平日
    """,
    "month": """
        1: january jan 一月 一月份 1月 1月份
        2: february feb 二月 二月份 2月 2月份
        3: march 三月 三月份 3月 3月份
        4: april apr 四月 四月份 4月 4月份
        5: may 五月 五月份 5月 5月份
        6: june jun 六月 六月份 6月 6月份
        7: july jul 七月 七月份 7月 7月份
        8: august aug 八月 八月份 8月 8月份
        9: september sep sept 九月 九月份 9月 9月份
        10: october oct 十月 十月份 10月 10月份
        11: november nov 十一月 十一月份 11月 11月份
        12: december dec 十二月 十二月份 12月 12月份
    """,
    "day": """
        today: today tonight this_morning this_afternoon this_evening 今天 今日 今晚 今早 当天 当日 same_day
        tomorrow: tomorrow next_day 明天 明日 明早 明晚 次日 第二天
        yesterday: yesterday last_night 昨天 昨日 昨晚
        after-tomorrow: 后天
        before-yesterday: 前天
    """,
    "span": """
        last-week: last_week 上周 上星期 上个星期
        this-week: this_week 本周 这周 这个星期
        next-week: next_week 下周 下星期 下个星期
        last-month: last_month 上月 上个月
        this-month: this_month 本月 这个月
        next-month: next_month 下月 下个月
        last-year: last_year 去年
        this-year: this_year 今年 本年
        next-year: next_year 明年
        before-last-year: 前年
        after-next-year: 后年
    """,
    "part": """
        morning: morning mornings 早上 早晨 上午 清晨
        noon: noon midday lunchtime 中午 正午
        afternoon: afternoon afternoons 下午
        evening: evening evenings 傍晚 晚上
        night: night nights nighttime overnight 夜里 夜间 夜晚 深夜
        midnight: midnight 凌晨 午夜 半夜
    """,
    "season": """
        spring: springtime 春天 春季
        summer: summer summers summertime 夏天 夏季 暑假
        autumn: autumn 秋天 秋季
        winter: winter winters wintertime 冬天 冬季 寒假
    """,
    "holiday": """
        christmas: christmas xmas 圣诞 圣诞节
        easter: easter 复活节
        halloween: halloween 万圣节
        thanksgiving: thanksgiving 感恩节
        new-year: new_year 元旦 新年
        lunar-new-year: 春节 过年
        national-day: 国庆 国庆节
        mid-autumn: 中秋 中秋节
        labour-day: 五一 劳动节
        dragon-boat: 端午 端午节
        qingming: 清明 清明节
        valentine: valentine 情人节
        ramadan: ramadan 斋月
    """,
    "rate": """
        hour: hourly per_hour an_hour 每小时
        minute: per_minute 每分钟
        day: daily per_day a_day every_day 每天 每日
        week: weekly per_week a_week every_week 每周 每星期
        month: monthly per_month a_month every_month 每月 每个月
        quarter: quarterly 每季度
        year: annual annually yearly per_year a_year every_year per_annum 每年 年度
        second: per_second 每秒
    """,
    "order": """
        before: before prior beforehand ahead_of 之前 以前 前 提前 在前
        after: after afterwards following 之后 以后 后 过后
        during: during while 期间 过程中 当中
        until: until till up_to 直到
        since: since 自从
        within: within 以内 之内 内
    """,
}  # fmt: skip

# word: (slot, value)
WORDS: Final[dict[str, tuple[str, str]]] = {
    word: (slot, line.partition(":")[0].strip())
    for slot, lines in _WORDS.items()
    for line in lines.strip().splitlines()
    for word in line.partition(":")[2].split()
}
PHRASES: Final = frozenset(word for word in WORDS if "_" in word)
# Words of these slots that only one text has are a difference by themselves; of the others only a doubt.
ALONE: Final = frozenset({"weekday", "month", "day", "span", "holiday"})
# Asked without it, a question about now means the same.
NOW: Final = frozenset({("day", "today")})

PAST: Final = words(
    """
    was were did had used yesterday ago previously formerly 曾经 已经 刚 刚刚 过 原来 以前 当时
    """
)
PRESENT: Final = words(
    """
    is are am do does has have 正在 目前 现在 在
    """
)
FUTURE: Final = words(
    """
    will shall 将 将要 将会 即将
    """
)
