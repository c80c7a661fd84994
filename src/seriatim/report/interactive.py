"""A picture as a page that answers to the pointer: with all that it needs, so that it works offline, in the colours of
the reader's ground."""

from __future__ import annotations

import html
import json
from typing import Any

MANY = 8_000  # rows from which on the picture is painted instead of built from elements: those would be slow

# In the page: braces of the script are doubled for `format`.
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
body {{ margin: 12px; background: {ground[0]}; color: {ink[0]}; overflow-x: auto; }}
@media screen and (prefers-color-scheme: dark) {{ body {{ background: {ground[1]}; color: {ink[1]}; }} }}
#vg-tooltip-element.vg-tooltip td.value {{ max-width: 60ch; white-space: pre-wrap; unicode-bidi: isolate; }}
</style>
<script>{library}</script>
</head>
<body>
<main id="picture"></main>
<noscript>This picture answers to the pointer and needs JavaScript; save it as .svg or .png to do without.</noscript>
<script>
const spec = {spec};
const pairs = {pairs};
const dark = matchMedia("(prefers-color-scheme: dark)");
function draw(night) {{
  const turned = (key, value) => (night && typeof value === "string" && pairs[value]) || value;
  const options = {{
    renderer: "{renderer}",
    tooltip: {{ theme: night ? "dark" : "light" }},
    actions: {{ export: true, source: false, compiled: false, editor: false }},
  }};
  vegaEmbed("#picture", {{ ...JSON.parse(JSON.stringify(spec, turned)) }}, options).catch(console.error);
}}
dark.addEventListener("change", () => draw(dark.matches));
addEventListener("beforeprint", () => draw(false));
addEventListener("afterprint", () => draw(dark.matches));
draw(dark.matches);
</script>
</body>
</html>
"""


def interactive(spec: dict[str, Any], pairs: dict[str, str], ground: tuple[str, str], ink: tuple[str, str]) -> str:
    """`pairs` are the light colours with those that take their place on a dark ground."""
    import vl_convert

    bundle: Any = vl_convert.javascript_bundle  # without a snippet of one's own it is made once and kept
    rows = sum(len(values) for values in spec.get("datasets", {}).values())
    return PAGE.format(
        title=html.escape(_title(spec) or "Picture"),
        ground=ground,
        ink=ink,
        library=bundle().replace("</script", "<\\/script"),
        spec=_inside(spec),
        pairs=_inside(pairs),
        renderer="canvas" if rows > MANY else "svg",
    )


def _inside(value: Any) -> str:
    """JSON that may stand in a script."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def _title(spec: Any) -> str:
    """The first there is."""
    if isinstance(spec, list):
        return next((found for part in spec if (found := _title(part))), "")
    if not isinstance(spec, dict):
        return ""
    own = spec.get("title")
    if isinstance(own, dict) and isinstance(own.get("text"), str):
        return str(own["text"])
    return next((found for part in ("vconcat", "hconcat", "layer") if (found := _title(spec.get(part)))), "")
