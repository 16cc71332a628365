"""Number words, and units with the factor to the base of their dimension."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

SMALL: Final = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16,
    "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50,
    "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90, "dozen": 12,
}  # fmt: skip
SCALES: Final = {
    "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12, "k": 1000, "bn": 10**9,
    "万": 10**4, "亿": 10**8, "千": 1000, "百": 100,
}  # fmt: skip
ORDINALS: Final = {
    "first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9,
    "tenth": 10, "eleventh": 11, "twelfth": 12,
}  # fmt: skip
FRACTIONS: Final = {"half": Decimal("0.5"), "quarter": Decimal("0.25"), "半": Decimal("0.5")}
ORDINAL_ENDS: Final = frozenset(["st", "nd", "rd", "th"])
HAN_DIGITS: Final = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "壹": 1, "贰": 2, "叁": 3}
HAN_SCALES: Final = {"十": 10, "百": 100, "千": 1000, "万": 10**4, "亿": 10**8}

# dimension: {factor: names}. Units without a factor between them are dimensions of their own.
_UNITS: Final[dict[str, dict[str, str]]] = {
    "second": {
        "0.001": "ms millisecond milliseconds 毫秒", "1": "s sec secs second seconds 秒 秒钟",
        "60": "min mins minute minutes 分钟", "3600": "h hr hrs hour hours 小时 个小时 钟头",
        "86400": "d day days 天 日", "604800": "wk week weeks 周 星期 个星期 礼拜 个礼拜",
    },
    "month": {"1": "month months 个月", "3": "季度 个季度", "12": "yr yrs year years 年 岁 周岁", "120": "decade decades",
              "1200": "century centuries 世纪 个世纪"},
    "metre": {"0.001": "mm millimetre millimetres millimeter millimeters 毫米",
              "0.01": "cm centimetre centimetres centimeter centimeters 厘米 公分",
              "1": "m metre metres meter meters 米", "1000": "km kilometre kilometres kilometer kilometers 公里 千米"},
    "inch": {"1": "inch inches 英寸 寸", "12": "foot feet ft 英尺", "36": "yard yards 码", "63360": "mile miles 英里"},
    "gram": {"0.001": "mg milligram milligrams 毫克", "1": "g gram grams 克", "500": "斤",
             "1000": "kg kilo kilos kilogram kilograms 公斤 千克",
             "1000000": "tonne tonnes 吨"},
    "ounce": {"1": "oz ounce ounces 盎司", "16": "lb lbs 磅"},
    "litre": {"0.001": "ml millilitre millilitres milliliter milliliters 毫升", "1": "l litre litres liter liters 升"},
    "byte": {"1": "b byte bytes 字节", "1000": "kb kilobyte kilobytes", "1000000": "mb megabyte megabytes 兆",
             "1000000000": "gb gig gigs gigabyte gigabytes", "1000000000000": "tb terabyte terabytes"},
    "bit": {"1": "bit bits 比特 位", "1000000": "mbps", "1000000000": "gbps"},
    "percent": {"1": "% percent per-cent pct"},
    "celsius": {"1": "°c celsius centigrade 摄氏度"}, "fahrenheit": {"1": "°f fahrenheit 华氏度"},
    "degree": {"1": "° degree degrees 度"},
    "usd": {"1": "$ usd dollar dollars buck bucks 美元 美金 刀"}, "eur": {"1": "€ eur euro euros 欧元"},
    "gbp": {"1": "£ gbp quid 英镑"}, "jpy": {"1": "jpy yen 日元 円"}, "cny": {"1": "cny rmb yuan 元 块 块钱 人民币"},
    "yen-or-yuan": {"1": "¥"},
    "pound": {"1": "pound pounds"}, "inr": {"1": "₹ inr rupee rupees 卢比"}, "krw": {"1": "₩ krw won 韩元"},
    "ordinal": {"1": "#ordinal"}, "clock": {"1": "#clock"}, "version": {"1": "#version"},
}  # fmt: skip

# name: (dimension, factor)
UNITS: Final[dict[str, tuple[str, Decimal]]] = {
    name: (dimension, Decimal(factor))
    for dimension, factors in _UNITS.items()
    for factor, names in factors.items()
    for name in names.split()
}
# Units that may be either of two.
AMBIGUOUS: Final = {"yen-or-yuan": frozenset({"jpy", "cny"}), "pound": frozenset({"gbp", "ounce"})}
CURRENCY_SIGNS: Final = "$€£¥₹₩"
