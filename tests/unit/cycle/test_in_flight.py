"""What the leader has written and its view does not show yet."""

from dataclasses import replace

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.meta import Meta
from admission.api.snapshot import Snapshot, Version, changed
from admission.api.values.names import Uid
from admission.cycle.state.in_flight import InFlight
from tests.unit.dra.clusters import a_claim, a_request

MANY = 2 * Version.PART


def a_version(claim: Claim, number: int) -> Claim:
    return replace(claim, meta=replace(claim.meta, resource_version=str(number)))


def a_snapshot(claims: Version[str, Claim]) -> Snapshot:
    return Snapshot(claims=claims)


def the_claims() -> Version[str, Claim]:
    claims = Version[str, Claim]()
    for at in range(MANY):
        claim = a_version(a_claim(f"claim-{at:03}", a_request()), 1)
        claims.put(claim.meta.key, claim)
    return claims


def test_a_claim_counts_as_written_until_it_is_seen_in_that_version_or_is_gone() -> None:
    in_flight, claims = InFlight(), the_claims()
    first, second, *_ = claims
    assert in_flight.apply_to(a_snapshot(claims)).claims is claims

    for key in (first, second):
        in_flight.assume_claim(a_version(claims[key], 5))
    assumed = in_flight.apply_to(a_snapshot(claims)).claims
    assert {key: assumed[key].meta.resource_version for key in assumed if assumed[key] is not claims[key]} == {
        first: "5",
        second: "5",
    }

    seen = Version(claims)
    seen.put(first, a_version(claims[first], 6))
    seen.drop(second)
    shown = in_flight.apply_to(a_snapshot(seen)).claims
    assert shown == seen
    assert sorted(changed(assumed, shown)) == sorted((first, second))


def test_whoever_follows_the_claims_is_told_what_is_assumed_without_a_look_at_all() -> None:
    in_flight, claims = InFlight(), the_claims()
    key = next(iter(claims))
    in_flight.assume_claim(a_version(claims[key], 5))
    before = in_flight.apply_to(a_snapshot(claims)).claims
    in_flight.assume_claim(a_version(claims[key], 6))
    after = in_flight.apply_to(a_snapshot(claims)).claims

    assert isinstance(after, Version)
    assert [*(after.since(before) or ())] == [key]
    assert after[key].meta.resource_version == "6"
    assert in_flight.apply_to(a_snapshot(claims)).claims is after


def test_a_claim_of_another_uid_is_another_one() -> None:
    in_flight, claims = InFlight(), the_claims()
    key = next(iter(claims))
    in_flight.assume_claim(a_version(claims[key], 5))
    again = Version(claims)
    again.put(key, replace(claims[key], meta=Meta(name=claims[key].meta.name, namespace="team", uid=Uid("anew"))))

    assert in_flight.apply_to(a_snapshot(again)).claims == again
