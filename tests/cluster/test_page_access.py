"""The page for everyone, in a real Chromium: keyboard alone, screen reader, both colours, a phone.

Over a mirror that only seems to run: no broker. What a screen reader is told is the browser's own
accessibility tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import pytest

from heliograph.api.page import routes
from heliograph.clock import now_ms
from heliograph.health.verdict import Cutover, FlowVerdict, Word
from heliograph.inspect.groups import GroupsStatus
from heliograph.model import Stalled, StallReason
from tests.kit.chromium import Browser, Page, chromium
from tests.kit.served import served
from tests.unit.api.pretend import AB, BA, LANES, PretendLedgers, at, live

_NAMED: Final = {
    *("button", "link", "textbox", "searchbox", "combobox", "checkbox", "spinbutton"),
    *("image", "region", "navigation", "search", "dialog", "table", "form"),
}
_UNNAMED_BY_RIGHT: Final = {"table", "form"}
"""Those stand in a region, or under a heading, that has the name."""
_CONTRAST_MIN: Final = 4.5
_LONG: Final = "a.very-long.topic_name.of-a-team.that_likes.to-spell.everything.out.in-full.v2-2026"
_CONTRASTS: Final = """(() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const over = (top, below) => top.slice(0, 3).map((one, at) =>
    one * (top[3] ?? 1) + below[at] * (1 - (top[3] ?? 1)));
  const behind = (node) => {
    const found = [];
    for (let at = node; at; at = at.parentElement) {
      found.push(parts(getComputedStyle(at).backgroundColor));
    }
    return found.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const light = (rgb) => rgb.slice(0, 3).map((one) => one / 255)
    .map((one) => one <= .04045 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4)
    .reduce((sum, one, at) => sum + one * [.2126, .7152, .0722][at], 0);
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || node.closest("svg, button:disabled")) continue;
    if (!node.checkVisibility()) continue;
    const below = behind(node), above = over(parts(getComputedStyle(node).color), below);
    const [dark, bright] = [light(above), light(below)].sort((one, two) => one - two);
    const text = walker.currentNode.data.trim().slice(0, 40);
    found.push([(bright + .05) / (dark + .05), node.tagName + " " + text]);
  }
  return found.sort((one, two) => one[0] - two[0]).slice(0, 5);
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(autouse=True)
def no_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Cutover(reasons=("no drill was made: `heliograph drill`",), remarks=("a remark",))
    found = [
        FlowVerdict(flow=AB, word=Word.STALLED, reasons=(), cutover=waits),
        FlowVerdict(flow=BA, word=Word.HEALTHY, reasons=(), cutover=Cutover(reasons=())),
    ]
    monkeypatch.setattr(routes, "verdicts", lambda _: found)
    monkeypatch.setattr(routes, "groups", lambda _: GroupsStatus(at_ms=0, flows=()))


@pytest.fixture
def url() -> Iterator[str]:
    ledgers = PretendLedgers()
    ledgers.silent = set()
    stalled = Stalled(
        reason=StallReason.NOT_AUTHORISED,
        detail="the target refuses WRITE on A.orders: TOPIC_AUTHORIZATION_FAILED",
        since_ms=now_ms() - 240_000,
    )
    lanes = (*LANES, at(7, stalled), at(0, lag=5, topic=_LONG))
    with served(live(lanes, ledgers=ledgers)) as server:
        yield server.url


def opened(browser: Browser, url: str, **looks: Any) -> Page:
    page = browser.page(url, **looks)
    page.until("document.querySelector('#cutover').innerText.includes('ready')")
    return page


def spoken(page: Page) -> list[tuple[str, str, dict[str, Any]]]:
    """Role, name and properties of all that a screen reader meets."""
    page.call("Accessibility.enable")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    page.call("Accessibility.disable")
    return [
        (
            node["role"]["value"],
            node.get("name", {}).get("value", ""),
            {each["name"]: each["value"].get("value") for each in node.get("properties", ())},
        )
        for node in nodes
        if not node["ignored"]
    ]


def press(page: Page, key: str, code: int, times: int = 1) -> None:
    for _ in range(times):
        page.press(key, code)


