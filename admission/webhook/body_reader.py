"""Receipt of a request's body, within the budget for bodies and in time, or the answer that refuses it."""

import asyncio
from dataclasses import dataclass

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError

from admission.webhook.body_budget import Body, BodyBudget
from admission.webhook.refusals import Refusal

MAX_BODY = 8 * 1024 * 1024
"""Bytes. The API server stores objects of at most 1.5 MiB (etcd's limit); a review carries two of them."""

JSON = "application/json"

MESSAGES = {
    Refusal.SIZE: (413, f"a body may have at most {MAX_BODY} bytes"),
    Refusal.BYTES: (429, "the bodies of other reviews take all the memory that there is for them; come again"),
    Refusal.REVIEWS: (429, "as many reviews are under way as are let in; come again"),
}


@dataclass(frozen=True, slots=True)
class Refused:
    """An HTTP status and its message. refusal: None for a malformed request."""

    code: int
    message: str
    refusal: Refusal | None


async def receive(request: web.BaseRequest, budget: BodyBudget, *, seconds: float) -> tuple[bytes, Body] | Refused:
    """Return the body, and its place in the budget, which the caller has to release.

    seconds: how long it may take. Nothing of a refused body is read beyond what has arrived.
    """
    # The header is compared as text first, since parsing it costs as much as everything else here.
    if request.headers.get("Content-Type") != JSON and request.content_type != JSON:
        return Refused(415, f"the content type must be {JSON}", Refusal.ENCODING)
    if request.headers.get("Content-Encoding", "identity") != "identity":
        return Refused(415, "the body must not be compressed", Refusal.ENCODING)
    body = budget.admit(request.content_length)
    if isinstance(body, Refusal):
        return _refused(body)
    content = request.content
    try:
        if content.is_eof():  # it came with its head, as small ones do
            refusal = body.add(content.read_nowait())
            refused = None if refusal is None else _refused(refusal)
        else:
            refused = await _fill(body, content, seconds)
    except BaseException:
        budget.release(body)
        raise
    if refused is not None:
        budget.release(body)
        return refused
    return body.finish(), body


async def _fill(body: Body, content: StreamReader, seconds: float) -> Refused | None:
    try:
        async with asyncio.timeout(seconds) as deadline:
            body.on_cut(lambda: deadline.reschedule(0.0))
            while not content.at_eof():
                refusal = body.add(await content.readany())
                if refusal is not None:
                    return _refused(refusal)
    except TimeoutError:
        if body.refusal is not None:
            return _refused(body.refusal)
        return Refused(408, f"the body was not there within {seconds:g} s", Refusal.BODY)
    except (web.RequestPayloadError, HttpProcessingError):
        return Refused(400, "the body is not what its headers say", None)
    return None


def _refused(refusal: Refusal) -> Refused:
    code, message = MESSAGES[refusal]
    return Refused(code, message, refusal)
