"""English phrases and their French: things, people, days and times, with gender, number, elision and word order."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from .numerals import digits_ordinal, english, english_ordinal, english_year, french, french_ordinal, french_year

Draw = Callable[[], float]
Pair = tuple[str, str]
T = TypeVar("T")

WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
JOURS = "lundi mardi mercredi jeudi vendredi samedi dimanche"
DAYS = list(zip(WEEKDAYS.split(" "), JOURS.split(" "), strict=True))
CALENDAR = "January February March April May June July August September October November December"
CALENDRIER = "janvier février mars avril mai juin juillet août septembre octobre novembre décembre"
MONTHS = list(zip(CALENDAR.split(" "), CALENDRIER.split(" "), strict=True))


class Noun(NamedTuple):
    english: str
    english_plural: str
    french: str
    french_plural: str
    feminine: bool
    animal: bool = False


class Adjective(NamedTuple):
    """`vowel` is the masculine form before a vowel, where it is another."""

    english: str
    forms: tuple[str, str, str, str]  # masculine, feminine, and the same in the plural
    vowel: str = ""
    animal: bool = True

    def agreed(self, feminine: bool, plural: bool, following: str) -> str:
        if self.vowel and not feminine and not plural and begins_with_vowel(following):
            return self.vowel
        return self.forms[feminine + 2 * plural]


class Person(NamedTuple):
    english: str
    french: str
    feminine: bool
    of: str  # "de" and the person: du voisin, d'Anne


NOUNS = (
    Noun("horse", "horses", "cheval", "chevaux", False, True),
    Noun("cat", "cats", "chat", "chats", False, True),
    Noun("dog", "dogs", "chien", "chiens", False, True),
    Noun("bird", "birds", "oiseau", "oiseaux", False, True),
    Noun("cow", "cows", "vache", "vaches", True, True),
    Noun("house", "houses", "maison", "maisons", True),
    Noun("car", "cars", "voiture", "voitures", True),
    Noun("book", "books", "livre", "livres", False),
    Noun("tree", "trees", "arbre", "arbres", False),
    Noun("boat", "boats", "bateau", "bateaux", False),
    Noun("chair", "chairs", "chaise", "chaises", True),
    Noun("table", "tables", "table", "tables", True),
    Noun("coat", "coats", "manteau", "manteaux", False),
    Noun("shirt", "shirts", "chemise", "chemises", True),
    Noun("key", "keys", "clé", "clés", True),
    Noun("bag", "bags", "sac", "sacs", False),
    Noun("box", "boxes", "boîte", "boîtes", True),
    Noun("lamp", "lamps", "lampe", "lampes", True),
    Noun("bicycle", "bicycles", "vélo", "vélos", False),
    Noun("island", "islands", "île", "îles", True),
)
BEFORE = (  # the noun in French, too
    Adjective("small", ("petit", "petite", "petits", "petites")),
    Adjective("big", ("grand", "grande", "grands", "grandes")),
    Adjective("old", ("vieux", "vieille", "vieux", "vieilles"), "vieil"),
    Adjective("beautiful", ("beau", "belle", "beaux", "belles"), "bel"),
    Adjective("new", ("nouveau", "nouvelle", "nouveaux", "nouvelles"), "nouvel", animal=False),
)
AFTER = (
    Adjective("red", ("rouge", "rouge", "rouges", "rouges"), animal=False),
    Adjective("green", ("vert", "verte", "verts", "vertes"), animal=False),
    Adjective("blue", ("bleu", "bleue", "bleus", "bleues"), animal=False),
    Adjective("yellow", ("jaune", "jaune", "jaunes", "jaunes"), animal=False),
    Adjective("black", ("noir", "noire", "noirs", "noires")),
    Adjective("white", ("blanc", "blanche", "blancs", "blanches")),
    Adjective("grey", ("gris", "grise", "gris", "grises")),
)
PEOPLE = (
    Person("my sister", "ma sœur", True, "de ma sœur"),
    Person("my brother", "mon frère", False, "de mon frère"),
    Person("our uncle", "notre oncle", False, "de notre oncle"),
    Person("the neighbour", "le voisin", False, "du voisin"),
    Person("the farmer", "le fermier", False, "du fermier"),
    Person("the queen", "la reine", True, "de la reine"),
    Person("Anne", "Anne", True, "d'Anne"),
    Person("Paul", "Paul", False, "de Paul"),
)
HOURS = {  # English and French for some of each five minutes; after the half it is counted to the next hour
    0: ("{} o'clock", "{}"),
    5: ("five past {}", "{} cinq"),
    10: ("ten past {}", "{} dix"),
    15: ("a quarter past {}", "{} et quart"),
    20: ("twenty past {}", "{} vingt"),
    30: ("half past {}", "{} et demie"),
    40: ("twenty to {}", "{} moins vingt"),
    45: ("a quarter to {}", "{} moins le quart"),
    50: ("ten to {}", "{} moins dix"),
    55: ("five to {}", "{} moins cinq"),
}


def pick(draw: Draw, among: Sequence[T]) -> T:
    return among[int(draw() * len(among))]


def number(draw: Draw, least: int, most: int) -> int:
    return least + int(draw() * (most - least + 1))


def begins_with_vowel(word: str) -> bool:
    return word[0] in "aeiouâàéèêîôœ"


def elided(article: str, following: str) -> str:
    """le arbre → l'arbre; de avril → d'avril."""
    return f"{article[:-1]}'{following}" if begins_with_vowel(following) else f"{article} {following}"


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def described(draw: Draw, noun: Noun, plural: bool) -> Pair:
    """A noun with none to two adjectives: small white cats, petits chats blancs."""
    named, french_noun = (noun.english_plural, noun.french_plural) if plural else (noun.english, noun.french)
    before = [one for one in BEFORE if one.animal or not noun.animal]
    after = [one for one in AFTER if one.animal or not noun.animal]
    first = pick(draw, before) if draw() < 0.45 else None
    second = pick(draw, after) if draw() < 0.7 else None
    words = [one.english for one in (first, second) if one is not None]
    french_words = [french_noun]
    if second is not None:
        french_words.append(second.agreed(noun.feminine, plural, ""))
    if first is not None:
        french_words.insert(0, first.agreed(noun.feminine, plural, french_noun))
    return " ".join([*words, named]), " ".join(french_words)


def counted(draw: Draw, count: int) -> Pair:
    """twenty-one black horses, vingt et un chevaux noirs."""
    noun = pick(draw, NOUNS)
    words, french_words = described(draw, noun, count > 1)
    return f"{english(count)} {words}", f"{french(count, noun.feminine)} {french_words}"


def definite(draw: Draw, plural: bool) -> Pair:
    """the red house, la maison rouge; the three old cats, les trois vieux chats."""
    noun = pick(draw, NOUNS)
    words, french_words = described(draw, noun, plural)
    if plural:
        count = number(draw, 2, 20) if draw() < 0.5 else 0
        return (
            f"the {english(count)} {words}" if count else f"the {words}",
            f"les {french(count)} {french_words}" if count else f"les {french_words}",
        )
    return f"the {words}", elided("la" if noun.feminine else "le", french_words)


def owned(draw: Draw, plural: bool) -> Pair:
    """my sister's red house, la maison rouge de ma sœur."""
    owner = pick(draw, PEOPLE)
    words, french_words = definite(draw, plural)
    return f"{owner.english}'s {words.removeprefix('the ')}", f"{french_words} {owner.of}"


