"""What a message says of the objects that it is about: to anybody, to readers of one namespace, to who may read all."""

from collections.abc import Container, Mapping
from dataclasses import replace

import pytest

from admission.api.muster import gang_references, gangs
from admission.api.muster.gangs import MADE_ROOM_FOR, Evicted
from admission.api.values import reasons, references
from admission.api.values.decoding import Reader
from admission.api.values.reasons import EvictionReason, Hold, HoldReason
from admission.api.values.references import EVERYWHERE, NOWHERE, Kind, Reference, Referent
from admission.kube.writers import status_encoding
from tests.builders import NOON

TEAM: Container[str] = frozenset({"team"})


def a_gang(key: str, queue: str = "research", devices: int = 0, uid: str = "") -> Referent:
    return Referent(kind=Kind.GANG, key=key, queue=queue, devices=devices, uid=uid)


def a_claim(key: str, gang: str = "", queue: str = "", devices: int = 1) -> Referent:
    return Referent(
        kind=Kind.CLAIM, key=key, gang=gang, queue=queue, devices=devices, uid=f"uid-{key}", gang_uid=gang and "u-g"
    )


FIVE = (
    "a gang of queue q4 that holds 5 devices, a gang of queue q3 that holds 4 devices, a gang of queue q2 that holds 3"
    " devices and 2 more"
)
WORDS: dict[str, tuple[list[Referent], str, str, str]] = {
    "a gang": ([a_gang("hidden/g")], "a gang of queue research", "a gang of queue research", "gang hidden/g"),
    "a gang of one's own": ([a_gang("team/g")], "a gang of queue research", "gang team/g", "gang team/g"),
    "claims of one gang": (
        [a_claim("hidden/c0", "hidden/g", "research", 4), a_claim("hidden/c1", "hidden/g", "research", 4)],
        "a gang of queue research that holds 8 devices",
        "a gang of queue research that holds 8 devices",
        "claim hidden/c0 of gang hidden/g and claim hidden/c1 of gang hidden/g",
    ),
    "claims of several": (
        [a_claim("hidden/c", "hidden/g", "research", 6), a_claim("team/c", "team/g", "research", 2)],
        "2 gangs of queue research that hold 8 devices",
        "claim team/c of gang team/g and a gang of queue research that holds 6 devices",
        "claim hidden/c of gang hidden/g and claim team/c of gang team/g",
    ),
    "gangs of several queues": (
        [a_gang("hidden/a", "left", 1), a_gang("hidden/b", "right", 3), a_gang("other/c", "right", 4)],
        "2 gangs of queue right that hold 7 devices and a gang of queue left that holds 1 device",
        "2 gangs of queue right that hold 7 devices and a gang of queue left that holds 1 device",
        "gangs hidden/a, hidden/b and other/c",
    ),
    "more than are named": (
        [a_gang(f"hidden/g{at}", f"q{at}", at + 1) for at in range(5)],
        FIVE,
        FIVE,
        "gangs hidden/g0, hidden/g1, hidden/g2 and 2 more",
    ),
    "a claim of no gang": ([a_claim("hidden/c", devices=0)], "a claim", "a claim", "claim hidden/c"),
    "pods": (
        [Referent(kind=Kind.POD, key="hidden/p"), Referent(kind=Kind.POD, key="team/p", note="which cannot be read")],
        "2 pods",
        "pod team/p (which cannot be read) and a pod",
        "pod hidden/p and pod team/p (which cannot be read)",
    ),
}


def read_by(message: str, found: tuple[Reference, ...], audience: Container[str]) -> str:
    return references.render(message, found, audience)[0]


@pytest.mark.parametrize(("referents", "anybody", "team", "everywhere"), WORDS.values(), ids=WORDS)
def test_the_words_for_objects_follow_from_the_reader(
    referents: list[Referent], anybody: str, team: str, everywhere: str
) -> None:
    reference = references.refer(referents)
    message = f"taken by {reference.phrase}; wait"

    assert reference.phrase == anybody
    assert read_by(message, (reference,), NOWHERE) == message
    assert read_by(message, (reference,), TEAM) == f"taken by {team}; wait"
    assert read_by(message, (reference,), EVERYWHERE) == f"taken by {everywhere}; wait"


