"""Text for people: numbers, durations, amounts, plurals and lists."""

from __future__ import annotations

import re

# Scripts without spaces between words (Thai, Burmese, Khmer, Japanese, Chinese): a word may be next to other letters.
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]")
