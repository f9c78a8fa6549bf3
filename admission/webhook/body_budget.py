"""The memory for request bodies: how many bytes all of them may hold, and how many there may be.

`BodyBudget` is the one owner of both counts. A body that is still incomplete after `PROMPT` is cut when there is no
room for a new one: the API server sends a body at once, so a slow client is another one, or has lost its connection.
"""

from collections.abc import Callable

from admission.webhook.refusals import Refusal

FIRST_BYTES = 65_536
"""Bytes that are reserved for a body before it is read, if it declares as many. Nearly every review is smaller, and is
never refused half-way. A larger one reserves room as it arrives, so that a declared length alone takes no room."""

PROMPT = 0.1
"""Seconds. 8 MiB take 70 ms on a link of 1 Gbit/s."""


class Body:
    """A body in memory: its chunks, and the bytes reserved for it.

    Its `BodyBudget` alone changes what is reserved, which is never less than it holds.
    """

    __slots__ = ("_budget", "_chunks", "_on_cut", "began", "refusal", "reserved", "size")

    def __init__(self, budget: "BodyBudget", reserved: int, began: float) -> None:
        self._budget = budget
        self._chunks: list[bytes] = []
        self._on_cut: Callable[[], None] | None = None
        self.size = 0
        self.reserved = reserved
        self.began = began
        self.refusal: Refusal | None = None
        """Why the body is refused; None if it is not."""

    def on_cut(self, call: Callable[[], None]) -> None:
        """Set the function that is called if the body is cut to make room for another one."""
        self._on_cut = call

    def add(self, chunk: bytes) -> Refusal | None:
        """Append a chunk. If the body gets too large, drop all of it and return the reason."""
        self.size += len(chunk)
        if self.refusal is None and self.size > self.reserved:
            self._budget.grow(self, self.size)
        if self.refusal is None:
            self._chunks.append(chunk)
        return self.refusal

    def finish(self) -> bytes:
        """Return the complete body. It stays reserved until it is released, and is not cut any more."""
        self._budget.finish(self)
        whole = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        return whole

    def cut(self, refusal: Refusal) -> None:
        """Drop what was received, to make room for another body."""
        self.refusal = refusal
        self._chunks.clear()
        if self._on_cut is not None:
            self._on_cut()


class BodyBudget:
    """The bodies in memory.

    Always holds: no more than `most_bytes` are reserved by no more than `most_bodies` bodies, and none is larger than
    `largest`. Bodies and readers change the counts only by the methods below. clock: monotonic seconds.
    """

    def __init__(self, *, most_bytes: int, most_bodies: int, largest: int, clock: Callable[[], float]) -> None:
        self._most_bytes = most_bytes
        self._most_bodies = most_bodies
        self._largest = largest
        self._clock = clock
        self._incomplete: dict[Body, None] = {}
        """The oldest first."""
        self._complete: set[Body] = set()
        self.reserved = 0
        """Bytes."""

    def __len__(self) -> int:
        """Return the number of bodies."""
        return len(self._incomplete) + len(self._complete)

    def admit(self, declared: int | None) -> Body | Refusal:
        """Reserve room for a body before it is read. declared: its Content-Length; None if it is chunked."""
        if declared is not None and declared > self._largest:
            return Refusal.SIZE
        first = FIRST_BYTES if declared is None or declared > FIRST_BYTES else declared
        if self._lacking(first, 1) is not None and (refusal := self._make_room(first, bodies=1)) is not None:
            return refusal
        body = Body(self, first, self._clock())
        self._incomplete[body] = None
        self.reserved += first
        return body

    def grow(self, body: Body, size: int) -> None:
        """Raise the reservation of a body to so many bytes, or cut the body if there is no room."""
        more = size - body.reserved
        refusal = Refusal.SIZE if size > self._largest else self._make_room(more, but=body)
        if refusal is not None:
            self._cut(body, refusal)
            return
        body.reserved += more
        self.reserved += more

    def finish(self, body: Body) -> None:
        """Record that a body is complete."""
        if body in self._incomplete:
            del self._incomplete[body]
            self._complete.add(body)

    def release(self, body: Body) -> None:
        """Release the reservation of a body. A no-op for one that was cut."""
        if body in self._complete:
            self._complete.remove(body)
            self.reserved -= body.reserved
        elif body in self._incomplete:
            del self._incomplete[body]
            self.reserved -= body.reserved

    def _make_room(self, more: int, *, bodies: int = 0, but: Body | None = None) -> Refusal | None:
        """Cut overdue bodies, the oldest first, until there is room; if there is none, return what is exhausted."""
        while (lacking := self._lacking(more, bodies)) is not None:
            oldest = next((body for body in self._incomplete if body is not but), None)
            if oldest is None or self._clock() - oldest.began < PROMPT:
                return lacking
            self._cut(oldest, lacking)
        return None

    def _lacking(self, more: int, bodies: int) -> Refusal | None:
        if bodies and len(self._incomplete) + len(self._complete) + bodies > self._most_bodies:
            return Refusal.REVIEWS
        return Refusal.BYTES if self.reserved + more > self._most_bytes else None

    def _cut(self, body: Body, refusal: Refusal) -> None:
        self.release(body)
        body.cut(refusal)