@pytest.mark.parametrize("referents", [words[0] for words in WORDS.values()], ids=WORDS)
def test_what_is_written_for_a_namespace_is_read_in_full_by_who_finds_the_rest_by_uid(
    referents: list[Referent],
) -> None:
    known = [replace(one, uid=f"uid-{one.key}") for one in referents]
    reference = references.refer(known, detail="holders")
    hold = Hold(HoldReason.DEVICES_BUSY, reference.phrase, {"holders": ["?"]}, (reference,))
    full = reasons.for_reader(hold, EVERYWHERE)

    shown = reasons.for_reader(hold, TEAM)
    wire = status_encoding._hold(shown, {}, now=NOON)
    assert "hidden/" not in str(wire).replace("uid-hidden/", "")
    read = Hold(
        HoldReason.DEVICES_BUSY,
        wire["message"],
        wire["details"],
        references.decode(Reader({"r": wire["references"]}).children("r"), "team"),
    )
    assert reasons.for_reader(read, TEAM) == shown, "who finds nothing reads it as it was written"

    keys = {f"uid-{one.key}": one.key for one in known} | {"u-g": "hidden/g"}
    found = references.resolve(read.references, keys)
    again = reasons.for_reader(Hold(read.reason, read.message, read.details, found), EVERYWHERE)
    notes = [one.note for one in known if one.note and one.key.startswith("hidden")]
    assert (again.message, again.details) == (full.message, full.details) or notes


def test_two_equal_phrases_stand_for_what_each_of_them_refers_to() -> None:
    one, other = references.refer([a_gang("hidden/a")]), references.refer([a_gang("hidden/b")])

    assert read_by(f"{one.phrase} before {other.phrase}", (one, other), EVERYWHERE) == (
        "gang hidden/a before gang hidden/b"
    )


def test_a_phrase_that_was_cut_off_changes_nothing() -> None:
    reference = references.refer([a_gang("hidden/a")])

    assert read_by("a gang of que…", (reference,), EVERYWHERE) == "a gang of que…"


def of_status(*referents: Referent, detail: str = "") -> Reference:
    """Return a reference as a status has it."""
    return references.identify(references.refer(referents, detail=detail), lambda one: one)


def read_back(reference: Reference) -> Reference:
    _, shown = references.render(reference.phrase, (reference,), TEAM)
    (wire,) = status_encoding._references(shown) or [{}]
    [read] = references.decode(Reader({"r": [wire]}).children("r"), "team")
    return read


