"""What follows from a load test, as a file to review and as pictures. No I/O; runs anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final
from xml.sax.saxutils import escape

from heliograph.config.schema import MirrorConfig
from heliograph.tune.command import TuneReport
from heliograph.tune.knee import Step
from heliograph.words import counted, rate_words

FIRST_WORDS: Final = "# heliograph tune"
_LITTLE: Final = 2.0
_BAR_CHARS: Final = 40
_WIDTH, _HEIGHT, _MARGIN = 640, 360, 56


def time_words(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def sentences(report: TuneReport) -> Iterator[str]:
    """What was found, worst news included."""
    knee, peak = report.knee, report.peak
    if knee is not None:
        if len(report.steps) == 1:
            yield f"tried with {counted(knee.slots, 'slot')} only: whether more help is not known"
        elif knee.is_open:
            yield f"more than {counted(knee.slots, 'slot')} may help: the last step still did"
        else:
            verb = "does" if knee.slots == 1 else "do"
            yield f"more than {counted(knee.slots, 'slot')} {verb} not help"
    if peak is not None:
        yield (
            f"the busiest of the last {_hours(peak.hours)} began at "
            f"{time_words(peak.at_ms)}: {rate_words(peak.bytes_per_s)} "
            f"({peak.records_per_s:,.0f} records/s), on the average "
            f"{rate_words(peak.mean_bytes_per_s)}"
        )
    if report.headroom is not None:
        little = ", which is little: catching up after an outage takes long"
        yield (
            f"head-room at the peak: {report.headroom:.1f} times as much could be copied"
            f"{little if report.headroom < _LITTLE else ''}"
        )
        if report.catch_up_s is not None:
            took = _rounded(report.catch_up_s)
            yield f"an hour without a mirror at the peak is made up for in {took}"
        else:
            yield "at the peak the flow would fall behind for good"


def _hours(count: int) -> str:
    return "hour" if count == 1 else counted(count, "hour")


def _rounded(seconds: float) -> str:
    return f"{seconds / 60:,.0f} min" if seconds >= 60 else f"{seconds:,.0f} s"


def proposal(report: TuneReport, config: MirrorConfig) -> str:
    """Properties, each with its reason above it; what is as it should be is not in it."""
    lines = [
        f"{FIRST_WORDS}, {time_words(report.at_ms)}: a proposal. Nothing reads this file; copy "
        "what you agree with.",
        f"# {report.flow}: {report.load or 'no load test'}",
    ]
    if report.steps:
        lines.append("#  slots      MB/s  records/s  CPU s/GB")
        lines += [
            f"# {step.slots:6}  {step.bytes_per_s / 1e6:8.1f}  {step.records_per_s:9,.0f}  "
            f"{step.cpu_s_per_gb or 0:8.1f}"
            for step in report.steps
        ]
    lines += [f"# {text}" for text in sentences(report)]
    lines += [f"# note: {text}" for text in report.notes]
    return "\n".join([*lines, *_settings(report, config)]) + "\n"


def _settings(report: TuneReport, config: MirrorConfig) -> Iterator[str]:
    knee = report.knee
    if knee is None or len(report.steps) == 1:
        return
    engine, flow = config.engine, config.flow(report.flow)
    if engine.slots is not None and engine.slots != knee.slots:
        yield f"# slots is {engine.slots}"
        yield f"slots = {knee.slots}"
    elif engine.slots is None and engine.slots_max != knee.slots and not knee.is_open:
        yield "# more would only share the same brokers"
        yield f"slots.max = {knee.slots}"
    if flow.tasks_max is not None and flow.tasks_max < knee.slots:
        yield f"# tasks.max is {flow.tasks_max}, and keeps the flow from using as many slots"
        yield f"{report.flow}.tasks.max = {knee.slots}"


def bars(steps: Sequence[Step]) -> list[str]:
    """A chart of characters, a line for each step."""
    most = max((step.bytes_per_s for step in steps), default=0.0) or 1.0
    return [
        f"{step.slots:3} {'slot ' if step.slots == 1 else 'slots'} "
        f"{'█' * max(1, round(_BAR_CHARS * step.bytes_per_s / most)):<{_BAR_CHARS}} "
        f"{rate_words(step.bytes_per_s)}"
        for step in steps
    ]


def picture(report: TuneReport) -> str:
    """An SVG: a bar for each step, the knee in another colour, a line at the peak."""
    peak = 0.0 if report.peak is None else report.peak.bytes_per_s
    most = max([step.bytes_per_s for step in report.steps] + [peak, 1.0])
    floor = _HEIGHT - _MARGIN
    scale = (floor - _MARGIN) / most
    best = None if report.knee is None else report.knee.slots
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'font-family="sans-serif" font-size="13" role="img">',
        f"<title>{escape(f'{report.flow}: rate by number of slots')}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_MARGIN}" y="28">{escape(f"{report.flow}: {report.load}")}</text>',
        f'<line x1="{_MARGIN}" y1="{floor}" x2="{_WIDTH - _MARGIN}" y2="{floor}" stroke="#475"/>',
    ]
    wide = (_WIDTH - 2 * _MARGIN) / max(1, len(report.steps))
    for index, step in enumerate(report.steps):
        left, high = _MARGIN + wide * index, scale * step.bytes_per_s
        middle = left + wide / 2
        colour = "#d97706" if step.slots == best else "#94a3b8"
        parts += [
            f'<rect x="{left + wide * 0.15:.1f}" y="{floor - high:.1f}" '
            f'width="{wide * 0.7:.1f}" height="{high:.1f}" fill="{colour}"/>',
            f'<text x="{middle:.1f}" y="{floor - high - 6:.1f}" text-anchor="middle">'
            f"{rate_words(step.bytes_per_s)}</text>",
            f'<text x="{middle:.1f}" y="{floor + 20}" text-anchor="middle">'
            f"{counted(step.slots, 'slot')}</text>",
        ]
    if peak:
        level = floor - scale * peak
        parts += [
            f'<line x1="{_MARGIN}" y1="{level:.1f}" x2="{_WIDTH - _MARGIN}" y2="{level:.1f}" '
            'stroke="#b91c1c" stroke-dasharray="6 4"/>',
            f'<text x="{_WIDTH - _MARGIN}" y="{level - 5:.1f}" text-anchor="end" fill="#b91c1c">'
            f"peak {rate_words(peak)}</text>",
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"
