import pytest

from services.cache.core.vetoes.chain import NAMES, RULES, Chain
from services.cache.core.vetoes.finding import Severity, value
from services.cache.core.vetoes.text import Text
from streamway.tenancy.model import CACHE_RULES


def test_the_first_refusal_ends_it():
    verdict = Chain().judge(Text("enable 2 alarms on Monday"), Text("disable 3 alarms on Friday"))
    assert verdict.refusal is not None
    assert verdict.refusal.rule == "numbers"
    assert verdict.refusal.severity is Severity.REFUSE


def test_a_rule_that_is_off_says_nothing():
    asked, stored = Text("enable 2 alarms"), Text("disable 3 alarms")
    without = Chain({"numbers"}).judge(asked, stored)
    assert without.refusal is not None
    assert without.refusal.rule == "antonyms"
    assert Chain(NAMES).judge(asked, stored) == Chain(NAMES).judge(asked, asked)


def test_doubts_are_collected():
    verdict = Chain().judge(Text("can I swim here"), Text("can children swim here"))
    assert verdict.refusal is None
    assert {finding.rule for finding in verdict.doubts} == {"scope", "insertion"}


def test_an_unknown_rule_is_named_at_once():
    with pytest.raises(ValueError, match="no rule is called tides"):
        Chain({"tides"})


def test_names_are_unique():
    assert len(set(NAMES)) == len(RULES) == len(NAMES)


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("how do I open a jar", "how can I open jars?"),
        ("where do otters sleep", "Hello! Could you please tell me where otters sleep? Thanks"),
        ("怎么打开罐子", "请问如何打开罐子呢"),
        ("水獭在哪里睡觉？", "水獭在哪儿睡觉"),
        ("如何重置密码", "忘记密码怎么办"),
        ("如何重置密码？", "密码忘了，怎么找回"),
        ("how do I reset my password", "I forgot my password, what can I do?"),
    ],
)
def test_the_same_question_in_other_words_passes_clean(asked, stored):
    verdict = Chain().judge(Text(asked), Text(stored))
    assert verdict.refusal is None
    assert verdict.doubts == ()


@pytest.mark.parametrize(
    "pair", [("如何重置密码", "如何修改邮箱"), ("how do I reset my password", "how do I change my email")]
)
def test_h3_another_thing_to_do_is_at_least_doubted(pair):
    verdict = Chain().judge(Text(pair[0]), Text(pair[1]))
    assert verdict.refusal is not None or verdict.doubts


def test_values_are_cut_where_they_get_long_and_sets_are_sorted():
    assert value({"b", "a"}) == "a b"
    assert len(value("x" * 1000)) == 120
    assert value(("one", "two")) == "one two"


def test_a_text_shows_no_content_of_itself():
    assert "secret" not in repr(Text("secret"))
    assert Text("x" * 8000).whole
    assert not Text("x" * 8001).whole


def test_the_tenants_file_knows_every_rule() -> None:
    assert NAMES == CACHE_RULES
