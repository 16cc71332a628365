"""Contrasts and entities."""

import pytest

from services.cache.core.vetoes.contrasts import Contrasts
from services.cache.core.vetoes.entities import Entities, entities_of
from services.cache.core.vetoes.text import Text
from tests.unit.services.cache.core.vetoes.judging import REFUSE, VERIFY, severity


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("is lunch served outside", "is supper served outside"),
        ("the red bins", "the green bins"),
        ("how many ounces in a jug", "how many grams in a jug"),
        ("my knee hurts when I run", "my ankle hurts when I run"),
        ("红色的箱子", "绿色的箱子"),
        ("钢琴课多少钱", "吉他课多少钱"),
    ],
)
def test_another_word_of_a_kind_is_refused(asked, stored):
    assert severity(Contrasts(), asked, stored) is REFUSE
    assert severity(Contrasts(), stored, asked) is REFUSE


def test_words_for_the_same_and_words_of_other_kinds_pass():
    assert severity(Contrasts(), "is dinner served outside", "is supper served outside") is None
    assert severity(Contrasts(), "a red bus", "a red piano") is None
    assert severity(Contrasts(), "the red and the green bins", "the green and the red bins") is None


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("what did Ada write", "what did Grace write"),
        ("a hotel in lisbon", "a hotel in prague"),
        ("haskell or not haskell", "kotlin or not kotlin"),
        ("sheep in the US", "sheep in the UK"),
        ("what does parse_row do", "what does read_row do"),
        ("what does loadAll() return", "what does loadOne() return"),
        ('who said "be brave"', 'who said "be kind"'),
        ("the port of /etc/hosts", "the port of /etc/fstab"),
        ("what is a VPN", "what is a CDN"),
        ("鲁迅的小说", "老子的小说"),
        ("用 Vue 画图", "用 Angular 画图"),
        ("《草叶集》的作者", "《荒原》的作者"),
    ],
)
def test_another_name_is_refused(asked, stored):
    assert severity(Entities(), asked, stored) is REFUSE
    assert severity(Entities(), stored, asked) is REFUSE


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("ferries to the UK", "ferries to Britain"),
        ("what is an API", "what is an application programming interface"),
        ("how do Dutch trains run", "how do trains run in the Netherlands"),
        ("Does Nina sing?", "does nina sing"),
        ("How Do I Fold A Paper Boat", "how do I fold a paper boat"),
        ("HOW DO I FOLD A PAPER BOAT", "how do I fold a paper boat"),
        ("I WANT A BOAT", "I want a boat"),
        ("用 VUE 画图", "用 vue 画图"),
    ],
)
def test_the_same_name_written_otherwise_passes(asked, stored):
    assert severity(Entities(), asked, stored) is None
    assert severity(Entities(), stored, asked) is None


def test_a_word_that_is_also_a_name_is_one_where_it_is_written_so():
    assert entities_of(Text("please tell us how to polish a table")) == {}
    assert entities_of(Text("please tell me about the US and Polish trains")).keys() == {"us", "poland"}
    assert severity(Entities(), "trains of the US", "a bus and a train") is VERIFY


def test_a_name_on_one_side_is_a_doubt():
    assert severity(Entities(), "how do I leave the club", "how do I leave the Falcon club") is VERIFY


def test_a_name_that_differs_by_a_slip_is_a_doubt():
    assert severity(Entities(), "songs by Kristofer", "songs by Kristoffer") is VERIFY


def test_what_begins_a_sentence_is_a_name_only_if_it_is_known_as_one():
    assert entities_of(Text("Bake the bread. Slice it.")) == {}
    assert entities_of(Text("Lisbon in spring")).keys() == {"lisbon"}
