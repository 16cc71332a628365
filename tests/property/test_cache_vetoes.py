"""The rules of the semantic cache hold for any two texts."""

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from services.cache.core.features import NAMES as FEATURES
from services.cache.core.features import features
from services.cache.core.vetoes.chain import RULES, Chain
from services.cache.core.vetoes.finding import Severity
from services.cache.core.vetoes.tables import antonyms, contrasts, dates, names, negation, numbers, scope
from services.cache.core.vetoes.tables.words import words
from services.cache.core.vetoes.text import Text

# A loaded machine draws slowly; that is no fault of the rules.
_SLOW = [HealthCheck.too_slow]
# Words of the tables make the rules speak; whatever else makes them stumble.
_WORDS = sorted(
    {*negation.ENGLISH, *negation.CHINESE, *scope.WORDS, *dates.WORDS, *names.NAMES, *contrasts.MEMBERS}
    | {*numbers.UNITS, *numbers.SMALL, *numbers.SCALES}
    | {word for group in (antonyms.ENGLISH + antonyms.CHINESE).split() for word in group.split("/")}
)
_ODD = sorted(
    words("from to by in and 的 吗 从 到 did was is 3 1,000 2.5 10:30 $ % `x` foo_bar() Nina May ? .") | {"\n"}
)
_PIECES = st.one_of(
    st.sampled_from(_WORDS).map(lambda word: word.replace("_", " ")),
    st.sampled_from(_ODD),
    st.text(max_size=8),
)
_TEXTS = st.one_of(
    st.text(max_size=60), st.lists(_PIECES, max_size=12).map(" ".join), st.lists(_PIECES, max_size=8).map("".join)
)


@given(_TEXTS, _TEXTS)
@example("N'T", "")
@settings(max_examples=400, suppress_health_check=_SLOW)
def test_h2_no_pair_of_texts_makes_a_rule_raise_and_the_order_of_a_pair_changes_nothing(one, other):
    asked, stored = Text(one), Text(other)
    for rule in RULES:
        here, there = rule.judge(asked, stored), rule.judge(stored, asked)
        assert (here and here.severity) == (there and there.severity), rule.name
        assert here is None or here.rule == rule.name
    verdict = Chain().judge(asked, stored)
    assert verdict.refusal is None or verdict.refusal.severity is Severity.REFUSE
    assert all(finding.severity is Severity.VERIFY for finding in verdict.doubts)
    row = features(asked, stored, 0.9, verdict.doubts)
    assert len(row) == len(FEATURES)
    assert all(number == number and abs(number) < 1e6 for number in row)


@given(_TEXTS)
@settings(max_examples=300, suppress_health_check=_SLOW)
def test_h2_no_rule_objects_to_the_same_text(text):
    verdict = Chain().judge(Text(text), Text(text))
    assert verdict.refusal is None
    assert verdict.doubts == ()


@given(_TEXTS, _TEXTS)
@settings(max_examples=100, suppress_health_check=_SLOW)
def test_a_finding_is_the_same_each_time(one, other):
    assert Chain().judge(Text(one), Text(other)) == Chain().judge(Text(one), Text(other))
