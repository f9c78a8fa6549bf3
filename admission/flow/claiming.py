"""Claims and templates of manifests as the webhook would have them stored: with their defaults, by ClaimPolicies.

For `muster simulate`. Nobody is known who creates them, so an entry that asks who does finds a user without a name.
"""

from collections.abc import Sequence

from admission.api import claims
from admission.api.reading import Json
from admission.flow import completing
from admission.flow.completing import Store
from admission.policy.claims import doors
from admission.policy.claims.doors import ClaimArrival, Knowledge
from admission.policy.claims.subjects import User
from admission.policy.remembering import Memory

KINDS = {"ResourceClaim": False, "ResourceClaimTemplate": True}
"""Kind → whether it is a template."""


def completed(objects: Sequence[Json], store: Store) -> tuple[list[Json], list[str]]:
    """Return the objects with the defaults of those that are about to be created, and what the door warns about.

    store: what the objects amount to. Objects with a UID exist already, and nothing is added to them.
    """
    snapshot, memory = completing.snapshot(store), Memory()
    known = Knowledge(
        snapshot=snapshot,
        defaults=memory.defaults(snapshot),
        limits=memory.limits(snapshot),
        policies=memory.policies(snapshot),
    )
    flawed = {index for index, _ in store.flaws}
    found: list[Json] = []
    notes: list[str] = []
    for index, obj in enumerate(objects):
        is_new = obj["kind"] in KINDS and index not in flawed and not obj["metadata"].get("uid")
        if not is_new:
            found.append(obj)
            continue
        namespace = str(obj["metadata"].get("namespace") or store.namespace)
        arrival = ClaimArrival(
            obj=claims.upgraded(obj), namespace=namespace, user=User(), template=KINDS[str(obj["kind"])]
        )
        done = doors.completion(arrival, known)
        found.append(done.obj)
        notes += [f"{arrival.label}: {text.removeprefix('muster: ')}" for text in done.warnings]
    return found, notes
