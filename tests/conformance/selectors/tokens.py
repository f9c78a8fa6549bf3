"""Expressions with words changed, so that few of them parse."""

import re
from random import Random

from tests.conformance.selectors.texts import TEXTS

_WORD = re.compile(r'"(?:[^"\\\\]|\\\\.)*"|\w+|\s+|.', re.DOTALL)


def changed(text: str, random: Random) -> str:
    """Return the text with one or two words removed, added, doubled or exchanged."""
    words = _WORD.findall(text)
    for _ in range(random.choice((1, 1, 2))):
        place = random.randrange(len(words))
        match random.randrange(4):
            case 0 if len(words) > 1:
                del words[place]
            case 1:
                words.insert(place, words[place])
            case 2:
                other = random.randrange(len(words))
                words[place], words[other] = words[other], words[place]
            case _:
                words.insert(place, random.choice(TEXTS["tokens"]))
    return "".join(words)
