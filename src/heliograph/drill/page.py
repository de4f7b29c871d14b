"""A drill's report as one HTML page that needs nothing else. Pure; runs on the driver.

No scripts, no files beside it, nothing fetched: it can be mailed, archived and printed. Names come
from clusters and are written as text, whatever is in them.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from heliograph import __version__
from heliograph.drill.report import DrillReport, GroupDrill
from heliograph.ledger.drill_note import in_words

_BARS_MAX: Final = 30
"""Topics drawn; the table below has all."""
_UNKNOWN: Final = "?"

_STYLE: Final = """
:root { color-scheme: light dark; --paper: #fbfaf7; --ink: #1d2430; --faint: #667085;
  --line: #e3e0d8; --card: #ffffff; --bar: #d97706; --rest: #a9b1bd; --good: #14733c;
  --good-soft: #e3f4e8; --bad: #b42318; --bad-soft: #fdeae7; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171c; --ink: #e8e6e1; --faint: #98a1b0; --line: #2c323c; --card: #1b2027;
    --bar: #f0a13a; --rest: #5b6675; --good: #6fd596; --good-soft: #17301f; --bad: #ff9a8b;
    --bad-soft: #3a1d1a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .75rem; }
p { margin: .35rem 0; }
.faint { color: var(--faint); font-size: .875rem; }
.verdict { display: inline-block; padding: .1rem .7rem; border-radius: 1rem; font-weight: 700;
  letter-spacing: .04em; margin-bottom: .75rem; }
.pass { color: var(--good); background: var(--good-soft); }
.fail { color: var(--bad); background: var(--bad-soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem;
  margin-top: 1.25rem; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .75rem .9rem; }
.tile b { display: block; font-size: 1.45rem; line-height: 1.25;
  font-variant-numeric: tabular-nums; }
.tile.bad { border-color: var(--bad); }
.tile.bad b { color: var(--bad); }
.reasons { background: var(--bad-soft); border-radius: .5rem; margin: 1.25rem 0 0;
  padding: .75rem 1rem .75rem 2.1rem; overflow-wrap: anywhere; }
.bars { display: grid; gap: .55rem; margin: 0; }
.bars div { display: grid; grid-template-columns: minmax(0, 1fr) auto; column-gap: 1rem; }
.bars dt { overflow-wrap: anywhere; }
.bars dd { margin: 0; text-align: right; font-variant-numeric: tabular-nums; }
.bars .chart { grid-column: 1 / -1; line-height: 0; }
.bars svg { width: 100%; height: .6rem; }
.bars .told { grid-column: 1 / -1; text-align: left; }
.track { fill: var(--line); }
.bar { fill: var(--bar); }
.rest { fill: var(--rest); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .925rem; }
th, td { text-align: left; padding: .4rem .75rem .4rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { color: var(--faint); font-weight: 600; white-space: nowrap; }
td.name { overflow-wrap: anywhere; min-width: 9rem; }
td.number, th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.bad { color: var(--bad); font-weight: 600; }
@media print { body { background: #fff; } .tile, table, .bars div { break-inside: avoid; } }
"""


def page(report: DrillReport) -> str:
    """The whole page, well-formed as XML too."""
    body = "\n".join(
        part
        for section in (
            _head(report),
            _tiles(report),
            _reasons(report),
            _steps(report),
            _topics(report),
            _groups(report),
            _findings(report),
            _notes(report),
            _method(report),
        )
        for part in section
    )
    title = f"Drill of {report.flow}: {report.verdict}"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def visible(name: str) -> str:
    """Characters that cannot be seen as escapes: some would turn the text around them."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in name
    )


def seconds_text(seconds: float | None) -> str:
    if seconds is None:
        return _UNKNOWN
    return f"{seconds:,.2f} s" if seconds < 10 else f"{seconds:,.1f} s"


def _head(report: DrillReport) -> Iterator[str]:
    began = _time(report.began_ms)
    took = (report.ended_ms - report.began_ms) / 1000
    yield "<header>"
    yield f'<span class="verdict {report.verdict}">{report.verdict.upper()}</span>'
    yield f"<h1>Failover drill of {_text(str(report.flow))}</h1>"
    yield (
        f"<p>{_text(began)}, from host {_text(report.host)}, took {took:,.1f} s. "
        "No real group and no record was touched.</p>"
    )
    carried = report.carried_by or "nobody at this moment"
    yield f'<p class="faint">The flow is carried by {_text(carried)}.</p>'
    yield "</header>"


def _tiles(report: DrillReport) -> Iterator[str]:
    options = report.options
    rpo_bad = options.rpo_s_max is not None and (
        report.rpo_s is None or report.rpo_s > options.rpo_s_max
    )
    rto_bad = options.rto_s_max is not None and report.rto_s > options.rto_s_max
    yield '<section class="tiles" aria-label="Figures">'
    yield _tile(
        "RPO: age of the oldest record that would be lost",
        seconds_text(report.rpo_s),
        _allowed(options.rpo_s_max),
        is_bad=rpo_bad,
    )
    yield _tile("RPO: records that would be lost", _count(report.rpo_records), "not mirrored yet")
    yield _tile(
        "RTO: until groups read on the target",
        seconds_text(report.rto_s),
        _allowed(options.rto_s_max),
        is_bad=rto_bad,
    )
    yield _tile("Records read again", _count(report.repeated_records), "by all groups together")
    yield _tile(
        "Records lost to groups",
        _count(report.lost_records),
        "mirrored or sampled, never read",
        is_bad=report.lost_records > 0,
    )
    yield _tile(
        "Records that differ",
        _count(report.differing_records),
        f"of {_count(report.compared_records)} compared",
        is_bad=report.differing_records > 0,
    )
    yield "</section>"


def _reasons(report: DrillReport) -> Iterator[str]:
    if report.passed:
        return
    yield "<section><h2>Why it failed</h2>"
    yield '<ul class="reasons">'
    yield from (f"<li>{_text(reason)}</li>" for reason in report.reasons)
    yield "</ul></section>"


def _steps(report: DrillReport) -> Iterator[str]:
    yield f"<section><h2>RTO, step by step: {seconds_text(report.rto_s)}</h2>"
    longest = max((step.seconds for step in report.steps), default=0.0)
    yield '<dl class="bars">'
    for step in report.steps:
        name = step.name if step.in_rto else f"{step.name} (not part of a failover)"
        kind = "bar" if step.in_rto else "rest"
        yield _bar(name, seconds_text(step.seconds), step.seconds, longest, kind, step.told)
    yield "</dl></section>"


def _topics(report: DrillReport) -> Iterator[str]:
    topics = report.topics
    yield f"<section><h2>Lag per topic: {_count(report.rpo_records)} records</h2>"
    if not topics:
        yield "<p>No lane has begun.</p></section>"
        return
    most = max((topic.lag_records or 0 for topic in topics), default=0)
    behind = sorted(topics, key=lambda topic: (-(topic.lag_records or 0), topic.topic))
    yield '<dl class="bars">'
    for topic in behind[:_BARS_MAX]:
        label = f"{_count(topic.lag_records)} records, {seconds_text(topic.lag_s)}"
        lanes = f"{topic.lanes:,} partition{'' if topic.lanes == 1 else 's'}"
        yield _bar(topic.topic, label, float(topic.lag_records or 0), float(most), "bar", lanes)
    yield "</dl>"
    if len(behind) > _BARS_MAX:
        rest = behind[_BARS_MAX:]
        yield f"<p>{len(rest):,} more topics lag by no more than the last one above.</p>"
    yield "</section>"


def _groups(report: DrillReport) -> Iterator[str]:
    yield f"<section><h2>Consumer groups: {len(report.groups):,}</h2>"
    if not report.groups:
        yield "<p>No group was drilled.</p></section>"
        return
    heads = [
        ("Group", False),
        ("Partitions placed", True),
        ("Without a place", True),
        ("Read again", True),
        ("Never read", True),
        ("Compared", True),
        ("Lost", True),
        ("Changed", True),
        ("Out of order", True),
    ]
    yield '<div class="wide"><table>'
    yield _row_of_heads(heads)
    for group in sorted(report.groups, key=lambda one: (one.is_well, one.group)):
        yield _group_row(group)
    yield "</table></div></section>"


def _group_row(group: GroupDrill) -> str:
    compared = group.equal_records + sum(one.records for one in group.findings)
    cells = [
        (_count(group.partitions), False),
        (_count(len(group.unplaced)), bool(group.unplaced)),
        (_count(group.repeated_records), False),
        (_count(group.skipped_records), group.skipped_records > 0),
        (_count(compared), False),
        (_count(group.lost_records), group.lost_records > 0),
        (_count(group.changed_records), group.changed_records > 0),
        (_count(group.disordered_records), group.disordered_records > 0),
    ]
    notes = "".join(f'<div class="faint">{_text(note)}</div>' for note in group.notes)
    numbers = "".join(
        f'<td class="number{" bad" if is_bad else ""}">{text}</td>' for text, is_bad in cells
    )
    return f'<tr><td class="name">{_text(group.group)}{notes}</td>{numbers}</tr>'


def _findings(report: DrillReport) -> Iterator[str]:
    rows = [(group.group, finding) for group in report.groups for finding in group.findings]
    if not rows:
        return
    yield "<section><h2>Where records differ</h2>"
    yield '<div class="wide"><table>'
    heads = ("Group", "What", "Records", "Source offsets", "Target offsets", "Note")
    yield _row_of_heads([(head, head == "Records") for head in heads])
    for group, finding in rows:
        source = f"{finding.source} [{finding.source_offsets.start}, {finding.source_offsets.end})"
        there = finding.target_offsets
        target = (
            str(finding.target)
            if there is None
            else f"{finding.target} [{there.start}, {there.end})"
        )
        yield (
            f'<tr><td class="name">{_text(group)}</td><td class="bad">{finding.kind.value}</td>'
            f'<td class="number">{_count(finding.records)}</td>'
            f'<td class="name">{_text(source)}</td><td class="name">{_text(target)}</td>'
            f"<td>{_text(finding.note)}</td></tr>"
        )
    yield "</table></div></section>"


def _notes(report: DrillReport) -> Iterator[str]:
    if not report.notes:
        return
    yield "<section><h2>Notes</h2><ul>"
    yield from (f"<li>{_text(note)}</li>" for note in report.notes)
    yield "</ul></section>"


def _method(report: DrillReport) -> Iterator[str]:
    sample = f"at most {report.options.sample_records:,} records of each sampled partition"
    groups = report.options.group
    which = "all groups that the flow follows" if groups is None else f"groups matching {groups}"
    yield "<section><h2>How this was measured</h2>"
    yield (
        f"<p>RPO is what the source held at {_text(_time(report.began_ms))} and the target did "
        "not. RTO is the time of the steps a failover needs, done from the target alone as if the "
        "source were gone; time to decide, to redirect clients and to restart them comes on top. "
        f"Drilled were {_text(which)}: shadow groups were committed at the translated offsets, an "
        f"ordinary consumer read on from there, and {sample} were compared with the source by key, "
        "value, headers and timestamp. The shadow groups were removed.</p>"
    )
    yield f'<p class="faint">heliograph {_text(__version__)}</p>'
    yield "</section>"


def _bar(name: str, label: str, value: float, most: float, kind: str, told: str) -> str:
    share = 0.0 if most <= 0 else max(0.0, min(100.0, 100 * value / most))
    told_line = f'<dd class="told faint">{_text(told)}</dd>' if told else ""
    return (
        f"<div><dt>{_text(name)}</dt><dd>{_text(label)}</dd>"
        f'<dd class="chart"><svg role="img" aria-label="{_text(f"{name}: {label}")}">'
        '<rect class="track" width="100%" height="100%" rx="3"/>'
        f'<rect class="{kind}" width="{share:.1f}%" height="100%" rx="3"/></svg></dd>'
        f"{told_line}</div>"
    )


def _tile(name: str, value: str, below: str, *, is_bad: bool = False) -> str:
    return (
        f'<div class="tile{" bad" if is_bad else ""}"><span class="faint">{_text(name)}</span>'
        f'<b>{_text(value)}</b><span class="faint">{_text(below)}</span></div>'
    )


def _row_of_heads(heads: Iterable[tuple[str, bool]]) -> str:
    cells = "".join(
        f'<th scope="col"{_number_class(is_number)}>{_text(head)}</th>' for head, is_number in heads
    )
    return f"<tr>{cells}</tr>"


def _number_class(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _allowed(seconds: float | None) -> str:
    return "no limit was set" if seconds is None else f"{in_words(seconds)} are allowed"


def _count(number: int | None) -> str:
    return _UNKNOWN if number is None else f"{number:,}"


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _text(text: str) -> str:
    return html.escape(visible(text), quote=True)