def day(draw: Draw) -> datetime.date:
    return datetime.date(1700, 1, 1) + datetime.timedelta(days=number(draw, 0, 120_000))


def date(draw: Draw) -> Pair:
    """A day of the calendar, in one of six ways, with "le" in French."""
    one = day(draw)
    month, mois = MONTHS[one.month - 1]
    weekday, jour = DAYS[one.weekday()]
    nth, nième = digits_ordinal(one.day), "1er" if one.day == 1 else str(one.day)
    words = english_ordinal(one.day)
    mots = "premier" if one.day == 1 else french(one.day)
    return pick(
        draw,
        (
            (f"{month} {nth}", f"le {nième} {mois}"),
            (f"{month} {nth}, {one.year}", f"le {nième} {mois} {one.year}"),
            (f"{weekday}, {month} {nth}, {one.year}", f"le {jour} {nième} {mois} {one.year}"),
            (f"the {words} of {month}", f"le {mots} {mois}"),
            (f"{weekday} the {words} of {month}", f"le {jour} {mots} {mois}"),
            (f"the {words} of {month}, {english_year(one.year)}", f"le {mots} {mois} {french_year(one.year)}"),
        ),
    )


def nth_weekday(draw: Draw) -> Pair:
    """the first Monday of April 1999, le premier lundi d'avril 1999."""
    nth = number(draw, 1, 5)
    words, mots = ("last", "dernier") if nth == 5 else (english_ordinal(nth), french_ordinal(nth))
    (weekday, jour), (month, mois), year = pick(draw, DAYS), pick(draw, MONTHS), number(draw, 1900, 2029)
    return f"the {words} {weekday} of {month} {year}", f"le {mots} {jour} {elided('de', mois)} {year}"


def time(draw: Draw) -> Pair:
    """ten to five in the afternoon, cinq heures moins dix de l'après-midi."""
    words, mots = HOURS[pick(draw, list(HOURS))]
    part, partie, first, last = pick(
        draw,
        (("morning", "du matin", 1, 11), ("afternoon", "de l'après-midi", 1, 5), ("evening", "du soir", 6, 11)),
    )
    hour = number(draw, first, last)
    heures = f"{french(hour, feminine=True)} heure{'s' if hour > 1 else ''}"
    return f"{words.format(english(hour))} in the {part}", f"{mots.format(heures)} {partie}"
