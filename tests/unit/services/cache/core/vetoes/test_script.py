import pytest

from services.cache.core.vetoes.script import Script, language_of, script_of
from services.cache.core.vetoes.text import Text
from tests.unit.services.cache.core.vetoes.judging import REFUSE, judge, severity


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("where is the library", "latin"),
        ("图书馆在哪里", "han"),
        ("用 Rust 写一个链表", "han"),
        ("what does 谢谢 mean in a letter", "latin"),
        ("図書館はどこですか", "kana"),
        ("도서관은 어디에 있나요", "hangul"),
        ("где находится библиотека", "cyrillic"),
        ("", ""),
        ("42 + 7", ""),
    ],
)
def test_the_script_of_a_text_is_that_of_most_of_it(text, script):
    assert script_of(Text(text)) == script


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("how do I open the window", "en"),
        ("wie kann ich das Fenster öffnen", "de"),
        ("comment est-ce que je peux ouvrir la fenêtre", "fr"),
        ("cómo puedo abrir la ventana de mi casa", "es"),
        ("window", ""),
    ],
)
def test_a_language_in_latin_letters_is_told_by_its_frequent_words(text, language):
    assert language_of(Text(text)) == language


def test_an_answer_in_another_script_or_language_is_refused():
    found = judge(Script(), "where is the library", "图书馆在哪里")
    assert found is not None
    assert (found.asked, found.stored, found.severity) == ("latin", "han", REFUSE)
    assert severity(Script(), "how do I open the window", "wie kann ich das Fenster öffnen") is REFUSE


def test_what_has_no_letters_or_too_few_words_passes():
    assert severity(Script(), "42 + 7", "where is the library") is None
    assert severity(Script(), "window", "wie kann ich das Fenster öffnen") is None


@pytest.mark.parametrize(
    "pair", [("Android 和 iPhone 哪个好", "iPhone 和 Android 哪个好"), ("Git 怎么用", "怎么用 Git")]
)
def test_chinese_around_foreign_names_is_chinese_in_any_order(pair):
    assert severity(Script(), *pair) is None
