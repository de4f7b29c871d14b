"""The templates beside this module, and how values get into them. No I/O; runs on the driver.

Every value is escaped, and what cannot be seen is spelled out: names come from clusters, and may be
markup or turn the text around them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from heliograph import __version__
from heliograph.api.page import drawing, words
from heliograph.drill.report import visible

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types heliograph"
)
"""Nothing that stands in the page itself runs, and nothing comes from elsewhere."""
FILES: Final = {"page.css": "text/css", "page.js": "text/javascript"}
_PACKAGE: Final = "heliograph.api.page"


def rendered(template: str, **values: object) -> str:
    """May be called on a thread."""
    return environment().get_template(template).render(**values)


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader(_PACKAGE, "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    spoken: tuple[Callable[..., str], ...] = (
        words.count,
        words.rate,
        words.size,
        words.seconds,
        words.utc,
        words.clock,
        words.iso,
    )
    made.filters |= {each.__name__: each for each in spoken} | {"told": told}
    made.globals |= {"version": __version__, "drawn": drawing}
    return made


@cache
def file_bytes(name: str) -> bytes:
    """One of `FILES`."""
    return files(_PACKAGE).joinpath(name).read_bytes()


def told(sentence: str) -> Markup:
    """A sentence of the mirror, with what stands in backquotes as code."""
    parts = visible(sentence).split("`")
    if len(parts) % 2 == 0:  # a quote in a name
        return escape("`".join(parts))
    return Markup().join(
        Markup("<code>{}</code>").format(part) if number % 2 else part
        for number, part in enumerate(parts)
    )


def _shown(value: object) -> object:
    """Applied to every value of the page; what a macro made is markup already."""
    return value if isinstance(value, Markup) else visible(str(value))
