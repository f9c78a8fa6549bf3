"""Histories of a cluster: random entries, each made by the rules for the book that the ones before it left."""

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from admission.accounting import books
from admission.accounting.books import Book
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster.ledger_entries import Entry, Holding, Placement, Seat
from admission.api.values import names
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid

START = datetime(2026, 1, 1, tzinfo=UTC)
QUEUES = [QueueName("team-a"), QueueName("team-b")]
METERS = [MeterName("gpu"), MeterName("memory")]
ACTOR = "muster/0"

amounts = st.integers(0, 4) | st.integers(2**62, 2**66) | st.just(10**30)
charges = st.dictionaries(st.sampled_from(METERS), amounts)
users = st.sampled_from(["", "ada@example.org", "system:serviceaccount:ns-1:ci"])
namespaces = st.sampled_from(["ns-1", "ns-2"])
classes = st.dictionaries(st.sampled_from(["gpu.example.com", "example.com/fpga"]), st.integers(1, 3))
resources = st.dictionaries(st.sampled_from(["cpu", "memory", "example.com/gpu"]), st.integers(1, 2**63 - 1))
"""What a pod takes of its node without a claim; the last is a device plugin's."""
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


def devices(count: int) -> tuple[RequestDevice, ...]:
    return tuple(RequestDevice(request="r", device=DeviceId("gpu.example", "pool", f"gpu-{n}")) for n in range(count))


@st.composite
def histories(draw: st.DrawFn, *, max_size: int = 12) -> list[Entry]:
    """Return entries in an order in which a controller could have posted them."""
    book, entries = Book(), list[Entry]()
    for number in range(draw(st.integers(0, max_size))):
        entry = draw(_next(book, number))
        if entry is not None:
            book = book.apply(entry)
            entries.append(entry)
    return entries


@st.composite
def _next(draw: st.DrawFn, book: Book, number: int) -> Entry | None:
    # The time of the books never goes back, and no two decisions fall into the same microsecond.
    at = (book.at or START) + timedelta(microseconds=draw(st.integers(1, 10**9)))
    moves = ["grant", "reserve", "usage"] + ["reserve late", "settle", "adjust", "release", "evict"] * bool(
        book.placements
    )
    move = draw(st.sampled_from(moves))
    if move == "grant":
        return books.grant(
            draw(st.sampled_from(QUEUES)),
            draw(st.sampled_from(METERS)),
            draw(st.integers(-(2**70), 2**70)),
            at=at,
            actor=ACTOR,
        )
    if move == "reserve":
        return draw(reservations(number, at))
    if move == "usage":
        return books.usage(book, at=at, actor=ACTOR)
    placement = book.placements[draw(st.sampled_from(sorted(book.placements)))]
    return draw(_movements(move, placement, number, at))


@st.composite
def reservations(draw: st.DrawFn, number: int, at: datetime, placement: Placement | None = None) -> Entry:
    """Return the reservation of a new gang, or of late pods of one that is placed."""
    namespace = draw(namespaces)
    holdings = [
        Holding(
            claim_uid=Uid(f"claim-{number}-{claim}{draw(st.sampled_from(['', '', names.resources_claim(Uid(''))]))}"),
            claim=f"{namespace}/claim-{number}-{claim}",
            devices=devices(draw(st.integers(0, 2))),
            charge=draw(charges),
        )
        for claim in range(draw(st.integers(0, 3)))
    ]
    seats = [
        Seat(
            pod_uid=Uid(f"pod-{number}-{pod}"),
            pod=f"ns/pod-{number}-{pod}",
            node=NodeName("node"),
            claims=tuple(holding.claim_uid for holding in holdings if draw(st.booleans())),
        )
        for pod in range(draw(st.integers(1, 3)))
    ]
    return books.reserve(
        gang_uid=placement.gang_uid if placement else GangUid(f"gang-{number}"),
        gang=placement.gang if placement else f"{namespace}/gang-{number}",
        queue=placement.queue if placement else draw(st.sampled_from(QUEUES)),
        seats=seats,
        holdings=holdings,
        at=at,
        actor=ACTOR,
        reason=draw(texts),
        on_behalf_of=draw(texts),
        user=draw(users),
    )


@st.composite
def _movements(draw: st.DrawFn, move: str, placement: Placement, number: int, at: datetime) -> Entry | None:
    claims = [uid for uid in sorted(placement.holdings) if draw(st.booleans())]
    if move == "settle":
        return books.settle(placement, {uid: draw(_allocated(uid)) for uid in claims}, at=at, actor=ACTOR)
    if move == "adjust":
        updated = {uid: draw(_allocated(uid)) for uid in claims if placement.holdings[uid].settled}
        return books.readjust(placement, updated, at=at, actor=ACTOR)
    if move == "release":
        pods = [uid for uid in sorted(placement.seats) if draw(st.booleans())]
        return books.release(placement, pods=pods, claims=claims, at=at, actor=ACTOR, reason=draw(texts))
    if move == "evict":
        return books.evict(placement, at=at, actor=ACTOR, reason=draw(texts))
    return draw(reservations(number, at, placement))


@st.composite
def _allocated(draw: st.DrawFn, uid: Uid) -> books.Allocated:
    """Return what a claim or pod was given; the classes of devices are not known of allocations from old books."""
    if names.pod_of_resources_claim(uid) is not None:
        return books.Allocated((), draw(charges), draw(resources))
    return books.Allocated(devices(draw(st.integers(0, 3))), draw(charges), draw(st.just({}) | classes))
