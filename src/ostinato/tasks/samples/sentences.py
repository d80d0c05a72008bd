"""Generator of sentences: people, places, subjects, and words that belong together."""

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
ENGLISH_GERMAN = {  # words of one gender and number, so that a sentence can be assembled word by word
    "man": "Mann", "dog": "Hund", "teacher": "Lehrer", "king": "König", "cook": "Koch", "baker": "Bäcker",
    "doctor": "Arzt", "friend": "Freund", "son": "Sohn", "father": "Vater", "brother": "Bruder", "uncle": "Onkel",
}  # fmt: skip

ADJECTIVES = {"old": "alt", "young": "jung", "good": "gut", "small": "klein", "rich": "reich", "quiet": "still"}
VERBS = {"sees": "sieht", "knows": "kennt", "greets": "grüßt", "hears": "hört", "asks": "fragt", "finds": "findet"}
TIMES = {"today": "heute", "often": "oft", "soon": "bald", "again": "wieder"}
DEEDS = ("won a race", "lost a bet", "wrote a book", "bought a boat", "built a house", "sold a painting",
         "found a coin", "broke a record")  # fmt: skip


def create_random(seed: int) -> random.Random:
    """Return random numbers that are the same on every machine and in every version of Python since 3.2."""
    return random.Random(seed)


def build_sentence(subject: str, numbers: random.Random) -> str:
    """Return a sentence with words of one subject among words that fit any subject.

    >>> build_sentence("music", create_random(1))
    'Paul in Oslo wrote about the melody and the choir yesterday.'
    """
    first, second = pick(SUBJECTS[subject], numbers), pick(SUBJECTS[subject], numbers)
    verb = pick(("talked about", "thought of", "wrote about", "remembered"), numbers)
    when = pick(("yesterday", "today", "this evening", "on Monday", "last week"), numbers)
    return f"{pick(PEOPLE, numbers)} in {pick(PLACES, numbers)} {verb} the {first} and the {second} {when}."


def pick(choices: Sequence[str], numbers: random.Random) -> str:
    """Return one of the choices."""
    return choices[numbers.randrange(len(choices))]


def build_translation_pair(numbers: random.Random) -> tuple[str, str]:
    """Return a sentence in both languages. German inflects adjectives by case, and puts the verb before the subject.

    >>> build_translation_pair(create_random(1))
    ('often the rich dog greets the old friend', 'oft grüßt der reiche Hund den alten Freund')
    """
    time, quality, who, verb, other_quality, whom = (
        pick(tuple(words), numbers) for words in (TIMES, ADJECTIVES, ENGLISH_GERMAN, VERBS, ADJECTIVES, ENGLISH_GERMAN)
    )
    return (
        f"{time} the {quality} {who} {verb} the {other_quality} {whom}",
        f"{TIMES[time]} {VERBS[verb]} der {ADJECTIVES[quality]}e {ENGLISH_GERMAN[who]} "
        f"den {ADJECTIVES[other_quality]}en {ENGLISH_GERMAN[whom]}",
    )


def build_report_and_summary(numbers: random.Random) -> tuple[str, str]:
    """Return three sentences, one of which reports a person's action, and that action as the summary.

    >>> text, summary = build_report_and_summary(create_random(1))
    >>> text
    'In Dresden they talk about the opera. In Oslo they talk about the opera. In Mainz Emil lost a bet.'
    >>> summary
    'Emil lost a bet'
    """
    who, deed = pick(PEOPLE, numbers), pick(DEEDS, numbers)
    subject = pick(tuple(SUBJECTS), numbers)
    filler = [f"In {pick(PLACES, numbers)} they talk about the {pick(SUBJECTS[subject], numbers)}" for _ in range(2)]
    filler.insert(numbers.randrange(3), f"In {pick(PLACES, numbers)} {who} {deed}")
    return ". ".join(filler) + ".", f"{who} {deed}"