def test_of_very_many_objects_those_that_hold_most_are_kept_and_the_rest_is_counted() -> None:
    reference = of_status(*(a_gang(f"hidden/g{at}", devices=1 + at // 50, uid=f"u{at}") for at in range(100)))
    assert reference.phrase == "64 gangs of queue research that hold 114 devices and 36 more"
    assert (len(reference.referents), reference.count) == (references.KEPT + 1, 100)

    read = read_back(reference)
    assert read_by(reference.phrase, (read,), TEAM) == reference.phrase
    [found] = references.resolve((read,), {"u50": "hidden/g50", "u51": "hidden/g51"})
    assert read_by(reference.phrase, (found,), EVERYWHERE) == (
        "gangs hidden/g50, hidden/g51, 62 gangs of queue research that hold 110 devices and 36 more"
    )


def test_of_many_claims_their_gangs_are_kept_and_of_gangs_those_of_each_queue_counted() -> None:
    few = of_status(*(a_claim(f"hidden/c{at:02}", f"hidden/g{at % 3}", "research") for at in range(20)))
    assert read_by(few.phrase, (few,), EVERYWHERE) == "gangs hidden/g0, hidden/g1 and hidden/g2"
    assert few.phrase == "3 gangs of queue research that hold 20 devices"

    many = of_status(*(a_gang(f"hidden/g{at:02}", f"q{at % 2}", 1) for at in range(40)))
    assert many.phrase == "20 gangs of queue q0 that hold 20 devices and 20 gangs of queue q1 that hold 20 devices"
    assert [one.count for one in many.referents] == [*[1] * references.KEPT, 12, 12]
    assert read_by(many.phrase, (read_back(many),), TEAM) == many.phrase


def test_the_claims_of_a_gang_without_a_uid_stay_claims_of_one_gang() -> None:
    claims = [Referent(kind=Kind.CLAIM, key=f"hidden/c{at}", gang="hidden/g", uid=f"u{at}") for at in range(2)]
    _, shown = references.render("", (references.refer(claims),), NOWHERE)

    assert references.phrase(shown[0].referents, EVERYWHERE) == "a gang"
    assert references.uids(shown) == {"u0", "u1"}


def test_a_reference_of_a_newer_muster_keeps_its_phrase() -> None:
    written = [{"text": "a lease", "objects": [{"kind": "Lease", "uid": "u"}], "count": 1}]

    [read] = references.decode(Reader({"r": written}).children("r"), "team")

    assert read_by("it waits for a lease", (read,), EVERYWHERE) == "it waits for a lease"


CONCEALED: dict[str, tuple[str, str]] = {
    "a gang": (
        "Reclaimed: gang hidden/merger takes back what queue a has",
        "Reclaimed: gang (of another namespace) takes back what queue a has",
    ),
    "several": ("gangs hidden/a, team/b and 2 more", "gangs (of another namespace), team/b and 2 more"),
    "one's own": ("pod team/train-0 went away before", "pod team/train-0 went away before"),
    "a device": ("device gpu.example.com/a/gpu-0 is gone", "device gpu.example.com/a/gpu-0 is gone"),
    "a device of a driver without dots": ("device gpu/a/gpu-0 is gone", "device gpu/a/gpu-0 is gone"),
    "one of our pages": (
        "(see docs/placement.md for the setting `fence`)",
        "(see docs/placement.md for the setting `fence`)",
    ),
    "the key of a label": ("muster.dev/queue of its pods", "muster.dev/queue of its pods"),
}


@pytest.mark.parametrize(("text", "shown"), CONCEALED.values(), ids=CONCEALED)
def test_a_reason_in_the_books_is_read_without_what_is_in_other_namespaces(text: str, shown: str) -> None:
    assert references.conceal(text, TEAM) == shown
    assert references.conceal(text, EVERYWHERE) == text


def evicted(wire: Mapping[str, object], namespace: str = "team") -> Evicted:
    found = gangs.decode_evicted(Reader(dict(wire)), namespace)
    assert found is not None
    return found


def test_an_eviction_that_an_older_muster_has_written_is_not_written_again_with_its_name() -> None:
    message = "gang hidden/merger takes back what queue a has borrowed from queue b or those above"
    before = {"reason": "Reclaimed", "message": message, "at": "2026-11-21T12:00:00Z", "madeRoomFor": "hidden/merger"}

    read = evicted(before)
    again = status_encoding._evicted(gang_references.evicted_for_reader(read, TEAM))

    assert read.made_room_for == "hidden/merger"
    assert "hidden" not in str(again)
    assert gang_references.evicted_for_reader(read, EVERYWHERE).message == message


def test_for_whom_a_gang_was_evicted_is_known_again_by_uid() -> None:
    reference = references.refer([a_gang("hidden/merger", uid="u")], detail=MADE_ROOM_FOR)
    message = f"{reference.phrase} takes back what it lent"
    eviction = Evicted(
        reason=EvictionReason.RECLAIMED,
        message=message,
        at=NOON,
        made_room_for="hidden/merger",
        references=(reference,),
    )
    wire = status_encoding._evicted(gang_references.evicted_for_reader(eviction, TEAM))
    assert wire is not None
    assert "madeRoomFor" not in wire

    read = gang_references.evicted_resolved(evicted(wire), {"u": "hidden/merger"})

    assert read.made_room_for == "hidden/merger"
    assert gang_references.evicted_for_reader(read, EVERYWHERE).message == "gang hidden/merger takes back what it lent"
