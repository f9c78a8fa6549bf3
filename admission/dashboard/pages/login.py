"""Sign-in with a token, and sign-out."""

import structlog
from aiohttp import web

from admission.dashboard import request_context
from admission.dashboard.auth import authentication, session
from admission.dashboard.auth.session import TooLongError
from admission.dashboard.request_context import CONTEXT

log = structlog.get_logger(__name__)


async def login(request: web.Request) -> web.StreamResponse:
    """Show the form for a token."""
    return _login_form(request, goes_to=authentication.local_path(request.query.get("next", "/")))


async def enter(request: web.Request) -> web.StreamResponse:
    """Begin a session if the token in the form is valid."""
    fields = await request.post()
    goes_to = authentication.local_path(fields.get("next", "/"))
    if not authentication.is_own_form(request, fields):
        return _login_form(request, goes_to=goes_to, wrong="The form was not from this page, or too old. Try again.")
    token = fields.get("token")
    token = token.strip() if isinstance(token, str) else ""
    if not session.is_token(token):
        return _login_form(request, goes_to=goes_to, wrong="This is no token: it is empty, or holds spaces.")
    app_context = request.app[CONTEXT]
    visitor = await app_context.reviewer.authenticate(token)
    if visitor is None:
        log.warning("a token was not accepted", peer=request.remote)
        return _login_form(
            request, goes_to=goes_to, wrong="The API server does not accept this token. It may have expired."
        )
    response = web.HTTPSeeOther(goes_to)
    try:
        app_context.sessions.begin(response, token)
    except TooLongError:
        wrong = "This token is too long to be kept by a browser. Use one with fewer groups, or an authenticating proxy."
        return _login_form(request, goes_to=goes_to, wrong=wrong)
    log.info("somebody signed in", user=visitor.name, peer=request.remote)
    raise response


async def leave(request: web.Request) -> web.StreamResponse:
    """End the session."""
    fields = await request.post()
    response = web.HTTPSeeOther("/login")
    if authentication.is_own_form(request, fields):
        app_context = request.app[CONTEXT]
        token = app_context.sessions.token(request)
        if token is not None:
            app_context.reviewer.forget(token)
        app_context.sessions.end(response)
    raise response


def _login_form(request: web.Request, *, goes_to: str, wrong: str = "") -> web.Response:
    status = 400 if wrong else 200
    return request_context.render(request, "login.html", status=status, goes_to=goes_to, wrong=wrong)
