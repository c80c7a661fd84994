"""What is done while the site is built.

Pictures for light and dark: where docs/pictures holds x.svg and x.dark.svg, a page that shows the one shows both, and
the theme hides the one whose address ends in the other ground's name. Pages name only the first, so that they read
well where nothing is built.

Nothing from elsewhere: whatever a browser would fetch from another place is an error.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

# Scripts, styles, images and fonts by their address; links that a reader may follow are no such thing.
ELSEWHERE = r"""["']?(?:https?:)?//"""
FETCHED = re.compile(
    rf"<(?:script|img|iframe)\b[^>]*\bsrc={ELSEWHERE}|<link\b[^>]*\bhref={ELSEWHERE}|(?:url\(|@import ){ELSEWHERE}"
)
PICTURE = re.compile(r'<img ([^>]*)src="([^"]*pictures/)([\w-]+)\.svg"([^>]*)>')


def on_page_content(html: str, *, config: Any, **_: Any) -> str:
    folder = Path(config["docs_dir"]) / "pictures"

    def both(found: re.Match[str]) -> str:
        before, path, name, after = found.groups()
        if not (folder / f"{name}.dark.svg").is_file():
            return found[0]
        light, dark = f"{path}{name}.svg#only-light", f"{path}{name}.dark.svg#only-dark"
        return f'<img {before}src="{light}"{after}><img {before}src="{dark}"{after}>'

    return PICTURE.sub(both, html)


def on_post_build(*, config: Any, **_: Any) -> None:
    pages = [path for ending in ("*.html", "*.css") for path in sorted(Path(config["site_dir"]).rglob(ending))]
    found = {path.name: one[0] for path in pages if (one := FETCHED.search(path.read_text(encoding="utf-8")))}
    if found:
        raise PluginError(f"fetched from elsewhere: {found}")
