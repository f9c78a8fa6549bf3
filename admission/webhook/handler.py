"""From the bytes of a request to the bytes of its answer: the webhook's hot path, without HTTP.

No request makes it raise, unless Muster has a bug. A request that is not a review is answered with a Status and an HTTP
code, and the API server's failurePolicy decides. If the request's uid can be read, a denial is sent instead, since
users see its message.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import msgspec
import structlog

from admission.api.kubernetes import admission_review
from admission.api.kubernetes.admission_review import Review, Verdict
from admission.api.kubernetes.meta import name_in
from admission.api.values import names, strict_json
from admission.api.values.reasons import Denial
from admission.errors import JsonError, MalformedObjectError, RetryError, TooMuchWorkError
from admission.webhook import codec

log = structlog.get_logger(__name__)

Judge = Callable[[Review], Verdict]

STATUS_REASONS = {
    400: "BadRequest",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


class Outcome(StrEnum):
    """The outcome of a review; a label of the metrics."""

    ALLOWED = "allowed"
    PATCHED = "patched"
    DENIED = "denied"
    MALFORMED = "malformed"
    UNREADY = "unready"
    SHED = "shed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """HTTP status, JSON body, and the outcome to count."""

    code: int
    body: bytes
    outcome: Outcome
    reason: str = ""
    """The reason of a denial; else ""."""


LARGE_BODY = 32 * 1024
"""Bytes of a review that may take long."""

LARGE_SELECTORS = 4 * 1024
"""Bytes of a review with CEL that may take long, since compiling it takes longer than all else."""

LONGEST_PAUSE = 0.25
"""Seconds."""


class Turns:
    """The turns of large reviews, each of which blocks the event loop until it is answered.

    They are answered one after the other; after each the loop serves small reviews for as long as it took.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: of the event loop, in seconds."""
        self._clock = clock
        self._queue = asyncio.Lock()
        self._free_at = 0.0

    async def wait(self) -> None:
        """Wait for the turn of a large review; the caller then answers it without awaiting anything."""
        async with self._queue:
            await asyncio.sleep(max(0.0, self._free_at - self._clock()))

    def end(self, seconds: float) -> None:
        """Record that a large review was answered, and how long that took."""
        self._free_at = self._clock() + min(seconds, LONGEST_PAUSE)


def is_large(body: bytes) -> bool:
    """Return whether a review may take long."""
    return len(body) > LARGE_BODY or (len(body) > LARGE_SELECTORS and b'"expression"' in body)


def answer(body: bytes, judge: Judge) -> Answer:
    """Answer one AdmissionReview."""
    try:
        decoded = strict_json.decode(body)
    except JsonError as error:
        return Answer(400, status(400, f"the body is not JSON as Kubernetes writes it: {error}"), Outcome.MALFORMED)
    review = codec.read(decoded)
    if review is None:
        try:
            review = admission_review.decode(decoded)
        except MalformedObjectError as error:
            return _malformed(decoded, error)
    try:
        verdict = _judged(review, judge)
    except RetryError as error:
        return Answer(503, status(503, str(error)), Outcome.UNREADY)
    if verdict.denial is None:
        return Answer(200, encode(review.uid, verdict), Outcome.PATCHED if verdict.patch else Outcome.ALLOWED)
    denial = admission_review.shortened(verdict.denial)
    _log_refusal(review, denial)
    return Answer(200, encode(review.uid, replace(verdict, denial=denial)), Outcome.DENIED, denial.reason)


def _judged(review: Review, judge: Judge) -> Verdict:
    """Return the verdict. An object that cannot be decoded, or takes too much work, is denied."""
    try:
        return judge(review)
    except MalformedObjectError as error:
        return admission_review.refuse_malformed(error)
    except TooMuchWorkError as error:
        return admission_review.refuse_too_much(error)


def encode(uid: str, verdict: Verdict) -> bytes:
    """Write an answer as JSON."""
    return codec.write(uid, verdict) or msgspec.json.encode(admission_review.encode(uid, verdict))


def status(code: int, message: str) -> bytes:
    """Write a metav1.Status, the form in which the API server shows errors."""
    value = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": STATUS_REASONS.get(code, "BadRequest"),
        "message": f"muster: {message}",
    }
    return msgspec.json.encode(value)


def _malformed(decoded: Any, error: MalformedObjectError) -> Answer:
    request = decoded.get("request") if isinstance(decoded, Mapping) else None
    uid = request.get("uid") if isinstance(request, Mapping) else None
    if isinstance(uid, str) and uid:
        return Answer(200, encode(uid, admission_review.refuse_malformed(error)), Outcome.MALFORMED)
    return Answer(400, status(400, _short(error)), Outcome.MALFORMED)


def _log_refusal(review: Review, denial: Denial) -> None:
    """Log a denial with its reason. Admissions are in the API server's audit log, and Muster logs their gangs."""
    log.info(
        "refused",
        reason=denial.reason,
        message=denial.message,
        operation=review.operation,
        resource=review.resource,
        namespace=review.namespace,
        name=review.name or name_in(review.obj).rpartition("/")[2],
        gang_uid=review.controller_uid,
        user=review.username,
        review_uid=review.uid,
        dry_run=review.dry_run,
    )


def _short(error: Exception) -> str:
    """Return the message, cut off because it may quote the request at length."""
    return str(error)[:200]


def prove(_review: Review) -> Verdict:
    """Annotate the Lease of a dry run, by which `dry_run_probe` sees that the webhook is called and patches apply."""
    return Verdict(patch=({"op": "add", "path": "/metadata/annotations", "value": {names.PROOF: names.SEEN}},))
