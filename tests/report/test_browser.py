"""The HTML report in a real browser: nothing of it is taken on trust."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from commandline import HOSTILE
from playwright.sync_api import sync_playwright
from report import made
from report.test_formats import rendered

from normlint.report.look import visible
from normlint.results import Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
OPEN = "for (const element of document.querySelectorAll('details')) element.open = true;"
WORDS = "h1, h2, h3, p, li, .badge, .chip, .soft, figcaption, label"
CONTRAST = """(words) => {
  const channel = (part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  };
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(channel);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const colour = getComputedStyle(element).backgroundColor;
    return colour === "rgba(0, 0, 0, 0)" ? behind(element.parentElement) : colour;
  };
  return [...document.querySelectorAll(words)].map((element) => {
    const pair = [light(getComputedStyle(element).color), light(behind(element))];
    return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
  });
}"""
"""The ratio of brightness of words to what is behind them, as WCAG 2 computes it."""


def executable(bundled: str) -> str:
    """Find a browser: that of this machine, or the one that `playwright install` brought."""
    found = (os.environ.get("NORMLINT_TEST_BROWSER"), *map(shutil.which, NAMES), bundled)
    return next((path for path in found if path and Path(path).exists()), "")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        path = executable(driver.chromium.executable_path)
        if not path and not os.environ.get("CI"):
            pytest.skip("there is no Chromium here; `playwright install chromium` brings one")
        assert path, "CI needs Chromium"
        running = driver.chromium.launch(executable_path=path)
        yield running
        running.close()


@contextmanager
def opened(browser: Browser, text: str, folder: Path, **look: Any) -> Iterator[Page]:
    """Open a page, and see that it asks for nothing, complains of nothing and runs nothing."""
    path = folder / "report.html"
    path.write_bytes(text.encode())
    context = browser.new_context(**look)
    page = context.new_page()
    trouble: list[str] = []
    page.on("request", lambda request: trouble.append(request.url))
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
    page.goto(path.as_uri())
    yield page
    context.close()
    assert trouble == [path.as_uri()]


def shown(page: Page) -> list[str]:
    """Give the codes of the cards that can be seen."""
    return [title.partition(" ")[0] for title in page.locator(".card:visible h3").all_inner_texts()]


def test_search_finds_every_word_in_cards_and_names_of_models(
    browser: Browser, tmp_path: Path
) -> None:
    with opened(browser, rendered("html", made.report()), tmp_path) as page:
        search, status = page.get_by_role("searchbox"), page.get_by_role("status")
        everything = shown(page)

        assert everything == ["NL201", "NL101", "NL111", "NL401", "NL903"]
        search.fill("RELU stands")
        assert shown(page) == ["NL111"]
        assert status.inner_text() == "1 of 5 shown"
        assert page.locator("section:visible").count() == 1
        search.fill("empty.onnx")
        assert shown(page) == ["NL903"]
        search.fill("layer.11/norm")
        assert shown(page) == ["NL201"]
        search.fill("relu nowhere")
        assert shown(page) == []
        search.fill("")
        assert shown(page) == everything
        assert page.locator("section:visible").count() == 3


def test_boxes_filter_by_severity(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, rendered("html", made.report()), tmp_path) as page:
        page.get_by_label("warning").uncheck()
        assert shown(page) == ["NL101", "NL111", "NL401", "NL903"]
        page.get_by_label("fixed").uncheck()
        page.get_by_label("info").uncheck()
        assert shown(page) == ["NL401", "NL903"]
        page.get_by_label("error").uncheck()
        assert shown(page) == []


def test_a_norm_in_the_map_leads_to_its_finding(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, rendered("html", made.report()), tmp_path) as page:
        page.locator("a.chip").click()

        assert page.locator(".card:target h3").inner_text().startswith("NL201")


def test_all_is_there_without_scripts(browser: Browser, tmp_path: Path) -> None:
    text = rendered("html", made.report())
    with opened(browser, text, tmp_path, java_script_enabled=False) as page:
        assert len(shown(page)) == 5
        assert page.locator("svg:visible").count() == 2


def test_what_norms_saw_is_told(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, rendered("html", made.measured()), tmp_path) as page:
        page.get_by_text("What the norms saw on the data").click()

        cells = page.locator(".wide td").all_inner_texts()
        assert cells[:4] == ["LayerNorm /layer.0/norm", "0.1", "2", "1"]
        assert page.locator(".wide svg rect").count() > 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_can_be_read_by_day_and_by_night(
    scheme: str, browser: Browser, tmp_path: Path
) -> None:
    text = rendered("html", made.measured())
    with opened(browser, text, tmp_path, color_scheme=scheme) as page:
        back = page.evaluate("getComputedStyle(document.body).backgroundColor")
        contrasts = page.evaluate(CONTRAST, WORDS)

    assert back == {"light": "rgb(250, 250, 249)", "dark": "rgb(28, 25, 23)"}[scheme]
    assert len(contrasts) > 20
    assert min(contrasts) >= 4.5


@pytest.mark.parametrize("width", [320, 390, 1280])
@pytest.mark.parametrize("name", ["tame", "n" * 10_000, "<script>alert(1)</script>"])
def test_the_page_is_never_wider_than_the_screen(
    width: int, name: str, browser: Browser, tmp_path: Path
) -> None:
    report = Report((*made.measured().models, *made.hostile(name).models))
    screen = {"width": width, "height": 800}
    with opened(browser, rendered("html", report), tmp_path, viewport=screen) as page:
        page.evaluate(OPEN)

        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_names_are_seen_whole_and_do_nothing(browser: Browser, tmp_path: Path) -> None:
    tame = rendered("html", made.hostile("tame"))
    with opened(browser, tame, tmp_path) as page:
        elements = page.locator("*").count()
    for name in HOSTILE:
        with opened(browser, rendered("html", made.hostile(name)), tmp_path) as page:
            page.evaluate(OPEN)
            said = page.locator(".card").inner_text().replace("\n", " ")

            assert page.locator("*").count() == elements
            assert page.title() == "normlint report"
            for part in (visible(f"about {name}"), visible(f"Repair: replace {name}")):
                assert " ".join(part.split()) in " ".join(said.split())
