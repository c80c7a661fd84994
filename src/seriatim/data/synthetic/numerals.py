"""Numbers in words, in English and in French, from 0 to 999,999.

English is British: "two hundred and one". French is in the traditional spelling of the Académie: hyphens below a
hundred without "et" (vingt et un, vingt-deux, soixante et onze, quatre-vingt-un), blanks elsewhere. The reform of 1990
has hyphens everywhere (vingt-et-un, deux-cents).
"""

from __future__ import annotations

UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety"
ENGLISH, ENGLISH_TENS = UNITS.split(" "), TENS.split(" ")

UNITS_FR = (
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept dix-huit "
    "dix-neuf"
)
TENS_FR = "- - vingt trente quarante cinquante soixante soixante quatre-vingt quatre-vingt"
FRENCH, FRENCH_TENS = UNITS_FR.split(" "), TENS_FR.split(" ")

IRREGULAR = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}


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


def french_year(year: int) -> str:
    """1980 → mille neuf cent quatre-vingt, without the s of quatre-vingts: a year is a rank."""
    return french(year, rank=True)
