"""English words that carry grammar rather than content."""

from __future__ import annotations

from typing import Final

from services.cache.core.vetoes.tables.words import words

FUNCTION: Final = words(
    """
    a an the this that these those such there here it its itself i me my mine myself we us our ours you your yours he
    him his she her hers they them their theirs one ones someone somebody something somewhere anyone anybody anything
    anywhere everyone everything am is are was were be been being do does did done doing have has had having get gets
    got getting can could may might must shall should will would need needs needed want wants wanted what which who
    whom whose where when why how whats hows wheres of in on at to for from by with about into onto as per via than
    then so if whether and or but also up out off over please kindly thanks thank hi hello hey dear tell show know let
    give explain way ways possible able some any much many more most lot lots very just really actually indeed
    literally simply truly somehow certainly definitely basically honestly obviously exactly fact currently now ok
    okay oh um uh er erm hmm yeah yep yes well hiya heya cheers sorry bother quick silly advance regards folks guys
    question wondering wonder kind help would_like hi_team hi_all hi_everyone hello_team hello_all hello_everyone
    """
)

# Written without the apostrophe; what has another meaning so ("well", "were", "wont") is not here.
UNAPOSTROPHED: Final = {
    "dont": "don't", "doesnt": "doesn't", "didnt": "didn't", "cant": "can't", "wont": "won't", "isnt": "isn't",
    "arent": "aren't", "wasnt": "wasn't", "werent": "weren't", "havent": "haven't", "hasnt": "hasn't",
    "hadnt": "hadn't", "shouldnt": "shouldn't", "wouldnt": "wouldn't", "couldnt": "couldn't", "whats": "what's",
    "hows": "how's", "wheres": "where's", "im": "i'm", "ive": "i've",
}  # fmt: skip

# To the form the stemmer gives the others.
IRREGULAR: Final = {
    "children": "child", "kids": "child", "kid": "child", "men": "man", "women": "woman", "people": "person",
    "feet": "foot", "teeth": "tooth", "mice": "mouse", "bought": "buy", "paid": "pay", "sent": "send", "went": "go",
    "gone": "go", "made": "make", "broken": "break", "broke": "break", "forgot": "forget", "forgotten": "forget",
    "lost": "lose", "found": "find", "stolen": "steal", "stole": "steal", "wrote": "write", "written": "write",
    "took": "take", "taken": "take", "gave": "give", "given": "give", "chose": "choose", "chosen": "choose",
    "sold": "sell", "told": "tell", "spoke": "speak", "spoken": "speak", "ran": "run", "held": "hold", "kept": "keep",
    "left": "leave", "met": "meet", "won": "win", "began": "begin", "begun": "begin", "knew": "know", "known": "know",
    "thought": "think", "understood": "understand", "built": "build", "spent": "spend", "caught": "catch",
    "taught": "teach", "brought": "bring", "ate": "eat", "eaten": "eat", "drank": "drink", "drunk": "drink",
    "drove": "drive", "driven": "drive", "flew": "fly", "flown": "fly", "hid": "hide", "hidden": "hide",
    "saw": "see", "seen": "see", "withdrew": "withdraw", "withdrawn": "withdraw", "died": "die", "dying": "die",
    "used": "use", "using": "use", "uses": "use",
    "evenings": "evening", "mornings": "morning",
}  # fmt: skip

# Not forms of "even" and "morn".
KEPT: Final = frozenset({"evening", "morning"})

# Read as one token.
PHRASES: Final = words(
    """
    would_like hi_team hi_all hi_everyone hello_team hello_all hello_everyone
    """
)

# Letters before these are part of a stem: "sing", "red", "bus", "address", "analysis".
KEEP_S: Final = ("ss", "us", "is", "as", "os")
