"""Questions made by rule, each in many wordings: English and Chinese.

Written for this evaluation, apart from the tables of the rules under test. What is asked is a pair (what, about what), so
that each question has neighbours that differ from it in one word and mean another thing.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.cache_eval.data import LabelledPair, is_reported


@dataclass(frozen=True, slots=True)
class Question:
    """One question. `near` names what it is about: questions of one `near` or of one `what` are neighbours."""

    id: str
    what: str
    near: str
    wordings: tuple[str, ...]


_VERBS = (
    ("change", "edit", "make changes to"), ("delete", "get rid of", "wipe"), ("export", "download a copy of"),
    ("share", "let someone else see"), ("back up", "make a safe copy of"), ("print", "get a paper copy of"),
    ("hide", "keep people from seeing"), ("sort", "put in order"), ("find", "look up"), ("import", "bring in"),
    ("rename", "give a new name to"), ("scan", "make a scan of"), ("translate", "put into another language"),
    ("protect", "put a password on"),
)  # fmt: skip
_THINGS = (
    ("my photos", "my pictures"), ("my contacts", "my address book"), ("my calendar", "my appointments"),
    ("my playlists", "my song lists"), ("an invoice", "a bill"), ("a folder", "a directory"), ("my notes", "my memos"),
    ("a spreadsheet", "an Excel sheet"), ("my bookmarks", "my saved links"), ("a survey", "a questionnaire"),
    ("my recipes",), ("a presentation", "a slide deck"), ("my voice messages", "my voicemails"), ("a form",),
    ("a contract", "an agreement"), ("my diary", "my journal"), ("a map",), ("my emails", "my mail"), ("a receipt",),
    ("a drawing", "a sketch"), ("my documents", "my papers"), ("a letter",),
)  # fmt: skip
_HOW = (
    "How do I {}?", "How can I {}?", "What is the way to {}?", "What steps do I take to {}?", "I need to {}. How?",
    "Is there a way to {}?", "Show me how to {}", "I'd like to {}, what do I do?", "Where do I go to {}?",
    "What's the best way to {}?",
)  # fmt: skip
_PLACES = (
    "Austria", "Brazil", "Canada", "Chile", "Denmark", "Egypt", "Finland", "Ghana", "Hungary", "India", "Japan", "Kenya",
    "Mexico", "Norway", "Peru", "Poland", "Portugal", "Sweden", "Thailand", "Vietnam",
)  # fmt: skip
_FACTS = {
    "capital": (
        "What is the capital of {}?",
        "Which city is the capital of {}?",
        "Name the capital city of {}",
        "{}'s capital?",
    ),
    "people": ("How many people live in {}?", "What is the population of {}?", "How large is the population of {}?"),
    "money": ("What currency does {} use?", "What money do people pay with in {}?", "What is the currency of {}?"),
    "language": (
        "What language do they speak in {}?",
        "Which language is spoken in {}?",
        "What is the language of {}?",
    ),
    "area": ("How big is {} in square kilometres?", "What is the area of {}?", "How much land does {} cover?"),
}
_TERMS = (
    "mutex", "compiler", "firewall", "router", "hash table", "deadlock", "docker image", "load balancer", "cookie",
    "proxy", "semaphore", "kernel", "linked list", "foreign key", "webhook", "checksum", "sandbox", "garbage collector",
    "closure", "daemon",
)  # fmt: skip
_DEFINE = (
    "What is a {}?", "Explain what a {} is", "What does {} mean?", "Define {}", "Can you explain what a {} is?",
    "Give me a definition of {}",
)  # fmt: skip
_USES = ("What is a {} used for?", "What do I need a {} for?", "Why would I use a {}?", "When is a {} useful?")
_NUMBERS = (3, 7, 12, 18, 25, 40, 60, 75, 90, 150)
_UNITS = {
    "km": ("How many kilometres are {} miles?", "Convert {} miles to kilometres", "{} miles in kilometres"),
    "kg": ("How many kilograms are {} pounds?", "Convert {} pounds to kilograms", "{} pounds in kilograms"),
    "celsius": (
        "What is {} degrees Fahrenheit in Celsius?",
        "Convert {} Fahrenheit to Celsius",
        "{} Fahrenheit in Celsius",
    ),
}

_ZH_VERBS = (
    ("修改", "更改"), ("删除", "去掉"), ("导出", "下载"), ("分享", "发给别人看"), ("备份", "另存一份"), ("打印", "打出来"),
    ("隐藏", "不让别人看到"), ("整理", "排好顺序"), ("查找", "搜到"), ("导入", "传进来"), ("翻译", "换成另一种语言"),
    ("扫描", "扫进电脑"), ("压缩", "变小一点"), ("加密", "设上密码"),
)  # fmt: skip
_ZH_THINGS = (
    ("照片", "相片"), ("联系人", "通讯录"), ("日历", "日程"), ("播放列表", "歌单"), ("账单", "缴费单"), ("文件夹", "目录"),
    ("笔记", "备忘录"), ("表格", "电子表格"), ("书签", "收藏的网页"), ("问卷", "调查表"), ("菜谱", "食谱"),
    ("幻灯片", "演示文稿"), ("合同", "协议"), ("日记",), ("地图",), ("邮件", "电子邮件"), ("收据",), ("图纸", "草图"), ("信件",),
    ("简历", "个人履历"),
)  # fmt: skip
_ZH_HOW = (
    "怎么{v}{o}？", "如何{v}{o}？", "{o}怎么{v}？", "我想{v}{o}，该怎么做？", "{v}{o}的步骤是什么？", "{o}要在哪里{v}？",
    "有什么办法{v}{o}？", "{v}{o}的方法",
)  # fmt: skip
_ZH_PLACES = (
    "奥地利",
    "巴西",
    "加拿大",
    "智利",
    "丹麦",
    "埃及",
    "芬兰",
    "加纳",
    "印度",
    "日本",
    "肯尼亚",
    "挪威",
    "秘鲁",
    "波兰",
    "泰国",
    "越南",
)
_ZH_FACTS = {
    "capital": ("{}的首都是哪里？", "{}的首都是哪个城市？", "哪座城市是{}的首都？", "{}首都叫什么？"),
    "people": ("{}有多少人？", "{}的人口是多少？", "{}一共有多少人口？"),
    "money": ("{}用什么货币？", "在{}用什么钱付款？", "{}的货币是什么？"),
    "language": ("{}人说什么语言？", "{}的官方语言是什么？", "在{}要讲什么语言？"),
    "area": ("{}的面积有多大？", "{}有多少平方公里？", "{}国土面积是多少？"),
}
_ZH_TERMS = (
    "互斥锁", "编译器", "防火墙", "路由器", "哈希表", "死锁", "镜像", "负载均衡", "代理", "信号量", "内核", "链表", "外键",
    "校验和", "沙箱", "闭包",
)  # fmt: skip
_ZH_DEFINE = ("什么是{}？", "{}是什么？", "解释一下{}是什么", "{}是什么意思？", "给{}下个定义", "能说说什么是{}吗？")
_ZH_USES = ("{}有什么用？", "为什么要用{}？", "{}用在什么地方？", "什么时候需要{}？")
_ZH_UNITS = {
    "km": ("{}英里是多少公里？", "把{}英里换算成公里", "{}英里等于几公里？"),
    "kg": ("{}磅是多少公斤？", "把{}磅换算成公斤", "{}磅等于几公斤？"),
    "celsius": ("{}华氏度是多少摄氏度？", "把{}华氏度换算成摄氏度", "{}华氏度等于几摄氏度？"),
}


def questions(language: str) -> list[Question]:
    """All of "en" or "zh", in no order that means anything."""
    made = list(_english() if language == "en" else _chinese())
    random.Random(7).shuffle(made)
    return made


def pairs(language: str, most: int = 1200) -> list[LabelledPair]:
    """Reusable pairs: two wordings of a question. Traps: two questions that share what is asked, or what it is asked about."""
    draw = random.Random(11)
    every = questions(language)
    made = []
    for at, question in enumerate(every):
        if len(question.wordings) > 1:
            a, b = draw.sample(question.wordings, 2)
            made.append(LabelledPair(f"made-{language}-same-{question.id}", "other wording", a, b, True))
        near = [other for other in every[at + 1 :] if other.near == question.near]
        same = [other for other in every[at + 1 :] if other.what == question.what]
        for kind, others in (("other verb or fact", near), ("other thing, place or number", same)):
            if others:
                other = draw.choice(others)
                # In the same words but for what differs, as far as both have them: that is what makes a trap.
                place = draw.randrange(len(question.wordings))
                b = other.wordings[min(place, len(other.wordings) - 1)]
                made.append(
                    LabelledPair(f"made-{language}-{kind}-{question.id}", kind, question.wordings[place], b, False)
                )
    draw.shuffle(made)
    return made[:most]


def held_out(language: str) -> list[Question]:
    """Those of the reported half."""
    return [question for question in questions(language) if is_reported(question.id)]


def _english() -> Iterator[Question]:
    for verbs, things in itertools.product(_VERBS, _THINGS):
        texts = [frame.format(f"{verb} {thing}") for verb in verbs for thing in things for frame in _HOW]
        yield Question(f"{verbs[0]}|{things[0]}", verbs[0], things[0], tuple(texts))
    for (fact, frames), place in itertools.product(_FACTS.items(), _PLACES):
        yield Question(f"{fact}|{place}", fact, place, tuple(frame.format(place) for frame in frames))
    yield from _terms(_TERMS, _DEFINE, _USES)
    yield from _conversions(_UNITS)


def _chinese() -> Iterator[Question]:
    for verbs, things in itertools.product(_ZH_VERBS, _ZH_THINGS):
        texts = [frame.format(v=verb, o=thing) for verb in verbs for thing in things for frame in _ZH_HOW]
        yield Question(f"{verbs[0]}|{things[0]}", verbs[0], things[0], tuple(texts))
    for (fact, frames), place in itertools.product(_ZH_FACTS.items(), _ZH_PLACES):
        yield Question(f"{fact}|{place}", fact, place, tuple(frame.format(place) for frame in frames))
    yield from _terms(_ZH_TERMS, _ZH_DEFINE, _ZH_USES)
    yield from _conversions(_ZH_UNITS)


def _terms(terms: Sequence[str], define: Sequence[str], uses: Sequence[str]) -> Iterator[Question]:
    for term in terms:
        yield Question(f"define|{term}", "define", term, tuple(frame.format(term) for frame in define))
        yield Question(f"use|{term}", "use", term, tuple(frame.format(term) for frame in uses))


def _conversions(units: Mapping[str, Sequence[str]]) -> Iterator[Question]:
    for (unit, frames), number in itertools.product(units.items(), _NUMBERS):
        yield Question(f"{unit}|{number}", unit, str(number), tuple(frame.format(number) for frame in frames))
