"""Pairs of English and French: dates, numbers, times and things, made from a seed with correct grammar.

Gender, number, elision and word order are right, and word order differs, so that alignments show it: "Paul's three
black cats" are "les trois chats noirs de Paul", "ten to five" is "cinq heures moins dix", and a date that begins the
English sentence ends the French one. Every English text has one French translation. Numbers in words go
from 0 to 999,999. English is British: "two hundred and one". French is in the traditional spelling of the Académie:
hyphens below a hundred without "et" (vingt et un, vingt-deux, soixante et onze, quatre-vingt-un), blanks elsewhere; the
reform of 1990 has hyphens everywhere (vingt-et-un, deux-cents).
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from ...data.catalogue.generated import Splits
from .sequences import SEED

Draw = Callable[[], float]
Pair = tuple[str, str]  # English, French
T = TypeVar("T")


# Numbers in words

# fmt: off
ENGLISH = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)
ENGLISH_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
FRENCH = (
    "zéro", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix", "onze", "douze", "treize",
    "quatorze", "quinze", "seize", "dix-sept", "dix-huit", "dix-neuf",
)
FRENCH_TENS = (
    "", "", "vingt", "trente", "quarante", "cinquante", "soixante", "soixante", "quatre-vingt", "quatre-vingt",
)
IRREGULAR = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth",
}
# fmt: on


def english(number: int) -> str:
    """281 → two hundred and eighty-one."""
    if number < 20:
        return ENGLISH[number]
    if number < 100:
        tens, unit = divmod(number, 10)
        return ENGLISH_TENS[tens] + (f"-{ENGLISH[unit]}" if unit else "")
    if number < 1000:
        hundreds, rest = divmod(number, 100)
        return f"{ENGLISH[hundreds]} hundred" + (f" and {english(rest)}" if rest else "")
    thousands, rest = divmod(number, 1000)
    joint = " and " if 0 < rest < 100 else " "
    return f"{english(thousands)} thousand" + (f"{joint}{english(rest)}" if rest else "")


def french(number: int, feminine: bool = False, rank: bool = False) -> str:
    """281 → deux cent quatre-vingt-un, or une with a feminine noun.

    Cent and vingt have a plural s if they are multiplied and end the number, except before mille and in a `rank`, such
    as that of a year.
    """
    if number < 100:
        return _below_hundred(number, feminine, plural=not rank)
    if number < 1000:
        hundreds, rest = divmod(number, 100)
        many = "" if hundreds == 1 else f"{FRENCH[hundreds]} "
        if not rest:
            return f"{many}cent" + ("s" if many and not rank else "")
        return f"{many}cent {french(rest, feminine, rank)}"
    thousands, rest = divmod(number, 1000)
    many = "" if thousands == 1 else f"{french(thousands, rank=True)} "  # rank: no s before mille
    return f"{many}mille" + (f" {french(rest, feminine, rank)}" if rest else "")


def _below_hundred(number: int, feminine: bool, plural: bool) -> str:
    if number < 20:
        return "une" if number == 1 and feminine else FRENCH[number]
    tens = number // 10
    rest = number - 10 * (tens - tens % 2 if tens >= 6 else tens)  # after 60 and 80, counting goes on to 19
    word = FRENCH_TENS[tens]
    if rest == 0:
        return f"{word}s" if number == 80 and plural else word
    unit = "une" if rest == 1 and feminine else FRENCH[rest]
    return f"{word} et {unit}" if rest in (1, 11) and tens < 8 else f"{word}-{unit}"


def english_ordinal(number: int) -> str:
    """21 → twenty-first."""
    words = english(number)
    cut = max(words.rfind("-"), words.rfind(" ")) + 1
    last = words[cut:]
    if last in IRREGULAR:
        return words[:cut] + IRREGULAR[last]
    return words[:cut] + (f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th")


def french_ordinal(number: int, feminine: bool = False) -> str:
    """21 → vingt et unième; 1 → premier or première."""
    if number == 1:
        return "première" if feminine else "premier"
    words = french(number, rank=True)
    if words.endswith("cinq"):
        return f"{words}uième"
    if words.endswith("neuf"):
        return f"{words[:-1]}vième"
    return f"{words.removesuffix('e')}ième"


def digits_ordinal(number: int) -> str:
    """21 → 21st."""
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def english_year(year: int) -> str:
    """1987 → nineteen eighty-seven; 1905 → nineteen oh five; 2004 → two thousand and four."""
    century, rest = divmod(year, 100)
    if century % 10 == 0 and rest < 10:
        return english(year)
    if rest == 0:
        return f"{english(century)} hundred"
    return f"{english(century)} {'oh ' if rest < 10 else ''}{english(rest)}"


# Words


class Noun(NamedTuple):
    english: str
    english_plural: str
    french: str
    french_plural: str
    feminine: bool
    animal: bool = False


class Adjective(NamedTuple):
    english: str
    forms: tuple[str, str, str, str]  # masculine, feminine, and the same in the plural
    before_vowel: str = ""  # the masculine form before a vowel, if it differs
    animal: bool = True

    def agree(self, feminine: bool, plural: bool, following: str) -> str:
        """Returns the French form before the word `following`."""
        if self.before_vowel and not feminine and not plural and begins_with_vowel(following):
            return self.before_vowel
        return self.forms[feminine + 2 * plural]


class Person(NamedTuple):
    english: str
    french: str
    feminine: bool
    of: str  # "de" and the person: du voisin, d'Anne


WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
WEEKDAYS_FR = "lundi mardi mercredi jeudi vendredi samedi dimanche"
DAYS = list(zip(WEEKDAYS.split(), WEEKDAYS_FR.split(), strict=True))
CALENDAR = "January February March April May June July August September October November December"
CALENDAR_FR = "janvier février mars avril mai juin juillet août septembre octobre novembre décembre"
MONTHS = list(zip(CALENDAR.split(), CALENDAR_FR.split(), strict=True))
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
BEFORE_NOUN = (  # in French, too
    Adjective("small", ("petit", "petite", "petits", "petites")),
    Adjective("big", ("grand", "grande", "grands", "grandes")),
    Adjective("old", ("vieux", "vieille", "vieux", "vieilles"), "vieil"),
    Adjective("beautiful", ("beau", "belle", "beaux", "belles"), "bel"),
    Adjective("new", ("nouveau", "nouvelle", "nouveaux", "nouvelles"), "nouvel", animal=False),
)
AFTER_NOUN = (
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
MINUTES = {  # English and French; after the half, minutes are counted to the next hour
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
PARTS_OF_DAY = (  # with the first and last hour
    ("morning", "du matin", 1, 11),
    ("afternoon", "de l'après-midi", 1, 5),
    ("evening", "du soir", 6, 11),
)
SUBJECTS = (  # English, French with "have", and with its negation
    ("I", "j'ai", "je n'ai pas"),
    ("she", "elle a", "elle n'a pas"),
    ("we", "nous avons", "nous n'avons pas"),
    ("they", "ils ont", "ils n'ont pas"),
    ("my sister", "ma sœur a", "ma sœur n'a pas"),
    ("the farmer", "le fermier a", "le fermier n'a pas"),
    ("the children", "les enfants ont", "les enfants n'ont pas"),
)
VERBS = (  # past, infinitive, French participle
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


def date_pairs(count: int = 20_000, seed: int = SEED) -> Splits:
    """Returns pairs with the columns "source" (English) and "target" (French), each of 3 to 15 words; one split."""
    draw = random.Random(seed).random
    pairs: dict[str, str] = {}
    while len(pairs) < count:
        source, target = pick(draw, FORMS)(draw)
        if all(3 <= len(text.split()) <= 15 for text in (source, target)):
            pairs[source] = target
    return {"train": {"source": list(pairs), "target": list(pairs.values())}}


def pick(draw: Draw, choices: Sequence[T]) -> T:
    return choices[int(draw() * len(choices))]


def number(draw: Draw, least: int, most: int) -> int:
    return least + int(draw() * (most - least + 1))


def begins_with_vowel(word: str) -> bool:
    return word[0] in "aeiouâàéèêîôœ"


def elide(article: str, following: str) -> str:
    """le arbre → l'arbre; de avril → d'avril."""
    return f"{article[:-1]}'{following}" if begins_with_vowel(following) else f"{article} {following}"


def capitalize(text: str) -> str:
    return text[0].upper() + text[1:]


def noun_phrase(draw: Draw, noun: Noun, plural: bool) -> Pair:
    """A noun with none to two adjectives: small white cats, petits chats blancs."""
    name, name_fr = (noun.english_plural, noun.french_plural) if plural else (noun.english, noun.french)
    before = [adjective for adjective in BEFORE_NOUN if adjective.animal or not noun.animal]
    after = [adjective for adjective in AFTER_NOUN if adjective.animal or not noun.animal]
    first = pick(draw, before) if draw() < 0.45 else None
    second = pick(draw, after) if draw() < 0.7 else None
    words = [adjective.english for adjective in (first, second) if adjective is not None]
    words_fr = [name_fr]
    if second is not None:
        words_fr.append(second.agree(noun.feminine, plural, ""))
    if first is not None:
        words_fr.insert(0, first.agree(noun.feminine, plural, name_fr))
    return " ".join([*words, name]), " ".join(words_fr)


def counted_things(draw: Draw, many: bool) -> Pair:
    """twenty-one black horses, vingt et un chevaux noirs."""
    count = number(draw, 21, 999) if many else number(draw, 1, 100)
    noun = pick(draw, NOUNS)
    words, words_fr = noun_phrase(draw, noun, count > 1)
    return f"{english(count)} {words}", f"{french(count, noun.feminine)} {words_fr}"


def definite_things(draw: Draw, plural: bool) -> Pair:
    """the red house, la maison rouge; the three old cats, les trois vieux chats."""
    noun = pick(draw, NOUNS)
    words, words_fr = noun_phrase(draw, noun, plural)
    if not plural:
        return f"the {words}", elide("la" if noun.feminine else "le", words_fr)
    count = number(draw, 2, 20) if draw() < 0.5 else 0
    if not count:
        return f"the {words}", f"les {words_fr}"
    return f"the {english(count)} {words}", f"les {french(count)} {words_fr}"


def possessed_things(draw: Draw, plural: bool) -> Pair:
    """my sister's red house, la maison rouge de ma sœur."""
    owner = pick(draw, PEOPLE)
    words, words_fr = definite_things(draw, plural)
    return f"{owner.english}'s {words.removeprefix('the ')}", f"{words_fr} {owner.of}"


