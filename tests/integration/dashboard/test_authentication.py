"""Who is let in, how, and what browsers are told."""

import ipaddress
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from http.cookies import SimpleCookie
from typing import Any

import aiohttp
import pytest
from aiohttp import test_utils, web
from structlog.testing import capture_logs
from yarl import URL

from admission.api.kubernetes.access_review import UserInfo
from admission.dashboard.auth import authentication, rbac, session as auth_session
from admission.dashboard.auth.authentication import Proxies
from admission.dashboard.auth.session import Sessions
from admission.errors import ClusterUnavailableError, FixError, ForbiddenError
from tests import dashboard_clusters, dashboards
from tests.dashboards import ADMIN, NOBODY, Site

PAGE = {"Accept": "text/html"}
LOOPBACK = tuple(map(ipaddress.ip_network, ("127.0.0.0/8", "::1/128")))
ELSEWHERE = (ipaddress.ip_network("10.0.0.0/8"),)


class Browser:
    """What a browser does with cookies, and no more: it keeps them though this is plain HTTP, as for localhost."""

    def __init__(self, site: Site, session: aiohttp.ClientSession) -> None:
        self.site = site
        self.cookies: dict[str, str] = {}
        self.set: SimpleCookie = SimpleCookie()
        self._session = session

    async def get(self, path: str, **headers: str) -> aiohttp.ClientResponse:
        return await self._send("GET", path, headers)

    async def post(self, path: str, fields: dict[str, str], **headers: str) -> aiohttp.ClientResponse:
        return await self._send("POST", path, headers, data=fields)

    async def sign_in(self, token: str = ADMIN, goes_to: str = "/", **headers: str) -> aiohttp.ClientResponse:
        page = await (await self.get("/login")).text()
        found = re.search(r'name="form" value="([^"]+)"', page)
        assert found is not None
        return await self.post("/login", {"form": found[1], "token": token, "next": goes_to}, **headers)

    async def _send(self, method: str, path: str, headers: dict[str, str], **rest: Any) -> aiohttp.ClientResponse:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        sent = {**PAGE, **({"Cookie": cookie} if cookie else {}), **headers}
        answer = await self._session.request(
            method, f"{self.site.url}{path}", headers=sent, allow_redirects=False, **rest
        )
        await answer.read()
        self.set = answer.cookies
        for name, morsel in answer.cookies.items():
            self.cookies[name] = morsel.value
            if morsel["max-age"] == "0":
                del self.cookies[name]
        return answer


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with dashboards.a_site() as site, aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield Browser(site, session)


async def test_nobody_is_let_in_by_default(browser: Browser) -> None:
    answer = await browser.get("/gangs?phase=Pending")

    assert answer.status == 303
    assert URL(answer.headers["Location"]).query["next"] == "/gangs?phase=Pending"


async def test_a_program_without_a_token_is_answered_with_unauthorized(browser: Browser) -> None:
    answer = await browser.get("/gangs", Accept="application/json")

    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


async def test_a_token_begins_a_session_and_leads_back(browser: Browser) -> None:
    entered = await browser.sign_in(goes_to="/gangs?phase=Pending")
    page = await browser.get("/gangs")

    assert (entered.status, entered.headers["Location"]) == (303, "/gangs?phase=Pending")
    assert page.status == 200
    assert "ada" in await page.text()


async def test_the_cookie_is_of_this_host_alone_and_no_script_reads_it(browser: Browser) -> None:
    await browser.sign_in()
    cookie = browser.set[auth_session.COOKIE]

    assert cookie.key.startswith("__Host-")
    assert (cookie["secure"], cookie["httponly"], cookie["path"], cookie["domain"]) == (True, True, "/", "")
    assert cookie["samesite"] == "Lax"
    assert ADMIN not in cookie.value


async def test_signing_out_ends_the_session(browser: Browser) -> None:
    await browser.sign_in()
    page = await (await browser.get("/")).text()
    form = re.search(r'action="/logout"><input type="hidden" name="form" value="([^"]+)"', page)
    assert form is not None

    await browser.post("/logout", {"form": form[1]})

    assert auth_session.COOKIE not in browser.cookies
    assert (await browser.get("/")).status == 303


async def test_another_site_cannot_sign_anybody_out(browser: Browser) -> None:
    await browser.sign_in()

    await browser.post("/logout", {"form": "guessed"})

    assert (await browser.get("/")).status == 200


async def test_a_wrong_token_is_refused_and_is_in_no_log(browser: Browser) -> None:
    with capture_logs() as logs:
        answer = await browser.sign_in("secret-but-wrong")

    assert answer.status == 400
    assert "does not accept this token" in await answer.text()
    assert [line["event"] for line in logs] == ["a token was not accepted"]
    assert "secret-but-wrong" not in f"{logs} {await answer.text()}"


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "x" * 20_000], ids=["none", "space", "line", "long"])
async def test_a_malformed_token_is_not_sent_to_the_api_server(browser: Browser, token: str) -> None:
    answer = await browser.sign_in(token)

    assert answer.status == 400
    assert browser.site.reviews.asked == []


