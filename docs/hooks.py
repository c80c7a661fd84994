"""Hooks of the build of the site.

Images for light and dark themes: where docs/images holds x.svg and x.dark.svg, a page that shows the first shows both,
and the theme hides the one whose address ends in the name of the other theme.

Links to lines of code, which are not part of the site, become plain text: `name` (src/seriatim/x.py:12).

External resources: a page that would make a browser fetch something from another host is an error.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

# Scripts, styles, images and fonts by their address; links that a reader may follow are allowed.
EXTERNAL = r"""["']?(?:https?:)?//"""
FETCHED = re.compile(
    rf"<(?:script|img|iframe)\b[^>]*\bsrc={EXTERNAL}|<link\b[^>]*\bhref={EXTERNAL}|(?:url\(|@import ){EXTERNAL}"
)
IMAGE = re.compile(r'<img ([^>]*)src="([^"]*images/)([\w-]+)\.svg"([^>]*)>')
CODE_LINK = re.compile(r"\[(`[^`]+`)\]\((?:\.\./)+((?:src|tests)/[^)#]+)(?:#L(\d+))?\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Returns the page with links to code as text."""
    return CODE_LINK.sub(lambda match: f"{match[1]} ({match[2]}{':' + match[3] if match[3] else ''})", markdown)


def on_page_content(html: str, *, config: Any, **_: Any) -> str:
    """Returns the page with a second image for the dark theme behind each image that has one."""
    folder = Path(config["docs_dir"]) / "images"

    def add_dark(match: re.Match[str]) -> str:
        before, path, name, after = match.groups()
        if not (folder / f"{name}.dark.svg").is_file():
            return match[0]
        light, dark = f"{path}{name}.svg#only-light", f"{path}{name}.dark.svg#only-dark"
        return f'<img {before}src="{light}"{after}><img {before}src="{dark}"{after}>'

    return IMAGE.sub(add_dark, html)


def on_post_build(*, config: Any, **_: Any) -> None:
    """Raises an error if a page or style sheet fetches something from another host."""
    files = [path for pattern in ("*.html", "*.css") for path in sorted(Path(config["site_dir"]).rglob(pattern))]
    matches = {path.name: match[0] for path in files if (match := FETCHED.search(path.read_text(encoding="utf-8")))}
    if matches:
        raise PluginError(f"external resources: {matches}")