def things(draw: Draw) -> Pair:
    form = pick(draw, (counted_things, definite_things, possessed_things))
    return form(draw, draw() < 0.5)


def calendar_date(draw: Draw) -> Pair:
    """A day of the calendar, in one of six forms, with "le" in French."""
    day = datetime.date(1700, 1, 1) + datetime.timedelta(days=number(draw, 0, 120_000))
    month, month_fr = MONTHS[day.month - 1]
    weekday, weekday_fr = DAYS[day.weekday()]
    nth, nth_fr = digits_ordinal(day.day), "1er" if day.day == 1 else str(day.day)
    words, words_fr = english_ordinal(day.day), "premier" if day.day == 1 else french(day.day)
    year, year_fr = english_year(day.year), french(day.year, rank=True)
    return pick(
        draw,
        (
            (f"{month} {nth}", f"le {nth_fr} {month_fr}"),
            (f"{month} {nth}, {day.year}", f"le {nth_fr} {month_fr} {day.year}"),
            (f"{weekday}, {month} {nth}, {day.year}", f"le {weekday_fr} {nth_fr} {month_fr} {day.year}"),
            (f"the {words} of {month}", f"le {words_fr} {month_fr}"),
            (f"{weekday} the {words} of {month}", f"le {weekday_fr} {words_fr} {month_fr}"),
            (f"the {words} of {month}, {year}", f"le {words_fr} {month_fr} {year_fr}"),
        ),
    )