FOREIGN = {
    "another site": {"Sec-Fetch-Site": "cross-site"},
    "a sibling": {"Sec-Fetch-Site": "same-site"},
    "an older browser": {"Origin": "https://evil.example"},
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
async def test_a_form_of_another_site_is_refused(browser: Browser, headers: dict[str, str]) -> None:
    answer = await browser.sign_in(**headers)

    assert answer.status == 400
    assert auth_session.COOKIE not in browser.cookies


async def test_a_form_without_our_secret_is_refused(browser: Browser) -> None:
    answer = await browser.post("/login", {"token": ADMIN, "form": ""})

    assert answer.status == 400
    assert auth_session.COOKIE not in browser.cookies


LEADING_AWAY = [
    "//evil.example",
    "https://evil.example",
    "/\\evil.example",
    "javascript:alert(1)",
    "/a\r\nSet-Cookie: b",
]


@pytest.mark.parametrize("goes_to", LEADING_AWAY)
async def test_signing_in_never_leads_elsewhere(browser: Browser, goes_to: str) -> None:
    answer = await browser.sign_in(goes_to=goes_to)

    assert answer.headers["Location"] == "/"


async def test_a_session_that_is_made_up_is_none(browser: Browser) -> None:
    browser.cookies[auth_session.COOKIE] = "gAAAAABmade-up"

    assert (await browser.get("/")).status == 303


async def test_a_session_ends_with_its_time() -> None:
    async with (
        dashboards.a_site(lasting=timedelta(seconds=-1)) as site,
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
    ):
        browser = Browser(site, session)
        await browser.sign_in()
        browser.cookies[auth_session.COOKIE] = browser.set[auth_session.COOKIE].value

        assert (await browser.get("/")).status == 303


async def test_a_session_ends_when_the_token_is_withdrawn(browser: Browser) -> None:
    await browser.sign_in()
    del browser.site.reviews.known[ADMIN]
    before = await browser.get("/")
    browser.site.clock.seconds += rbac.CACHE_SECONDS
    after = await browser.get("/")

    assert (before.status, after.status) == (200, 303)
    assert auth_session.COOKIE not in browser.cookies


async def test_a_right_that_is_withdrawn_holds_no_longer_than_it_is_remembered(browser: Browser) -> None:
    await browser.sign_in()
    before = await browser.get("/queues")
    browser.site.reviews.known[ADMIN] = ("ada", frozenset())
    browser.site.clock.seconds += rbac.CACHE_SECONDS
    after = await browser.get("/queues")

    assert (before.status, after.status) == (200, 403)


async def test_answers_are_remembered_so_that_a_page_asks_little(browser: Browser) -> None:
    await browser.sign_in()
    await browser.get("/")
    asked = len(browser.site.reviews.asked)
    await browser.get("/")

    assert len(browser.site.reviews.asked) == asked


async def test_while_the_api_server_is_away_nothing_is_shown(browser: Browser) -> None:
    await browser.sign_in()
    browser.site.clock.seconds += rbac.CACHE_SECONDS
    browser.site.reviews.error = ClusterUnavailableError("https://10.0.0.1 does not answer")

    answer = await browser.get("/gangs")

    assert answer.status == 503
    assert "team-a" not in await answer.text()
    assert "10.0.0.1" not in await answer.text()


async def test_a_missing_right_of_the_dashboard_is_logged_and_not_shown(browser: Browser) -> None:
    browser.site.reviews.error = ForbiddenError("grant verb create on resource tokenreviews")
    with capture_logs() as logs:
        answer = await browser.sign_in()

    assert answer.status == 500
    assert "tokenreviews" not in await answer.text()
    assert "tokenreviews" in str(logs)


# Proxies.


async def _proxied(proxies: Proxies | None, headers: list[tuple[str, str]]) -> tuple[int, str]:
    async with dashboards.a_site(proxies=proxies) as site, aiohttp.ClientSession() as session:
        sent = [*headers, ("Accept", "text/html")]
        async with session.get(f"{site.url}/gangs", headers=sent, allow_redirects=False) as answer:
            return answer.status, await answer.text()


HEADER = Proxies(user_header="X-Forwarded-User", groups_header="X-Forwarded-Groups", trusted=LOOPBACK)
ADA = [("X-Forwarded-User", "ada")]


async def test_a_trusted_proxy_names_the_user() -> None:
    status, text = await _proxied(HEADER, ADA)

    assert status == 200
    assert "ada" in text
    assert "Sign out" not in text


UNTRUSTED = {
    "no proxy is configured": None,
    "it asks from another address": Proxies(user_header="X-Forwarded-User", trusted=ELSEWHERE),
    "it shows no certificate": Proxies(user_header="X-Forwarded-User", certified=True),
}


@pytest.mark.parametrize("proxies", UNTRUSTED.values(), ids=UNTRUSTED)
async def test_headers_of_anybody_else_are_ignored(proxies: Proxies | None) -> None:
    status, _ = await _proxied(proxies, ADA)

    assert status == 303


BAD_HEADERS = {
    "two users": [*ADA, ("X-Forwarded-User", "eve")],
    "two headers of groups": [*ADA, ("X-Forwarded-Groups", "dev"), ("X-Forwarded-Groups", "ops")],
    "a user of Kubernetes' own": [("X-Forwarded-User", "system:admin")],
    "a group of Kubernetes' own": [*ADA, ("X-Forwarded-Groups", "dev, system:masters")],
}


@pytest.mark.parametrize("headers", BAD_HEADERS.values(), ids=BAD_HEADERS)
async def test_a_proxy_that_passes_on_what_cannot_be_is_refused(headers: list[tuple[str, str]]) -> None:
    status, text = await _proxied(HEADER, headers)

    assert status == 403
    assert "team-a" not in text


async def test_groups_are_passed_on_to_the_review() -> None:
    class Groups(dashboards.Reviews):
        seen: tuple[str, ...] = ()

        async def allows(self, visitor: UserInfo, question: Any) -> bool:
            self.seen = visitor.groups
            return await super().allows(visitor, question)

    reviews = Groups()
    headers = [*ADA, ("X-Forwarded-Groups", "dev, ops, dev")]
    async with dashboards.a_site(proxies=HEADER, reviews=reviews) as site, aiohttp.ClientSession() as session:
        await session.get(f"{site.url}/gangs", headers=headers)

    assert reviews.seen == ("dev", "ops", "system:authenticated")


def test_common_names_are_those_of_the_subject() -> None:
    certificate = {"subject": ((("organizationName", "o"),), (("commonName", "proxy"),))}

    assert authentication.common_names(certificate) == {"proxy"}


# Headers.


@pytest.mark.parametrize("path", ["/", "/login", "/nothing", "/static/muster.css", "/gangs"])
async def test_every_answer_has_the_headers_that_protect_it(browser: Browser, path: str) -> None:
    answer = await browser.get(path, Authorization=f"Bearer {ADMIN}")
    policy = answer.headers["Content-Security-Policy"]

    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert "Server" not in answer.headers


async def test_no_page_has_a_script_or_a_style_of_its_own(browser: Browser) -> None:
    await browser.sign_in()
    paths = (
        "/",
        "/queues",
        "/queues/lab",
        "/gangs",
        "/gangs/team-a/train",
        "/devices/node-3",
        "/ledger",
        "/ledger/use",
    )
    for path in paths:
        text = await (await browser.get(path)).text()
        scripts = re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)

        assert scripts == [""], path
        assert re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", text) is None, path


