"""The order of words, and directions."""

import pytest

from services.cache.core.vetoes.direction import Direction
from services.cache.core.vetoes.order import Order
from tests.unit.services.cache.core.vetoes.judging import REFUSE, VERIFY, judge, severity


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("is Nina teaching Omar", "is Omar teaching Nina"),
        ("does rain cause wind", "does wind cause rain"),
        ("Did Omar paint the bridge?", "Was Omar painted by the bridge?"),
        ("stretch before a run", "run before a stretch"),
        ("猫追狗吗", "狗追猫吗"),
        ("借方欠贷方怎么办", "贷方欠借方怎么办"),
    ],
)
def test_words_that_changed_places_are_refused(asked, stored):
    assert severity(Order(), asked, stored) is REFUSE
    assert severity(Order(), stored, asked) is REFUSE


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("is Nina married to Omar", "is Omar married to Nina"),
        ("apples and pears", "pears and apples"),
        ("tea vs cocoa", "cocoa vs tea"),
        ("in winter, where do bats sleep", "where do bats sleep in winter"),
        ("Did Omar paint the bridge?", "Was the bridge painted by Omar?"),
        ("what does Nina teach", "what does Nina teach"),
        ("面条和米饭", "米饭和面条"),
        ("苹果与梨的区别", "梨与苹果的区别"),
    ],
)
def test_order_that_says_nothing_passes(asked, stored):
    assert severity(Order(), asked, stored) is None
    assert severity(Order(), stored, asked) is None


def test_one_part_that_moved_is_a_doubt():
    assert severity(Order(), "the code of the garage door", "the garage door code") is VERIFY


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("flights from Oslo to Cairo", "flights from Cairo to Oslo"),
        ("convert metres to yards", "convert yards to metres"),
        ("replace butter with oil", "replace oil with butter"),
        ("move files from the laptop to the tablet", "move files to the laptop from the tablet"),
        ("从成都到昆明", "从昆明到成都"),
        ("把表格转成图片", "把图片转成表格"),
    ],
)
def test_the_other_way_is_refused(asked, stored):
    found = judge(Direction(), asked, stored)
    assert found is not None
    assert found.severity is REFUSE
    assert "→" in found.asked
    assert severity(Direction(), stored, asked) is REFUSE


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("flights from Oslo to Cairo", "flights to Cairo from Oslo"),
        ("copy it from the old phone to the new one", "copy it from the old device to the new one"),
        ("convert metres to yards", "metres to yards"),
        ("I want to learn to swim", "how to learn to swim"),
        ("从成都到昆明多久", "从成都去昆明多久"),
    ],
)
def test_the_same_way_passes(asked, stored):
    assert severity(Direction(), asked, stored) is None
