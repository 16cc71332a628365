import pytest

from services.cache.core.vetoes.numbers import Numbers
from services.cache.core.vetoes.quantities import quantities
from services.cache.core.vetoes.text import Text
from tests.unit.services.cache.core.vetoes.judging import REFUSE, judge, severity


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7 parcels", [("7", "")]),
        ("twenty-one parcels", [("21", "")]),
        ("two hundred and fifty sheets", [("250", "")]),
        ("three thousand four hundred", [("3400", "")]),
        ("1,000 seats", [("1000", "")]),
        ("12k followers", [("12000", "")]),
        ("2.5 km", [("2500", "metre")]),
        ("90 minutes", [("5400", "second")]),
        ("18 months", [("18", "month")]),
        ("$40 or 40 dollars", [("40", "usd"), ("40", "usd")]),
        ("half a litre", [("0.5", "")]),
        ("at 9:05 pm", [("21:05", "clock")]),
        ("at 12 am", [("00:00", "clock")]),
        ("the 3rd floor", [("3", "ordinal")]),
        ("Python 3.10", [("3.10", "version")]),
        ("release 2.0.1", [("2.0.1", "version")]),
        ("三天", [("259200", "second")]),
        ("十二个苹果", [("12", "")]),
        ("两百五十公里", [("250000", "metre")]),
        ("3万元", [("30000", "cny")]),
        ("百分之五", [("5", "percent")]),
        ("第三章", [("3", "ordinal")]),
        ("二零二四年", [("24288", "month")]),
        ("15％", [("15", "percent")]),
        ("no numbers, 一样", []),
    ],
)
def test_numbers_are_read_with_their_units(text, expected):
    assert [(q.value, q.dimension) for q in quantities(Text(text).tokens)] == expected


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("how far is 3 km on foot", "how far is three kilometres on foot"),
        ("is 60 minutes enough", "is one hour enough"),
        ("can I bring 1,000 leaflets", "can I bring 1000 leaflets"),
        ("is a shelf of 2 metres too long", "is a shelf of 2 too long"),
        ("what is 50 pounds worth", "what is £50 worth"),
        ("is one of the doors broken", "is a door broken"),
        ("the train at 9:05 pm", "the train at 21:05"),
        ("三天能到吗", "3天能到吗"),
        ("两公里有多远", "2000米有多远"),
    ],
)
def test_the_same_number_written_otherwise_passes(asked, stored):
    assert severity(Numbers(), asked, stored) is None
    assert severity(Numbers(), stored, asked) is None


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("does it ship in 2 days", "does it ship in 3 days"),
        ("a bag of 5 kg", "a bag of 5 pounds"),
        ("seats for four", "seats for six"),
        ("one suitcase", "two suitcases"),
        ("what changed in Go 1.2", "what changed in Go 1.20"),
        ("a fine of $30", "a fine of €30"),
        ("the first chapter", "the second chapter"),
        ("is 38 degrees a fever", "is it a fever"),
        ("五天能退吗", "七天能退吗"),
        ("第一章讲什么", "第二章讲什么"),
        ("一个月的费用", "三个月的费用"),
        ("百分之五的税", "百分之八的税"),
    ],
)
def test_another_number_unit_or_version_is_refused(asked, stored):
    assert severity(Numbers(), asked, stored) is REFUSE
    assert severity(Numbers(), stored, asked) is REFUSE


def test_the_finding_shows_both_numbers():
    found = judge(Numbers(), "a walk of 4 km", "a walk of 9 km")
    assert found is not None
    assert (found.asked, found.stored) == ("4 metre", "9 metre")


@pytest.mark.parametrize("text", ["٣ كتب", "१२ किताबें", "9" * 400, "1.2.3.4.5", "1,2,3", "12:99:71 pm", "第", "百分之"])
def test_odd_numbers_are_read_without_an_error(text):
    assert severity(Numbers(), text, text) is None
    assert severity(Numbers(), text, "7") is not None or not Text(text).quantities
