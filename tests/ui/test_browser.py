"""The page in a real browser: charts move during a run, the end is seen, light and dark, laptop and phone.

Pictures are kept in the directory that DOVETAIL_SCREENSHOTS names; the documentation uses them.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from tests.ui.hostile import HOSTILE, hostile_watch
from tests.ui.play import Feed, recorded, running

from dovetail.page import freeze, serve

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None,
    reason="no Chromium with chromedriver here; on Debian: apt-get install chromium chromium-driver",
)

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
LAPTOP, PHONE = (1366, 850), (390, 844)
POINTS = """const found = Bokeh.documents[0]?.get_model_by_name("samples of enriched");
            return found ? (found.data.get ? found.data.get("at") : found.data.at)?.length ?? 0 : 0"""
TEXT = """const parts = [];
          const visit = (node) => { for (const child of node.children) {
              if (child.shadowRoot) visit(child.shadowRoot);
              if (!["STYLE", "SCRIPT"].includes(child.tagName))
                  parts.push(...[...child.childNodes].filter((n) => n.nodeType == 3).map((n) => n.data));
              visit(child); } };
          visit(document.body); return parts.join(" ")"""
FOREIGN = """const found = [];
             const visit = (node) => { for (const child of node.children) {
                 if (child.shadowRoot) visit(child.shadowRoot);
                 if (child.tagName == "IMG" || (child.tagName == "SCRIPT" && !child.nonce)) found.push(child.outerHTML);
                 visit(child); } };
             visit(document.body); return found"""
PAINTED = """let painted = 0;
             const visit = (node) => { for (const child of node.children) {
                 if (child.shadowRoot) visit(child.shadowRoot);
                 if (child.tagName == "CANVAS" && child.width > 50 && child.height > 50) {
                     const pixels = child.getContext("2d").getImageData(0, 0, child.width, child.height).data;
                     painted += pixels.some((value) => value > 0); }
                 visit(child); } };
             visit(document.body); return painted"""
"""How many canvases have anything on them: one for each chart, and one for the graph."""


NOTICED = "return [...document.body.children].some((one) => one.tagName == 'DIV' && one.checkVisibility())"
"""Whether a message of Bokeh about the connection is on the screen."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield found
    found.quit()


def look(browser: webdriver.Chrome, size: tuple[int, int], scheme: str) -> None:
    """Be a screen of this size whose user prefers this scheme of colours."""
    screen = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    wish = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [wish]})


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What the condition gives once it is true."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "the page did not come to this state in time"
        time.sleep(0.05)
    return found


def keep(browser: webdriver.Chrome, name: str, height: int | None = None) -> None:
    """A picture for the documentation, if one is asked for."""
    directory = os.environ.get("DOVETAIL_SCREENSHOTS")
    if directory:
        Path(directory).mkdir(parents=True, exist_ok=True)
        if height is not None:
            width = browser.execute_script("return window.innerWidth")
            look(browser, (width, height), "dark" if "dark" in name else "light")
        time.sleep(0.5)
        browser.save_screenshot(str(Path(directory) / f"{name}.png"))


def requests(browser: webdriver.Chrome) -> set[str]:
    """Addresses that the pages asked for since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}


def complaints(browser: webdriver.Chrome) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]


def overflow(browser: webdriver.Chrome) -> int:
    """Pixels by which the page is wider than the screen."""
    return int(browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth"))


def background(browser: webdriver.Chrome) -> str:
    return str(browser.execute_script("return getComputedStyle(document.documentElement).backgroundColor"))


@pytest.mark.slow
def test_charts_move_during_a_run_and_the_end_is_seen(browser: webdriver.Chrome) -> None:
    watch, pages = running(75), ""
    feed = Feed(watch, start=75.0, every_s=0.25)
    feed.start()
    with serve(watch) as page:
        pages = page.url
        look(browser, LAPTOP, "light")
        browser.get(page.url)
        first = until(lambda: browser.execute_script(POINTS))
        second = until(lambda: (now := browser.execute_script(POINTS)) > first + 5 and now)
        assert "Running" in browser.execute_script(TEXT)
        until(lambda: browser.execute_script(POINTS) > second)
        until(lambda: browser.execute_script(PAINTED) >= 12)
        assert overflow(browser) <= 0
        keep(browser, "live-page", 1250)
        look(browser, PHONE, "dark")
        assert background(browser) == "rgb(17, 20, 24)"
        until(lambda: overflow(browser) <= 0)
        keep(browser, "live-page-phone-dark", 1500)
        feed.stop()
        until(lambda: "This page is final" in browser.execute_script(TEXT))
        assert "Finished" in browser.execute_script(TEXT)
        assert complaints(browser) == []
    until(lambda: "lost" in browser.execute_script(TEXT))  # Bokeh's word about it, which is not to be seen
    assert not browser.execute_script(NOTICED)
    assert browser.execute_script(POINTS) == len(watch.samples("enriched"))
    asked = {url for url in requests(browser) if url.startswith(("http", "ws"))}
    assert {url for url in asked if not url.startswith((pages, pages.replace("http", "ws")))} == set()


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scheme"), [(LAPTOP, "dark"), (PHONE, "light")])
def test_a_page_file_is_readable_without_any_server(
    browser: webdriver.Chrome, tmp_path: Path, size: tuple[int, int], scheme: str
) -> None:
    path = freeze(recorded(90), tmp_path / "page.html")
    browser.get("about:blank")  # a page before this one no longer looks for its server
    until(lambda: not requests(browser) and not complaints(browser))
    look(browser, size, scheme)
    browser.get(path.as_uri())
    until(lambda: browser.execute_script(PAINTED) >= 12)
    text = browser.execute_script(TEXT)
    assert "This page is final" in text
    assert "No spills in this run." in text
    assert overflow(browser) <= 0
    assert background(browser) == {"dark": "rgb(17, 20, 24)", "light": "rgb(245, 246, 248)"}[scheme]
    assert {url for url in requests(browser) if url.startswith(("http", "ws"))} == set()
    assert complaints(browser) == []
    keep(browser, f"final-page-{'laptop' if size == LAPTOP else 'phone'}-{scheme}", 1250)


@pytest.mark.slow
def test_names_that_are_scripts_are_text(browser: webdriver.Chrome) -> None:
    with serve(hostile_watch()) as page:
        complaints(browser)  # of pages before this one
        look(browser, LAPTOP, "light")
        browser.get(page.url)
        until(lambda: HOSTILE in browser.execute_script(TEXT))
        until(lambda: browser.execute_script(PAINTED) >= 3)
        assert browser.title == HOSTILE
        assert browser.execute_script(FOREIGN) == []
        browser.execute_script("document.body.click()")  # fails if a dialog is open
        assert complaints(browser) == []
