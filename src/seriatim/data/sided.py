"""Words that tell left from right: a picture whose caption says one of them must not be mirrored.

Whoever says "rechts" of a picture says the contrary of its mirror image. The table holds the words of widespread
languages as they are written, since a caption does not say its language. A word that means something else as well
("right", "droit", "recht") counts: a picture too few is mirrored, but none wrongly.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np

WHOLE = """
left right lefthand righthand leftmost rightmost leftward leftwards rightward rightwards lefty righty starboard
clockwise anticlockwise counterclockwise
gauche gauches droite droites droit droits bâbord tribord
izquierda izquierdas izquierdo izquierdos derecha derechas derecho derechos zurda zurdo zurdos diestra diestro
sinistra sinistre sinistro sinistri destra destre destro destri
esquerda esquerdas esquerdo esquerdos direita direitas direito direitos dreta dretes dret drets esquerra esquerres
esquerre
stânga stâng drept dreapta
links rechts linkshandig rechtshandig
vänster höger venstre høyre højre vinstri hægri vasen vasemmalla vasemmalle oikea oikealla oikealle
lewo lewa lewy lewej lewą lewym lewego prawo prawa prawy prawej prawą prawym prawego
vlevo levo levá levý levé vpravo pravo pravá pravý pravé vľavo
lijevo lijevi lijeva lijevoj desno desni desna desnoj
слева влево левый левая левое левой левую левого левом левым справа вправо правый правая правое правой правую правого
правом правым ліворуч зліва лівий ліва праворуч справа правий права
sol sola solda solunda soldaki sağ sağa sağda sağında sağdaki
kiri kanan trái phải bal balra jobb jobbra
αριστερά δεξιά يسار يمين اليسار اليمين שמאל ימין שמאלה ימינה
linke linkem linken linker linkes rechte rechtem rechten rechter rechtes uhrzeigersinn gegenuhrzeigersinn
"""
STEMS = ("links", "rechts")  # German and Dutch join: linksherum, rechtshändig; but "rechteckig" is another word
# Of scripts without blanks between words, and of those whose signs a word is not easily told by.
ANYWHERE = ("左", "右", "왼쪽", "오른쪽", "좌측", "우측", "ซ้าย", "ขวา", "बाएँ", "बाएं", "बायाँ", "दाएँ", "दाएं", "दायाँ")

_WORDS = frozenset(WHOLE.split())
_WORD = re.compile(r"[^\W_]+")
_ASCII = "".join(chr(code) if chr(code).isalnum() else " " for code in range(128))  # the same, and much faster


def sided(text: str) -> bool:
    """Whether a caption tells left from right, in any of the languages of the table."""
    plain = text.isascii()
    text = text.lower() if plain else unicodedata.normalize("NFC", text).lower()
    words = text.translate(_ASCII).split() if plain else _WORD.findall(text)
    if not _WORDS.isdisjoint(words) or any(stem in text and _begins(words, stem) for stem in STEMS):
        return True
    return not plain and any(sign in text for sign in ANYWHERE)


def _begins(words: list[str], stem: str) -> bool:
    return any(word.startswith(stem) for word in words)


def unsided(texts: Sequence[str]) -> np.ndarray:
    """(n,) Whether each of some captions stays true of the mirrored picture."""
    return np.array([not sided(text) for text in texts], dtype=bool)