async def test_pages_are_never_cached_and_assets_for_good(browser: Browser) -> None:
    await browser.sign_in()
    page = await browser.get("/")
    found = re.search(r'"(/static/muster.js\?v=[^"]+)"', await page.text())
    assert found is not None
    asset = await browser.get(found[1])
    again = await browser.get("/static/muster.js", **{"If-None-Match": asset.headers["ETag"]})

    assert page.headers["Cache-Control"] == "no-store"
    assert "immutable" in asset.headers["Cache-Control"]
    assert again.status == 304


async def test_a_body_that_is_too_large_is_not_read(browser: Browser) -> None:
    answer = await browser.post("/login", {"token": "x" * 100_000})

    assert answer.status == 413


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_nothing_can_be_written(browser: Browser, method: str) -> None:
    answer = await browser._send(method, "/gangs/team-a/train", {"Authorization": f"Bearer {ADMIN}"})

    assert answer.status == 405


# What is remembered and sealed.


def test_secrets_are_long_enough(tmp_path: Any) -> None:
    path = tmp_path / "keys"
    path.write_text("short\n")

    with pytest.raises(FixError, match="at least one line of 32 characters"):
        auth_session.read_secrets(path)


def test_a_session_outlives_a_change_of_secrets() -> None:
    old, new = "o" * 32, "n" * 32
    first, both = Sessions([old], timedelta(hours=1)), Sessions([new, old], timedelta(hours=1))
    sealed = web.Response()
    first.begin(sealed, "token")
    request = test_utils.make_mocked_request(
        "GET", "/", headers={"Cookie": f"{auth_session.COOKIE}={sealed.cookies[auth_session.COOKIE].value}"}
    )

    assert both.token(request) == "token"
    assert Sessions([new], timedelta(hours=1)).token(request) is None


async def test_a_user_with_rights_to_single_namespaces_of_too_many_is_asked_to_name_one() -> None:
    cluster = dashboard_clusters.Cluster().queue("q")
    for number in range(rbac.MOST_NAMESPACES + 1):
        cluster.gang(f"ns-{number}/g", "q")
    reviews = dashboards.Reviews()
    reviews.known[NOBODY] = ("eve", frozenset({rbac.GANGS._replace(namespace="ns-7")}))
    async with dashboards.a_site(cluster=cluster, reviews=reviews) as site, aiohttp.ClientSession() as session:
        headers = {"Authorization": f"Bearer {NOBODY}"}
        async with session.get(f"{site.url}/gangs", headers=headers) as answer:
            crowded = await answer.text()
        async with session.get(f"{site.url}/gangs?namespace=ns-7", headers=headers) as answer:
            named = await answer.text()

    assert "too many namespaces" in crowded
    assert "ns-7/g" not in crowded
    assert "ns-7/g" in named
