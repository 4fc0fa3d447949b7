"""The known word that was meant: bounded, for difflib compares each with each letter by letter
and lets nothing else run meanwhile.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

MAX_LETTERS = 64
"""Letters of a word that is compared; names have at most 63."""
MAX_WORDS = 200
"""Words that one is compared with; of more, the first ones that begin with the same letter."""


def nearest(given: object, known: Iterable[str]) -> str:
    """The word that is most like what was given, "" where none is."""
    word = str(given)
    if not 0 < len(word) <= MAX_LETTERS:
        return ""
    words = [each for each in known if len(each) <= MAX_LETTERS]
    if len(words) > MAX_WORDS:
        words = list(islice((each for each in words if each[:1] == word[0]), MAX_WORDS))
    near = difflib.get_close_matches(word, words, n=1)
    near = near or difflib.get_close_matches(word.lower(), words, n=1)
    return next(iter(near), "")