def test_a_screen_reader_meets_nothing_without_a_name_and_headings_in_order(
    browser: Browser, url: str
) -> None:
    page = opened(browser, url)
    nodes = spoken(page)
    page.click('#map button[data-verb="failover"]')
    in_dialog = spoken(page)
    page.close()

    roles = {role for role, _, _ in nodes}
    assert {"main", "navigation", "search", "status", "row", "rowheader", "columnheader"} <= roles
    for found in (nodes, in_dialog):
        nameless = [role for role, name, _ in found if role in _NAMED and not name.strip()]
        assert set(nameless) <= _UNNAMED_BY_RIGHT, nameless
    names = [name for role, name, _ in nodes if role == "button"]
    assert len(names) == len(set(names)), "a button says what it is about"
    levels = [more["level"] for role, _, more in nodes if role == "heading"]
    assert levels[0] == 1
    assert all(later - before <= 1 for before, later in pairwise(levels))
    (dialog,) = (more for role, _, more in in_dialog if role == "dialog")
    assert dialog.get("modal")
    assert any(role == "dialog" and "failover A->B" in name for role, name, _ in in_dialog)


def test_a_lane_is_paused_with_the_keyboard_alone(browser: Browser, url: str) -> None:
    page = opened(browser, url)
    focused = "document.activeElement"
    press(page, "Tab", 9)
    skipping = page.run(f"{focused}.textContent")
    for _ in range(200):
        press(page, "Tab", 9)
        if page.run(f"{focused}.getAttribute('aria-label')") == "Pause: A->B orders-1":
            break
    seen = page.run(f"getComputedStyle({focused}).outlineStyle")
    press(page, " ", 32)
    page.until("document.getElementById('act').open")
    inside = f"document.getElementById('act').contains({focused})"
    within = [page.run(inside)]
    while page.run(f"{focused}.id") != "act-preview":
        assert len(within) < 20, "the keyboard does not reach Preview"
        press(page, "Tab", 9)
        within.append(page.run(inside))
    press(page, " ", 32)
    page.until("!document.getElementById('act-do').disabled")
    press(page, "Tab", 9)
    ready = page.run(f"{focused}.id")
    press(page, " ", 32)
    page.until("document.querySelector('#told').innerText")
    page.until("document.querySelector('#decisions ul').innerText.includes('orders: partition 1')")
    back = page.run(f"{focused}.getAttribute('data-partition')")
    page.click('#map button[data-verb="stop"]')
    press(page, "Escape", 27)
    page.until("!document.getElementById('act').open")

    assert skipping == "Skip to the lanes"
    assert seen == "solid"
    assert all(within)
    assert ready == "act-do"
    assert back == "1"
    assert page.complaints == []
    page.close()


@pytest.mark.parametrize("dark", (False, True), ids=("light", "dark"))
def test_every_word_stands_out_from_what_is_behind_it(
    browser: Browser, url: str, dark: bool
) -> None:
    page = opened(browser, url, dark=dark)
    worst = page.run(_CONTRASTS)
    page.click('#map button[data-verb="failover"]')
    worst += page.run(_CONTRASTS)
    page.close()

    assert min(worst)[0] >= _CONTRAST_MIN, sorted(worst)[:5]


@pytest.mark.parametrize("width", (320, 400, 1280))
def test_the_page_never_moves_sideways_however_narrow_and_what_is_wide_moves_alone(
    browser: Browser, url: str, width: int
) -> None:
    page = opened(browser, url, width=width)
    wide = page.run("document.documentElement.scrollWidth")
    outside = page.run(
        "[...document.querySelectorAll('main *')].filter((each) =>"
        " each.checkVisibility() && !each.closest('.scroll, .sr') &&"
        f" each.getBoundingClientRect().right > {width} + 1)"
        ".map((each) => each.outerHTML.slice(0, 99))"
    )
    page.click(f'#lanes button[data-verb="pause"][data-topic="{_LONG}"]')
    box = page.run("document.getElementById('act').getBoundingClientRect().toJSON()")
    page.close()

    assert wide == width
    assert outside == []
    assert box["left"] >= 0
    assert box["right"] <= width
