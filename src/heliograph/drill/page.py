"""A drill's report as one HTML page that needs nothing else. No I/O; runs on the driver.

The page is the template beside this module: it can be mailed, archived and printed. Names come from
clusters and are written as text, whatever is in them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.resources import files
from typing import Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from heliograph import __version__
from heliograph.drill.report import DrillReport, seconds_text, visible
from heliograph.model import OffsetRange
from heliograph.words import in_words

_BARS_MAX: Final = 30
"""Topics drawn; a sentence counts the others."""


def page(report: DrillReport) -> str:
    """The whole page, well-formed as XML too."""
    behind = sorted(report.topics, key=lambda topic: (-(topic.lag_records or 0), topic.topic))
    template = _environment().from_string(
        files("heliograph.drill").joinpath("page.html").read_text(encoding="utf-8")
    )
    return template.render(
        report=report,
        options=report.options,
        groups=sorted(report.groups, key=lambda group: (group.is_well, group.group)),
        behind=behind,
        bars_max=_BARS_MAX,
        longest_s=max((step.seconds for step in report.steps), default=0.0),
        most_lag=max((topic.lag_records or 0 for topic in behind), default=0),
        version=__version__,
    )


def _environment() -> Environment:
    made = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_shown, keep_trailing_newline=True
    )
    made.filters |= {
        "allowed": _allowed,
        "bounds": _bounds,
        "count": _count,
        "seconds": seconds_text,
        "share": _share,
        "utc": _utc,
    }
    return made


def _shown(value: object) -> object:
    """Applied to every value of the page; what a macro made is markup already."""
    return value if isinstance(value, Markup) else visible(str(value))


def _allowed(seconds: float | None) -> str:
    return "no limit was set" if seconds is None else f"{in_words(seconds)} are allowed"


def _bounds(offsets: OffsetRange) -> str:
    return f"[{offsets.start}, {offsets.end})"


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _share(value: float, most: float) -> str:
    return f"{0.0 if most <= 0 else max(0.0, min(100.0, 100 * value / most)):.1f}"


def _utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
