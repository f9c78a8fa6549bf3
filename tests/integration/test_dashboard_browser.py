"""The dashboard in a real browser: what scripts do, what the Content-Security-Policy lets them, and who is shut out.

Screenshots of every page are kept in $MUSTER_SCREENSHOTS where that names a folder, to be looked at.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, ViewportSize, async_playwright, expect

from admission.dashboard.pages import event_stream
from tests import browser as browsers, dashboards, packages
from tests.controlplane.observing import PATIENCE
from tests.dashboard_books import Books
from tests.dashboards import ADMIN, Site
from tests.integration import ledgers

pytestmark = pytest.mark.timeout(600)

expect.set_options(timeout=PATIENCE * 1000)

WIDE, NARROW = ViewportSize(width=1440, height=900), ViewportSize(width=390, height=800)

PAGES = {
    "overview": "/",
    "queues": "/queues",
    "queue": "/queues/research",
    "gangs": "/gangs",
    "gang that runs": "/gangs/team-a/train",
    "gang that waits": "/gangs/team-a/bigger",
    "devices": "/devices",
    "map": "/heatmap",
    "nodes to come": "/shapes",
    "node in parts": "/devices/node-3",
    "what would fit": "/capacity?pods=1&devices=2&class=gpu",
    "ledger": "/ledger?from=2026-03-01&to=2026-03-02",
    "statement": "/ledger/statements/research",
    "use": "/ledger/use",
    "used hours": "/ledger/used?by=gang",
    "waiting": "/ledger/waiting",
    "past": "/past?at=2026-03-01T12:03",
    "nothing": "/nothing",
}


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with dashboards.a_site(books=Books(ledgers.a_history())) as served:
        yield served


@pytest.fixture
async def chromium() -> AsyncIterator[Browser]:
    try:
        program = browsers.path()
    except browsers.ProgramMissing as missing:
        if packages.must_be_here():
            pytest.fail(f"{missing}; `make deps` does so as root on Debian")
        pytest.skip(str(missing))
    # Its own sandbox needs rights that containers and root do not have; it sees our pages alone.
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        await started.close()


@asynccontextmanager
async def a_page(
    chromium: Browser, site: Site, *, token: str = ADMIN, expected: str = "401", **context: Any
) -> AsyncIterator[Page]:
    """Yield a page of somebody who has signed in, and see afterwards that nothing went wrong in it."""
    troubles: list[str] = []
    made = await chromium.new_context(**{"viewport": WIDE, **context})
    page = await made.new_page()
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda said: troubles.append(said.text) if said.type == "error" else None)
    page.on("requestfailed", lambda failed: troubles.append(f"{failed.url} {failed.failure}"))
    await page.goto(f"{site.url}/login")
    await page.fill("#token", token)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    yield page
    await made.close()
    # That a page is not there, or a session is over, is an answer, which the console tells, too; a page that is left
    # aborts what it was asking for.
    words = ("404", "401", "ERR_ABORTED", expected)
    assert [trouble for trouble in troubles if not any(word in trouble for word in words)] == []


async def _shoot(page: Page, name: str) -> None:
    folder = os.environ.get("MUSTER_SCREENSHOTS")
    if folder:
        await page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


async def _let_time_pass(page: Page) -> None:
    """Let a minute pass in a page, and as much outside as it takes to be told of a change."""
    for _ in range(6):
        await page.clock.run_for(10_000)
        await page.wait_for_timeout(300)


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_no_page_has_an_accessibility_violation_or_is_wider_than_its_window(
    site: Site, chromium: Browser, theme: str, viewport: ViewportSize
) -> None:
    """By the rules of axe-core: names of controls, contrast, landmarks, headings, tables, and what follows WCAG 2.2."""
    found: list[str] = []
    async with a_page(chromium, site, color_scheme=theme, viewport=viewport) as page:
        for name, path in PAGES.items():
            await page.goto(f"{site.url}{path}")
            await _shoot(page, f"{name.replace(' ', '-')}-{theme}-{viewport['width']}")
            found += [f"{name} is too wide"] * await page.evaluate("document.documentElement.scrollWidth > innerWidth")
            await page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
            results = await Axe().run(page)
            found += [f"{name}: {one['id']}: {one['nodes'][0]['html']}" for one in results.response["violations"]]

    assert found == []


async def test_the_sign_in_form_has_no_accessibility_violation(site: Site, chromium: Browser) -> None:
    page = await chromium.new_page()
    await page.goto(f"{site.url}/gangs")
    results = await Axe().run(page)
    await _shoot(page, "login")

    assert results.response["violations"] == []
    assert await page.evaluate("document.activeElement.id") == "token"


async def test_a_link_to_a_page_leads_there_after_signing_in(site: Site, chromium: Browser) -> None:
    page = await chromium.new_page()
    await page.goto(f"{site.url}/gangs/team-a/train")
    await page.fill("#token", ADMIN)
    await page.keyboard.press("Enter")

    await expect(page.get_by_role("heading", level=1)).to_contain_text("Gang train")


async def test_signing_out_leads_back_to_the_form(site: Site, chromium: Browser) -> None:
    async with a_page(chromium, site) as page:
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("Token")).to_be_visible()
        await page.goto(f"{site.url}/gangs")
        await expect(page.get_by_label("Token")).to_be_visible()


async def test_branches_of_the_tree_open_in_place_and_close_and_the_address_says_which(
    site: Site, chromium: Browser
) -> None:
    async with a_page(chromium, site) as page:
        await page.goto(f"{site.url}/queues")
        await page.evaluate("window.same = true")
        twist = page.get_by_role("button", name="Queues below lab")
        await expect(twist).to_have_attribute("aria-expanded", "true")
        await page.get_by_role("button", name="Queues below research").click()
        await expect(page.get_by_role("link", name="vision")).to_be_visible()
        await expect(page.get_by_role("button", name="Queues below research")).to_be_focused()
        await _shoot(page, "tree")

        await twist.click()

        await expect(page.get_by_role("link", name="vision")).to_have_count(0)
        await expect(page.get_by_role("link", name="orphan")).to_be_visible()
        await expect(twist).to_have_attribute("aria-expanded", "false")
        assert page.url == f"{site.url}/queues?open=research"
        await page.goto(f"{site.url}/queues?open=lab,research")
        await expect(page.get_by_role("link", name="vision")).to_be_visible()


async def test_the_tree_is_walked_by_keys_alone(site: Site, chromium: Browser) -> None:
    async with a_page(chromium, site) as page:
        await page.goto(f"{site.url}/queues?open=-")
        await page.get_by_role("link", name="lab", exact=True).focus()
        await page.keyboard.press("ArrowRight")
        await expect(page.get_by_role("link", name="production")).to_be_visible()
        await page.keyboard.press("ArrowDown")
        assert await page.evaluate("document.activeElement.textContent") == "production"
        await page.keyboard.press("Enter")

        await expect(page.get_by_role("heading", level=1)).to_contain_text("Queue production")


async def test_the_first_key_leads_past_the_navigation(site: Site, chromium: Browser) -> None:
    async with a_page(chromium, site) as page:
        await page.goto(f"{site.url}/gangs")
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        await page.keyboard.press("Enter")

        await expect(page.locator("main")).to_be_focused()


async def test_without_scripts_a_branch_opens_by_a_link(site: Site, chromium: Browser) -> None:
    async with a_page(chromium, site, java_script_enabled=False) as page:
        await page.goto(f"{site.url}/queues")
        await page.get_by_label("Queues below research").click()

        await expect(page.get_by_role("link", name="vision", exact=True)).to_be_visible()


async def test_a_page_keeps_itself_fresh(site: Site, chromium: Browser) -> None:
    async with a_page(chromium, site) as page:
        await page.clock.install()
        await page.goto(f"{site.url}/gangs/team-a/bigger")
        await page.get_by_text("The numbers behind it").click()
        site.cluster.change("team-a/bigger", phase="Running", hold=None)
        site.clock.seconds += 10
        await expect(page.get_by_role("heading", level=1)).to_contain_text("Pending")

        await page.get_by_role("heading", level=1).click()
        await page.evaluate("document.activeElement.blur()")
        await _let_time_pass(page)

        await expect(page.get_by_role("heading", level=1)).to_contain_text("Running")


async def test_a_change_is_shown_without_a_reload_as_the_stream_of_events_tells_it(
    site: Site, chromium: Browser
) -> None:
    async with a_page(chromium, site) as page:
        await page.clock.install()
        # So it does not ask by itself.
        await page.add_init_script("window.setInterval = () => 0")
        async with page.expect_response("**/events?topics=gangs%2Fteam-a%2Fbigger%2Cdevices") as stream:
            await page.goto(f"{site.url}/gangs/team-a/bigger")
        assert (await stream.value).headers["content-type"] == "text/event-stream"
        async with page.expect_response("**/gangs/team-a/bigger"):
            await page.clock.run_for(2_500)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.evaluate("window.same = true")
        site.cluster.change("team-a/bigger", phase="Running", hold=None)
        site.clock.seconds += 2
        await _let_time_pass(page)

        await expect(page.get_by_role("heading", level=1)).to_contain_text("Running")
        assert asked == [f"{site.url}/gangs/team-a/bigger"]
        async with page.expect_request(f"{site.url}/events?topics=queues"):
            await page.get_by_role("navigation", name="Main").get_by_role("link", name="Queues").click()
        await expect(page).to_have_title("Queues · Muster")
        assert await page.evaluate("window.same")


async def test_without_a_stream_a_page_asks_every_ten_seconds(
    site: Site, chromium: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "MOST_STREAMS", 0)
    async with a_page(chromium, site, expected="429") as page:
        await page.clock.install()
        async with page.expect_response("**/events?*"):
            await page.goto(f"{site.url}/gangs/team-a/bigger")
        site.cluster.change("team-a/bigger", phase="Running", hold=None)
        site.clock.seconds += 2
        await _let_time_pass(page)

        await expect(page.get_by_role("heading", level=1)).to_contain_text("Running")


async def test_a_page_whose_session_has_ended_asks_for_a_token(site: Site, chromium: Browser) -> None:
    async with a_page(chromium, site) as page:
        await page.goto(f"{site.url}/queues")
        del site.reviews.known[ADMIN]
        site.clock.seconds += 60
        await page.get_by_role("button", name="Queues below lab").click()

        await expect(page.get_by_label("Token")).to_be_visible()


async def test_a_link_changes_the_page_in_place_and_the_history_leads_back(site: Site, chromium: Browser) -> None:
    async with a_page(chromium, site) as page:
        await page.evaluate("window.same = true")
        await page.get_by_role("navigation", name="Main").get_by_role("link", name="Gangs").click()

        await expect(page.get_by_role("heading", level=1)).to_contain_text("Gangs")
        await expect(page).to_have_title("Gangs · Muster")
        await expect(page).to_have_url(f"{site.url}/gangs")
        await expect(page.locator('nav [aria-current="page"]')).to_have_text("Gangs")
        assert await page.evaluate("document.activeElement.id") == "main"

        await page.get_by_role("link", name="team-a/train").first.click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("train")
        await page.go_back()
        await expect(page).to_have_url(f"{site.url}/gangs")
        await expect(page.get_by_role("heading", level=1)).to_contain_text("Gangs")
        await page.go_back()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        assert await page.evaluate("window.same"), "no document was built anew"


async def test_a_search_changes_the_page_in_place(site: Site, chromium: Browser) -> None:
    async with a_page(chromium, site) as page:
        await page.goto(f"{site.url}/gangs")
        await page.evaluate("window.same = true")
        await page.fill('input[name="q"]', "bigger")
        await page.keyboard.press("Enter")

        await expect(page.locator("tbody tr")).to_have_count(1)
        assert "q=bigger" in page.url
        assert await page.input_value('input[name="q"]') == "bigger"
        assert await page.evaluate("window.same")


async def test_a_name_is_searched_for_while_it_is_typed(site: Site, chromium: Browser) -> None:
    async with a_page(chromium, site) as page:
        await page.goto(f"{site.url}/gangs?sort=-gang")
        await page.locator('input[name="q"]').press_sequentially("team-a/b")

        await expect(page.locator("tbody tr")).to_have_count(1)
        await expect(page.locator('input[name="q"]')).to_be_focused()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Gangs 1")
        await expect(page).to_have_url(f"{site.url}/gangs?q=team-a%2Fb&sort=-gang")


async def test_a_short_reason_opens_and_stays_open_where_its_gang_goes(site: Site, chromium: Browser) -> None:
    async with a_page(chromium, site) as page:
        await page.clock.install()
        await page.goto(f"{site.url}/gangs")
        whole = page.get_by_text("queue vision has 0 gpus left, the gang needs 24")
        await expect(whole).not_to_be_visible()
        await page.get_by_role("row", name="monster").get_by_text("QuotaExceeded").click()
        await expect(whole).to_be_visible()
        site.cluster.change("team-a/bigger", phase="Running", hold=None)
        site.clock.seconds += 10
        await page.evaluate("document.activeElement.blur()")
        await _let_time_pass(page)

        await expect(page.get_by_role("row", name="bigger")).to_contain_text("Running")
        await expect(whole).to_be_visible()


async def test_groups_of_a_chart_are_left_out_in_place_by_its_legend(site: Site, chromium: Browser) -> None:
    async with a_page(chromium, site) as page:
        await page.goto(f"{site.url}/ledger/use")
        legend = page.get_by_role("button", name="vision")
        await expect(legend).to_have_attribute("aria-pressed", "true")
        await legend.press("Enter")

        await expect(legend).to_have_attribute("aria-pressed", "false")
        await expect(legend).to_be_focused()
        await expect(page).to_have_url(f"{site.url}/ledger/use?hide=vision")
        await expect(page.locator(".chart .series-0")).to_have_count(0)
        await expect(page.locator(".chart .series-1")).to_have_count(1)


async def test_times_are_in_utc_or_in_the_zone_of_the_browser(site: Site, chromium: Browser) -> None:
    async with a_page(chromium, site, timezone_id="Asia/Tokyo") as page:
        await expect(page.locator("footer time")).to_have_text("2026-11-22 12:00:00 UTC")
        await page.get_by_role("button", name="Times: UTC").click()
        await expect(page.locator("footer time")).to_have_text("2026-11-22 21:00:00")
        await page.goto(f"{site.url}/ledger?from=2026-03-01&to=2026-03-02")

        await expect(page.locator("thead")).to_contain_text("Time (Asia/Tokyo)")
        await expect(page.locator("tbody time").first).to_contain_text("2026-03-01 21:")
        await page.get_by_role("button", name="Times: Asia/Tokyo").click()
        await expect(page.locator("footer time")).to_have_text("2026-11-22 12:00:00 UTC")


async def test_a_page_that_cannot_be_swapped_in_place_is_loaded_by_the_browser(site: Site, chromium: Browser) -> None:
    async with a_page(chromium, site) as page:
        await page.evaluate("window.same = true")
        await page.evaluate("document.querySelector('main a').href = '/nothing'")
        await page.locator("main a").first.click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("not")
        assert not await page.evaluate("window.same")

        await page.goto(f"{site.url}/gangs")
        await page.evaluate("window.same = true")
        await page.evaluate("document.querySelector('.visitor').textContent = 'bob'")
        await page.get_by_role("link", name="team-a/train").first.click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("train")
        assert not await page.evaluate("window.same"), "somebody else has signed in meanwhile"

        await page.goto(f"{site.url}/gangs")
        await page.context.clear_cookies()
        await page.get_by_role("link", name="team-a/train").first.click()
        await expect(page.locator("#token")).to_be_visible()
        await page.fill("#token", ADMIN)
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(f"{site.url}/gangs/team-a/train")


async def test_the_theme_is_chosen_and_kept(site: Site, chromium: Browser) -> None:
    async with a_page(chromium, site, color_scheme="light") as page:
        switch = page.get_by_role("button", name="Theme")
        light = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        await switch.click()
        await switch.click()
        await expect(switch).to_have_text("Theme: dark")
        await page.goto(f"{site.url}/gangs")

        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") != light
        await expect(switch).to_have_text("Theme: dark")


async def test_a_choice_from_a_list_is_enough(site: Site, chromium: Browser) -> None:
    async with a_page(chromium, site) as page:
        await page.goto(f"{site.url}/gangs")
        await page.get_by_label("Waits for").select_option("DevicesBusy")
        await page.wait_for_url("**reason=DevicesBusy**")

        await expect(page.get_by_role("link", name="team-c/whispered")).to_be_visible()
        await expect(page.get_by_role("link", name="team-a/bigger")).to_have_count(0)
