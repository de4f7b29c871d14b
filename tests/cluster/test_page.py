"""The page in a real Chromium: over a mirror that only seems to run, and over a real one.

With HELIOGRAPH_SCREENSHOTS=FOLDER the first test leaves its pictures there; those of the documents
are of a real run (`python -m tests.kit.pictures`).
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from heliograph.api.page import routes
from heliograph.api.page.groups_view import PARTITIONS_MAX
from heliograph.clock import monotonic_s, now_ms
from heliograph.driver.lag_book import facts_of
from heliograph.health.verdict import Cutover, FlowVerdict, Word
from heliograph.inspect.groups import FlowGroups, GroupsStatus, Verdict
from heliograph.lag.figures import LagReport
from heliograph.lag.folding import lag_report
from heliograph.lag.history import LaneHistory, Sample
from heliograph.lag.lanes import lane_lag
from heliograph.lag.retention import Retention
from heliograph.model import LaneId, LaneProgress, Stalled, StallReason
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.chromium import Browser, Page, chromium
from tests.kit.clusters import TopicNames
from tests.kit.mirror import lasting_topic, route, write_config
from tests.kit.records import numbered, produce
from tests.kit.runs import WITHOUT_SPARK, MirrorRun, mirror_runs
from tests.kit.served import served
from tests.kit.topics import wait_until
from tests.unit.api.page.test_groups_view import row as group_row
from tests.unit.api.pretend import AB, BA, LANES, PretendLedgers, at, live

_ROW: Final = "#lanes tbody tr"
_REFRESH: Final = "document.dispatchEvent(new Event('visibilitychange'))"
_LOOK, _OPERATE, _RECOVER = ("l" * 20, "o" * 20, "r" * 20)
_COPIED: Final = 1_000_000
_MARKUP: Final = '"><img src=x onerror="window.ran=1"><script>window.ran=2</script>'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(autouse=True)
def no_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror that only seems to run has none that could be asked; the real one is a process."""
    waits = Cutover(reasons=("producers still write: orders-2, topic-0-1, topic-0-2 and 41 more",))
    found = [
        FlowVerdict(flow=AB, word=Word.STALLED, reasons=(), cutover=waits),
        FlowVerdict(flow=BA, word=Word.HEALTHY, reasons=(), cutover=Cutover(reasons=())),
    ]
    monkeypatch.setattr(routes, "verdicts", lambda _: found)
    monkeypatch.setattr(routes, "groups", lambda _: GroupsStatus(at_ms=0, flows=()))


def all_known() -> PretendLedgers:
    ledgers = PretendLedgers()
    ledgers.silent = set()
    return ledgers


def lane(name: str, verb: str) -> str:
    topic, _, partition = name.rpartition("-")
    return f'{_ROW} button[data-verb="{verb}"][data-topic="{topic}"][data-partition="{partition}"]'


