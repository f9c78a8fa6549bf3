"""The express lane: reviews that come whole and as the API server sends them are answered without aiohttp.

To read a request, find its handler, and make and write a response takes aiohttp longer than Muster thinks about a pod.
Here a connection is one object that looks for whole requests to the doors, and writes answers as bytes. It
knows one form of request, and says nothing but yes or no to the review: whatever is unusual in any way, be it in the
head, the body, the order or the time in which its parts come, is handed over to aiohttp, with all that was read and the
rest of the connection.
"""

import asyncio
import functools
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from time import perf_counter, time
from typing import Literal, NamedTuple, Protocol, cast

from admission.webhook import answering
from admission.webhook.answering import Judge, Outcome

LONGEST_BODY = 65_536
"""Bytes. Reviews of pods have 4 to 20 KiB."""

LONGEST_HEAD = 4_096

MOST_HEADS = 1_024
"""Heads that are remembered: those of the API server differ in the length of the body alone."""

HOLD_SECONDS = 1.0
"""How long the rest of a request is waited for here; aiohttp has a limit of its own after that."""

SETTLE_SECONDS = 1.0
"""Until aiohttp has certainly begun with a request that was handed over, and counts it as under way."""

# RFC 9112: a request line, and fields whose names are tokens, without folded lines. Visible ASCII alone.
_HEAD = re.compile(
    rb"POST (/[a-z]+)(?:\?[!-~]*)? HTTP/1\.1\r\n(?:[-!#$%&'*+.^_`|~0-9A-Za-z]+:[\t -~]*\r\n)+\r\n",
)
_LENGTH = re.compile(rb"\r\ncontent-length:[\t ]*([0-9]{1,6})[\t ]*\r\n")
_TYPE = re.compile(rb"\r\ncontent-type:[\t ]*application/json[\t ]*\r\n")
_ONCE = (b"\r\ncontent-length:", b"\r\ncontent-type:", b"\r\nhost:")
_UNUSUAL = re.compile(rb"\r\n(?:transfer-encoding|content-encoding|connection|expect|upgrade|te|trailer):")


class Door(NamedTuple):
    """Where reviews are sent: its name in the metrics, and who judges."""

    name: str
    judge: Judge


class Frame(NamedTuple):
    """A request whose head was read: the path of its door, where its body begins, and where it ends."""

    path: bytes
    start: int
    end: int


class Desk(Protocol):
    """What the lane has to know of the server, and tells it."""

    draining: bool

    @property
    def full(self) -> bool:
        """Whether so many reviews are under way that no other is let in."""

    def begin_review(self) -> None:
        """Note that a review is under way."""

    def end_review(self) -> None:
        """Note that it no longer is."""


def frame(data: bytes) -> Frame | Literal["partial", "unusual"]:
    """Read the head of a request."""
    end = data.find(b"\r\n\r\n", 0, LONGEST_HEAD) + 4
    if end < 4:
        return "partial" if data.startswith(b"POST /") and len(data) < LONGEST_HEAD else "unusual"
    return _framed(data[:end])


@functools.lru_cache(maxsize=MOST_HEADS)
def _framed(head: bytes) -> Frame | Literal["unusual"]:
    usual = _HEAD.fullmatch(head)
    fields = head.lower()
    length = _LENGTH.search(fields)
    if usual is None or length is None or not _TYPE.search(fields) or _UNUSUAL.search(fields):
        return "unusual"
    if any(fields.count(name) != 1 for name in _ONCE) or int(length[1]) > LONGEST_BODY:
        return "unusual"
    return Frame(usual[1], len(head), len(head) + int(length[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What all connections share. doors: by path. ordinary: makes an aiohttp connection."""

    doors: Mapping[bytes, Door]
    desk: Desk
    observe: Callable[[str, Outcome, float], None]
    ordinary: Callable[[], asyncio.Protocol]
    connections: set["Express"] = field(default_factory=set)

    def answer(self, path: bytes, body: bytes) -> bytes | None:
        """Return the whole response to a review; None when there is more to say than yes or no."""
        door = self.doors.get(path)
        if door is None:
            return None
        began = perf_counter()
        try:
            answer = answering.answer(body, door.judge)
        except Exception:  # noqa: BLE001 - whatever it is, it happens again to aiohttp's handler, which tells of it
            return None
        if answer.code != 200:
            return None
        self.observe(door.name, answer.outcome, perf_counter() - began)
        closing = b"Connection: close\r\n" if self.desk.draining else b""
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nDate: %b\r\n%b\r\n%b" % (
            len(answer.body),
            _date(int(time())),
            closing,
            answer.body,
        )

    def close(self) -> None:
        """Close all connections."""
        for connection in tuple(self.connections):
            connection.close()


class Express(asyncio.Protocol):
    """One connection, until it is handed over."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._transport: asyncio.Transport | None = None
        self._held = b""
        self._frame: Frame | None = None
        self._timer: asyncio.TimerHandle | None = None
        """Runs while part of a request is held."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to listen."""
        # Transports of uvloop are none of asyncio's, and do the same.
        self._transport = cast("asyncio.Transport", transport)
        self._lane.connections.add(self)
        # The other machine may vanish without a word.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """Forget what was held."""
        self._lane.connections.discard(self)
        self._let_go()

    def close(self) -> None:
        """Close the connection when all that was written is sent."""
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Answer a request that is whole, wait for one that is not."""
        held = self._held = self._held + data if self._held else data
        whole = self._frame
        if whole is None:
            found = frame(held)
            if found == "unusual" or (self._timer is None and self._lane.desk.full):
                self._hand_over()
                return
            if found == "partial":
                self._hold()
                return
            whole = self._frame = found
        if len(held) < whole.end:
            self._hold()
            return
        response = self._lane.answer(whole.path, held[whole.start :]) if len(held) == whole.end else None
        if response is None or self._transport is None:
            self._hand_over()
            return
        self._transport.write(response)
        self._held, self._frame = b"", None
        self._let_go()
        if self._lane.desk.draining:
            self._transport.close()

    def _hold(self) -> None:
        """Wait for the rest, as a review under way."""
        if self._timer is None:
            self._lane.desk.begin_review()
            self._timer = asyncio.get_running_loop().call_later(HOLD_SECONDS, self._hand_over)

    def _let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._lane.desk.end_review()

    def _hand_over(self) -> None:
        """Let aiohttp read what was read, and all that comes after it."""
        self._lane.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._lane.desk.end_review)
        if self._transport is None or self._transport.is_closing():
            return
        ordinary = self._lane.ordinary()
        self._transport.set_protocol(ordinary)
        ordinary.connection_made(self._transport)
        ordinary.data_received(self._held)


@functools.lru_cache(maxsize=1)
def _date(now: int) -> bytes:
    """Return a second as HTTP writes it."""
    return formatdate(now, usegmt=True).encode()
