"""Words by which languages in Latin letters are told apart: frequent ones that few of the others share."""

from __future__ import annotations

from typing import Final

WORDS: Final = {
    "en": "the is are was were do does did how what where when why who can could should would will my your i we you it "
    "of to and for with from this that have has not please need want which",
    "de": "der die das ist sind wie wo warum wann wer kann ich mein meine meinen du sie wir ein eine einen und oder nicht "
    "für mit von zu zum zur auf bitte welche möchte gibt",
    "fr": "le la les est sont comment où pourquoi quand qui quel quelle puis je mon ma mes vous nous un une des et ou ne "
    "pas pour avec dans sur du au faire faut",
    "es": "el los las es son cómo como dónde donde cuándo cuál qué quién puedo mi mis tu usted un una y o no para con "
    "por en del al hay quiero cuánto está",
    "pt": "os as é são como onde quando qual quem posso meu minha você um uma e ou não para com por em do da no na ao há "
    "quero quanto está",
    "it": "il lo gli è sono come dove perché quando chi quale posso mio mia un una e o non per con di del della nel al "
    "che ho voglio quanto",
    "nl": "de het een is zijn hoe waar waarom wanneer wie kan ik mijn jij je wij u en of niet voor met van naar op wat "
    "welke moet wil",
}