def choose(page: Page, selector: str, value: str) -> None:
    page.run(
        f"(() => {{ const it = document.querySelector({json.dumps(selector)});"
        f" it.value = {json.dumps(value)};"
        " it.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


def sign_in(page: Page, token: str) -> None:
    page.until("!document.getElementById('sign-in').hidden")
    page.write("#token", token)
    page.click("#sign-in button")


def wave(lane: LaneId) -> LaneHistory:
    """Lag of two minutes that comes and goes, while a thousand records a second are copied."""
    turn, now_s = lane.source.partition / 10, monotonic_s()
    samples = []
    for number in range(25):
        copied = _COPIED - 5_000 * (24 - number)
        lag = round(500 + 480 * math.sin(turn + number / 3))
        samples.append(Sample(now_s - 5.0 * (24 - number), copied, copied + lag, None))
    return LaneHistory(samples=tuple(samples), moved_s=now_s)


def busy(number: int) -> LaneProgress:
    """One of a hundred lanes of a topic, as far as `wave` has come."""
    quiet = at(number % 100, lag=1, topic=f"topic-{number // 100}")
    lag = wave(quiet.lane).samples[-1].lag or 0
    return replace(
        quiet,
        source_next_offset=_COPIED,
        source_end_offset=_COPIED + lag,
        behind_since_ms=now_ms() - lag,
        records=_COPIED,
        bytes=100 * _COPIED,
    )


async def report(lanes: Iterable[LaneProgress]) -> LagReport:
    return lag_report(
        (
            lane_lag(
                facts_of(each, None, heard=True),
                wave(each.lane),
                Retention(ms=604_800_000),
                at_s=monotonic_s(),
                now_ms=now_ms(),
            )
            for each in lanes
        ),
        now_ms(),
    )


def test_ten_thousand_lanes_are_searched_filtered_and_paged(browser: Browser) -> None:
    since = Stalled(
        reason=StallReason.NOT_AUTHORISED,
        detail="the target refuses WRITE on A.orders: TOPIC_AUTHORIZATION_FAILED",
        since_ms=now_ms() - 240_000,
    )
    stalled = at(2, since)
    moving = tuple(map(busy, range(100)))
    many = tuple(
        at(number % 100, lag=number % 7, topic=f"topic-{number // 100}")
        for number in range(100, 9_999)
    )
    mirror = live((stalled, *moving, *many), ledgers=all_known())
    mirror.history, mirror.lag = wave, lambda: report(moving)
    with served(mirror) as server:
        page = browser.page(server.url, height=1300)
        page.until("document.querySelector('#cutover').innerText.includes('ready')")
        _pictures(page)

        assert page.count(_ROW) == 50
        assert "1 to 50 of 10,000 lanes" in page.text("#lanes-count")
        assert "not authorised" in page.text(f"{_ROW}:first-child")
        assert page.count(f"{_ROW} svg polyline") == 50
        page.write("#search", "TOPIC-42")
        page.until("document.querySelector('#lanes-count').innerText.includes('of 100 lanes')")
        choose(page, "#state", "idle")
        found = "document.querySelector('#lanes-count').innerText"
        page.until(f"{found}.includes('of 14 lanes') || {found}.includes('of 15 lanes')")
        focused = page.run("document.activeElement.id")
        page.click("#filter button")
        page.write("#search", "")
        choose(page, "#state", "")
        page.until(f"{found}.includes('10,000')")
        page.run("document.querySelector('#pages a[data-page=\"200\"]').focus()")
        page.press("Enter", 13)
        page.until(f"{found}.startsWith('9,951 to 10,000')")
        address = page.run("location.search")

        assert focused == "search"
        assert address == "?page=200"
        assert page.complaints == []
        page.close()


def test_the_page_follows_the_mirror_without_growing_and_rests_when_hidden(
    browser: Browser,
) -> None:
    lanes: dict[str, tuple[LaneProgress, ...]] = {"now": LANES}
    mirror = live(ledgers=all_known())
    first, later = mirror.status, live((at(9, lag=5), *LANES[1:])).status
    mirror.status = lambda: (first if lanes["now"] is LANES else later)()
    with served(mirror) as server:
        page = browser.page(server.url)
        page.until("document.querySelector('#cutover').innerText.includes('ready')")
        page.run("document.querySelector('#decisions details').open = true")
        page.run(f"document.querySelector({json.dumps(lane('orders-3', 'pause'))}).focus()")
        page.run("window.scrollTo(0, 300); window.kept = document.querySelector('#verdict h2')")

        lanes["now"] = ()
        page.until("document.querySelector('#lanes').innerText.includes('orders-9')")
        page.until("!document.querySelector('#lanes').innerText.includes('orders-0')")

        assert page.run("document.activeElement.dataset.partition") == "3"
        assert page.run("document.querySelector('#decisions details').open")
        assert page.run("window.scrollY") == 300
        assert page.run("window.kept === document.querySelector('#verdict h2')")
        few = nodes_after(page, 5) + 100
        # What an answer on its way holds is not collected yet, so more than once.
        wait_until(lambda: nodes_after(page, 60) < few, f"fewer than {few} DOM nodes in the tab")
        page.run(
            "Object.defineProperty(document, 'hidden', {get: () => true}); window.waits = [];"
            " const before = setTimeout; window.setTimeout ="
            " (work, ms) => { window.waits.push(ms); return before(work, ms); }; 0"
        )
        page.run(_REFRESH.replace("visibilitychange", "nothing"))
        page.until("window.waits.includes(30000)")
        assert page.complaints == []
        page.close()


def nodes_after(page: Page, times: int) -> int:
    """DOM nodes of the tab after so many refreshes more."""
    page.run(
        f"(async () => {{ for (let n = 0; n < {times}; n += 1) {{ {_REFRESH};"
        " await new Promise((done) => setTimeout(done, 20)); } })()"
    )
    page.call("HeapProfiler.collectGarbage")
    page.call("Performance.enable")
    metrics = {
        each["name"]: each["value"] for each in page.call("Performance.getMetrics")["metrics"]
    }
    return int(metrics["Nodes"])


def test_names_made_of_markup_are_inert(browser: Browser) -> None:
    mirror = live((at(0, lag=1, topic=_MARKUP),), ledgers=all_known())
    with served(mirror) as server:
        page = browser.page(server.url)
        page.run(_REFRESH)
        page.click(f"{_ROW} button[data-verb=pause]")
        page.click("#act-preview")
        page.until("document.getElementById('act-problem').innerText")

        assert _MARKUP in page.text(_ROW)
        assert _MARKUP in page.run("document.getElementById('act-title').textContent")
        assert page.run("document.images.length + document.scripts.length") == 1
        assert page.run("window.ran === undefined")
        assert page.complaints == []
        page.close()


def test_a_group_of_ten_thousand_partitions_named_like_markup_is_one_row_of_text(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [group_row(_MARKUP, number, Verdict.IN_STEP) for number in range(9_999)]
    rows.append(group_row(_MARKUP, 9_999, Verdict.NOT_TRANSLATABLE, committed=None))
    status = GroupsStatus(
        at_ms=now_ms(),
        flows=(FlowGroups(flow=AB, writes_offsets=True, rows=tuple(rows), problems=(_MARKUP,)),),
    )
    monkeypatch.setattr(routes, "groups", lambda _: status)
    with served(live(ledgers=all_known())) as server:
        page = browser.page(server.url)
        page.until("document.querySelector('#groups tbody tr') !== null")
        began_s = monotonic_s()
        size = page.run(
            "fetch('/page/groups').then((answer) => answer.text()).then((t) => t.length)"
        )
        took_s = monotonic_s() - began_s
        page.run("document.querySelector('#groups details').open = true")

        assert page.count("#groups tbody tr") == 1
        assert _MARKUP in page.text("#groups tbody th")
        assert "9,999 in step" in page.text("#groups tbody")
        assert "orders-9999" in page.text("#groups tbody li:first-child")
        assert page.count("#groups tbody li") == PARTITIONS_MAX
        assert _MARKUP in page.text("#groups .problem")
        assert page.run("document.images.length + document.scripts.length") == 1
        assert page.run("window.ran === undefined")
        assert size < 20_000
        assert took_s < 2.0
        assert page.complaints == []
        page.close()


def test_a_lane_is_paused_after_a_preview_and_the_decision_withdrawn(browser: Browser) -> None:
    ledgers = all_known()
    with served(live(ledgers=ledgers)) as server:
        page = browser.page(server.url)
        opener = lane("orders-1", "pause")
        page.click(opener)
        assert page.run("document.getElementById('act-do').disabled")
        page.write("#act-why", "B is upgraded")
        page.click("#act-preview")
        page.until("!document.getElementById('act-do').disabled")
        plan = page.text("#act-plan")
        page.write("#act-why", "another reason")
        stale = page.run("document.getElementById('act-do').disabled")
        written_by_preview = len(ledgers.noted)
        page.click("#act-preview")
        page.until("!document.getElementById('act-do').disabled")
        page.click("#act-do")
        page.until("document.querySelector('#told').innerText")
        page.until("document.querySelector('#decisions ul').innerText.includes('another reason')")
        focused = page.run(
            f"document.activeElement === document.querySelector({json.dumps(opener)})"
        )
        page.click('#decisions li:last-child button[data-verb="withdraw"]')
        page.click("#act-preview")
        page.until("!document.getElementById('act-do').disabled")
        page.click("#act-do")
        page.until("!document.querySelector('#decisions ul').innerText.includes('another reason')")

        assert "orders-1: copying → paused" in plan
        assert stale, "what is done is what was shown"
        assert written_by_preview == 0
        assert focused
        assert page.complaints == []
        page.close()


def test_a_token_is_asked_for_and_what_it_may_not_do_is_refused(
    browser: Browser, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ann look {_LOOK}\nbob operate {_OPERATE}\n")
    tokens.chmod(0o600)
    with served(live(ledgers=all_known()), str(tokens)) as server:
        page = browser.page(server.url)
        sign_in(page, "w" * 20)
        page.until("document.getElementById('sign-in-problem').innerText.includes('token')")
        empty = page.run("document.getElementById('live').childElementCount")
        sign_in(page, _LOOK)
        page.until(f"document.querySelectorAll('{_ROW}').length")
        looking = page.count("#live button[data-verb]")
        page.click("#sign-out")
        sign_in(page, _OPERATE)
        page.until("document.querySelectorAll('#live button[data-verb]').length")
        recovering = page.count('#live button[data-verb="failover"]')
        page.click(lane("orders-1", "pause"))
        tokens.write_text(f"ann look {_LOOK}\nbob look {_OPERATE}\n")
        page.until(
            "fetch('/v1/flows/A-%3EB:pause?dry_run=true', {method: 'POST', headers:"
            " {Authorization: 'Bearer ' + sessionStorage.getItem('heliograph.token')}})"
            ".then((answer) => answer.status === 403)"
        )
        page.click("#act-preview")
        page.until("document.getElementById('act-problem').innerText.includes('the role operate')")
        sent = page.run("document.cookie + JSON.stringify({...localStorage}) + location.href")

        assert empty == looking == recovering == 0
        assert page.run("document.getElementById('act-do').disabled")
        assert _OPERATE not in sent
        assert page.complaints == []
        page.close()


def test_a_driver_that_is_lost_is_said_to_be_and_found_again(browser: Browser) -> None:
    with served(live(ledgers=all_known())) as server:
        page = browser.page(server.url)
        server.stop()
        page.run(_REFRESH)
        page.until("!document.getElementById('lost').hidden")
        told = page.text("#lost")
        greyed = page.run("getComputedStyle(document.getElementById('live')).opacity")
        server.start()
        page.until("document.getElementById('lost').hidden && !document.body.matches('.lost')")

        words, clock = told.rsplit(" since ")
        assert words == "the driver does not answer"
        assert len(clock) == len("hh:mm:ss UTC")
        assert float(greyed) < 0.5
        assert page.count(_ROW) == len(LANES)
        assert page.complaints == []
        page.close()


def test_a_real_mirror_is_seen_held_and_failed_over_in_the_page(
    browser: Browser, pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("orders"), partitions=3)
    number = name.rpartition("-")[2]
    source, target = f"east{number}", f"west{number}"
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ann recover {_RECOVER}\n")
    tokens.chmod(0o600)
    file = write_config(
        tmp_path / "mm2.properties",
        {source: pair["A"], target: pair["B"]},
        {f"{source}->{target}": {"topics": name, "cutover.quiet.seconds": "1"}},
    )
    file.write_text(f"{file.read_text()}api.tokens.file = {tokens}\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    produce(pair["A"], name, numbered(300))
    way = route(file, (source, pair["A"]), (target, pair["B"]))
    with mirror_runs() as runs:
        run = MirrorRun(
            file,
            tmp_path / "run.log",
            *("--slots", "1", "--api", f"127.0.0.1:{port}"),
            program=WITHOUT_SPARK,
        )
        runs.append(run)
        run.await_copying()
        way.await_records(name, 300)
        page = browser.page(f"http://127.0.0.1:{port}/")
        sign_in(page, _RECOVER)
        page.until(f"document.querySelectorAll('{_ROW}.idle').length === 3", 30)

        page.click(lane(f"{name}-1", "pause"))
        page.click("#act-preview")
        page.until("!document.getElementById('act-do').disabled", 30)
        page.click("#act-do")
        page.until(f"document.querySelectorAll('{_ROW}.paused').length === 1", 30)
        produce(pair["A"], name, numbered(300))
        page.until("document.querySelector('#cutover').innerText.includes('not yet')", 60)
        verdict = page.text("#cutover")
        page.write("#why-topic", name)
        page.click("#why-form button")
        page.until("document.querySelector('#why-answer h3') !== null", 60)
        why = page.text("#why-answer")
        page.click(f'#map button[data-verb="failover"][data-flow="{source}->{target}"]')
        page.click("#act-preview")
        page.until("!document.getElementById('act-confirm').hidden", 60)
        plan = page.text("#act-plan")
        page.write("#act-typed", f"{source}->{target[:-1]}")
        mistyped = page.run("document.getElementById('act-do').disabled")
        page.write("#act-typed", f"{source}->{target}")
        page.click("#act-do")
        page.until("document.querySelector('#decisions').innerText.includes('failover')", 30)
        page.until(
            "document.querySelector('#decisions details summary b').innerText === 'done'", 60
        )
        page.until("document.querySelector('#map tbody').innerText.includes('fenced')", 30)
        threading.Thread(target=run.stop).start()
        page.until("document.getElementById('lost').innerText.includes('does not answer')", 60)

    assert run.complaints == []
    assert f"{source}->{target}" in verdict
    assert "mirrored" in why or "held" in why
    assert name in plan
    assert mistyped
    assert page.complaints == []
    page.close()


def _pictures(page: Page) -> None:
    folder = os.environ.get("HELIOGRAPH_SCREENSHOTS")
    if folder is None:
        return
    page.run("window.scrollTo(0, 0)")
    for scheme in ("light", "dark"):
        page.use_scheme(scheme)
        page.screenshot(Path(folder) / f"page-{scheme}.png")
    page.use_scheme("light")