def nth_weekday(draw: Draw) -> Pair:
    """the first Monday of April 1999, le premier lundi d'avril 1999."""
    nth = number(draw, 1, 5)
    words, words_fr = ("last", "dernier") if nth == 5 else (english_ordinal(nth), french_ordinal(nth))
    weekday, weekday_fr = pick(draw, DAYS)
    month, month_fr = pick(draw, MONTHS)
    year = number(draw, 1900, 2029)
    return f"the {words} {weekday} of {month} {year}", f"le {words_fr} {weekday_fr} {elide('de', month_fr)} {year}"


def any_date(draw: Draw) -> Pair:
    return nth_weekday(draw) if draw() < 0.3 else calendar_date(draw)


def date_range(draw: Draw) -> Pair:
    """from the first to the eighth of May, du premier au huit mai."""
    first = number(draw, 1, 27)
    last = number(draw, first + 1, 28)
    month, month_fr = pick(draw, MONTHS)
    first_fr = "premier" if first == 1 else french(first)
    words = f"from the {english_ordinal(first)} to the {english_ordinal(last)} of {month}"
    return words, f"du {first_fr} au {french(last)} {month_fr}"


def time_of_day(draw: Draw) -> Pair:
    """ten to five in the afternoon, cinq heures moins dix de l'après-midi; in a sentence."""
    words, words_fr = MINUTES[pick(draw, list(MINUTES))]
    part, part_fr, first, last = pick(draw, PARTS_OF_DAY)
    hour = number(draw, first, last)
    hour_fr = f"{french(hour, feminine=True)} heure{'s' if hour > 1 else ''}"
    time, time_fr = f"{words.format(english(hour))} in the {part}", f"{words_fr.format(hour_fr)} {part_fr}"
    if draw() < 0.4:
        return f"It is {time}.", f"Il est {time_fr}."
    event, event_fr = pick(draw, EVENTS)
    weekday, weekday_fr = pick(draw, DAYS)
    return f"{capitalize(event)} at {time} on {weekday}.", f"{capitalize(event_fr)} {weekday_fr} à {time_fr}."


