"""Dates, numbers, times and things in English and French: pairs made from a seed, with correct grammar.

The word order differs, so that the alignment can be seen: "Paul's three black cats" are "les trois chats noirs de
Paul", "ten to five" is "cinq heures moins dix", and a date that begins the English sentence ends the French one. Every
English text has one French translation here. Numbers are those of `numerals.py`.
"""

from __future__ import annotations

import random

from . import _phrases as say
from ._phrases import DAYS, MONTHS, PEOPLE, Draw, Pair, capital, number, pick
from .numerals import english, english_ordinal, french, french_ordinal

SUBJECTS = (  # English, French, and "have" as it is said and as it is denied
    ("I", "j'ai", "je n'ai pas"),
    ("she", "elle a", "elle n'a pas"),
    ("we", "nous avons", "nous n'avons pas"),
    ("they", "ils ont", "ils n'ont pas"),
    ("my sister", "ma sœur a", "ma sœur n'a pas"),
    ("the farmer", "le fermier a", "le fermier n'a pas"),
    ("the children", "les enfants ont", "les enfants n'ont pas"),
)
VERBS = (
    ("bought", "buy", "acheté"),
    ("sold", "sell", "vendu"),
    ("saw", "see", "vu"),
    ("found", "find", "trouvé"),
    ("drew", "draw", "dessiné"),
    ("lost", "lose", "perdu"),
)
ORDERED = (("chapter", "chapitre", False), ("day", "jour", False), ("letter", "lettre", True), ("door", "porte", True))
EVENTS = (
    ("the train leaves", "le train part"),
    ("the concert begins", "le concert commence"),
    ("the museum opens", "le musée ouvre"),
    ("the plane arrives", "l'avion arrive"),
)


def dates(pairs: int = 20_000, seed: int = 1) -> str:
    """A line for each pair, English and French with a tab between them; 3 to 15 words on either side."""
    draw = random.Random(seed).random
    made: dict[str, str] = {}
    while len(made) < pairs:
        source, target = pick(draw, FORMS)(draw)
        if all(3 <= len(side.split()) <= 15 for side in (source, target)):
            made[source] = target
    return "".join(f"{source}\t{target}\n" for source, target in made.items())


def _date(draw: Draw) -> Pair:
    return say.nth_weekday(draw) if draw() < 0.3 else say.date(draw)


def _span(draw: Draw) -> Pair:
    """from the first to the eighth of May, du premier au huit mai."""
    first = number(draw, 1, 27)
    last = number(draw, first + 1, 28)
    month, mois = pick(draw, MONTHS)
    begins = "premier" if first == 1 else french(first)
    words = f"from the {english_ordinal(first)} to the {english_ordinal(last)} of {month}"
    return words, f"du {begins} au {french(last)} {mois}"


def _time(draw: Draw) -> Pair:
    words, mots = say.time(draw)
    if draw() < 0.4:
        return f"It is {words}.", f"Il est {mots}."
    (event, événement), (weekday, jour) = pick(draw, EVENTS), pick(draw, DAYS)
    return f"{capital(event)} at {words} on {weekday}.", f"{capital(événement)} {jour} à {mots}."


def _things(draw: Draw) -> Pair:
    form = pick(draw, (_count, say.definite, say.owned))
    return form(draw, draw() < 0.5)


def _count(draw: Draw, many: bool) -> Pair:
    return say.counted(draw, number(draw, 21, 999) if many else number(draw, 1, 100))


def _done(draw: Draw) -> Pair:
    """A date at one end of the English sentence is at the other end of the French one."""
    subject, has, has_not = pick(draw, SUBJECTS)
    past, base, participle = pick(draw, VERBS)
    if draw() < 0.3:
        thing, chose = pick(draw, (say.definite, say.owned))(draw, draw() < 0.5)
        said, dit = f"{subject} did not {base} {thing}", f"{has_not} {participle} {chose}"
    else:
        thing, chose = _count(draw, False) if draw() < 0.6 else say.definite(draw, draw() < 0.5)
        said, dit = f"{subject} {past} {thing}", f"{has} {participle} {chose}"
    if draw() < 0.3:
        return f"{capital(said)}.", f"{capital(dit)}."
    when, quand = say.date(draw)
    if draw() < 0.5:
        return f"On {when}, {said}.", f"{capital(dit)} {quand}."
    return f"{capital(said)} on {when}.", f"{capital(quand)}, {dit}."


def _price(draw: Draw) -> Pair:
    amount = number(draw, 2, 999) if draw() < 0.6 else 100 * number(draw, 10, 99)
    many = draw() < 0.4
    thing, chose = pick(draw, (say.definite, say.owned))(draw, many)
    costs, coûte = ("cost", "coûtent") if many else ("costs", "coûte")
    return f"{capital(thing)} {costs} {english(amount)} euros.", f"{capital(chose)} {coûte} {french(amount)} euros."


def _person(draw: Draw) -> Pair:
    who = pick(draw, PEOPLE)
    if draw() < 0.4:
        age = number(draw, 2, 100)
        return f"{capital(who.english)} is {english(age)} years old.", f"{capital(who.french)} a {french(age)} ans."
    when, quand = say.date(draw)
    born = "née" if who.feminine else "né"
    return f"{capital(who.english)} was born on {when}.", f"{capital(who.french)} est {born} {quand}."


def _town(draw: Draw) -> Pair:
    people = 100 * number(draw, 5, 999) if draw() < 0.5 else 1000 * number(draw, 2, 999)
    return f"The town has {english(people)} inhabitants.", f"La ville compte {french(people)} habitants."


def _ordered(draw: Draw) -> Pair:
    """the twenty-first day of May, le vingt et unième jour de mai."""
    word, mot, feminine = pick(draw, ORDERED)
    nth = number(draw, 1, 31 if word == "day" else 100)
    ordinal, rang = english_ordinal(nth), french_ordinal(nth, feminine)
    if word == "day":
        month, mois = pick(draw, MONTHS)
        return f"the {ordinal} day of {month}", f"le {rang} jour {say.elided('de', mois)}"
    owner = pick(draw, PEOPLE)
    return f"{owner.english}'s {ordinal} {word}", f"{'la' if feminine else 'le'} {rang} {mot} {owner.of}"


FORMS = (_date, _date, _span, _time, _things, _things, _done, _done, _done, _price, _person, _town, _ordered)
