"""A small world to make sentences of: who, what, where, and words that go together."""

from __future__ import annotations

import random
from collections.abc import Sequence

PEOPLE = ("Anna", "Boris", "Clara", "David", "Emil", "Frieda", "Gustav", "Hanna", "Igor", "Julia", "Karl", "Lena",
          "Mira", "Nils", "Olga", "Paul", "Rosa", "Simon", "Tilda", "Viktor")  # fmt: skip
PLACES = ("Aachen", "Bremen", "Cádiz", "Dresden", "Essen", "Ferrara", "Genoa", "Halle", "Ibiza", "Jena", "Kiel",
          "Lyon", "Mainz", "Nantes", "Oslo", "Porto", "Riga", "Siena", "Turin", "Ulm")  # fmt: skip
COMPANIES = ("Adlerwerk", "Bergbahn", "Copperline", "Dampfer", "Eisenhof", "Fernlicht", "Glasraum", "Hafenbau")
SUBJECTS = {
    "weather": ("rain", "snow", "thunder", "sunshine", "fog", "wind", "clouds", "frost"),
    "cooking": ("soup", "bread", "pepper", "butter", "onions", "garlic", "pastry", "sauce"),
    "music": ("violin", "choir", "melody", "drums", "concert", "piano", "rhythm", "opera"),
    "sport": ("goal", "race", "trainer", "stadium", "medal", "team", "sprint", "tennis"),
}
ENGLISH_GERMAN = {  # words of one gender and number, so that a sentence can be put together word by word
    "man": "Mann", "dog": "Hund", "teacher": "Lehrer", "king": "König", "cook": "Koch", "baker": "Bäcker",
    "doctor": "Arzt", "friend": "Freund", "son": "Sohn", "father": "Vater", "brother": "Bruder", "uncle": "Onkel",
}  # fmt: skip


def source(seed: int) -> random.Random:
    """Random numbers that are the same on every machine and in every version of Python since 3.2."""
    return random.Random(seed)


def sentence_about(subject: str, numbers: random.Random) -> str:
    """A sentence with words of one subject among words that could be anywhere.

    >>> sentence_about("music", source(1))
    'Emil in Ulm thought of the melody and the melody this evening.'
    """
    first, second = pick(SUBJECTS[subject], numbers), pick(SUBJECTS[subject], numbers)
    verb = pick(("talked about", "thought of", "wrote about", "remembered"), numbers)
    when = pick(("yesterday", "today", "this evening", "on Monday", "last week"), numbers)
    return f"{pick(PEOPLE, numbers)} in {pick(PLACES, numbers)} {verb} the {first} and the {second} {when}."


def pick(choices: Sequence[str], numbers: random.Random) -> str:
    """One of them."""
    return choices[numbers.randrange(len(choices))]