def past_action(draw: Draw) -> Pair:
    """She bought two cats. A date at one end of the English sentence is at the other end of the French one."""
    subject, has_fr, has_not_fr = pick(draw, SUBJECTS)
    past, infinitive, participle = pick(draw, VERBS)
    if draw() < 0.3:
        thing, thing_fr = pick(draw, (definite_things, possessed_things))(draw, draw() < 0.5)
        clause, clause_fr = f"{subject} did not {infinitive} {thing}", f"{has_not_fr} {participle} {thing_fr}"
    else:
        thing, thing_fr = counted_things(draw, False) if draw() < 0.6 else definite_things(draw, draw() < 0.5)
        clause, clause_fr = f"{subject} {past} {thing}", f"{has_fr} {participle} {thing_fr}"
    if draw() < 0.3:
        return f"{capitalize(clause)}.", f"{capitalize(clause_fr)}."
    date, date_fr = calendar_date(draw)
    if draw() < 0.5:
        return f"On {date}, {clause}.", f"{capitalize(clause_fr)} {date_fr}."
    return f"{capitalize(clause)} on {date}.", f"{capitalize(date_fr)}, {clause_fr}."


def price(draw: Draw) -> Pair:
    amount = number(draw, 2, 999) if draw() < 0.6 else 100 * number(draw, 10, 99)
    plural = draw() < 0.4
    thing, thing_fr = pick(draw, (definite_things, possessed_things))(draw, plural)
    verb, verb_fr = ("cost", "coûtent") if plural else ("costs", "coûte")
    text = f"{capitalize(thing)} {verb} {english(amount)} euros."
    return text, f"{capitalize(thing_fr)} {verb_fr} {french(amount)} euros."


def age_or_birth(draw: Draw) -> Pair:
    person = pick(draw, PEOPLE)
    name, name_fr = capitalize(person.english), capitalize(person.french)
    if draw() < 0.4:
        age = number(draw, 2, 100)
        return f"{name} is {english(age)} years old.", f"{name_fr} a {french(age)} ans."
    date, date_fr = calendar_date(draw)
    return f"{name} was born on {date}.", f"{name_fr} est {'née' if person.feminine else 'né'} {date_fr}."


def inhabitants(draw: Draw) -> Pair:
    count = 100 * number(draw, 5, 999) if draw() < 0.5 else 1000 * number(draw, 2, 999)
    return f"The town has {english(count)} inhabitants.", f"La ville compte {french(count)} habitants."


def ordinal(draw: Draw) -> Pair:
    """the twenty-first day of May, le vingt et unième jour de mai."""
    word, word_fr, feminine = pick(draw, ORDERED)
    nth = number(draw, 1, 31 if word == "day" else 100)
    rank, rank_fr = english_ordinal(nth), french_ordinal(nth, feminine)
    if word == "day":
        month, month_fr = pick(draw, MONTHS)
        return f"the {rank} day of {month}", f"le {rank_fr} jour {elide('de', month_fr)}"
    owner = pick(draw, PEOPLE)
    return f"{owner.english}'s {rank} {word}", f"{'la' if feminine else 'le'} {rank_fr} {word_fr} {owner.of}"


FORMS: list[Callable[[Draw], Pair]] = [
    *(any_date, any_date, date_range, time_of_day, things, things, past_action, past_action, past_action),
    *(price, age_or_birth, inhabitants, ordinal),
]
