"""The hash that chains a transaction to its predecessor.

SHA-256 over canonical JSON (see `encoding`) of everything that the transaction says, its place in the chain, and the
predecessor's digest: whoever changes, removes, inserts or moves a row has to write every later row anew, and the head.
"""

import hashlib
from datetime import UTC

from admission.api.entries import Entry
from admission.ledger import encoding


def digest(entry: Entry, *, cluster: str, epoch: int, sequence: int, previous: str) -> str:
    """Return the hexadecimal digest of an entry at its place in the chain of a cluster."""
    document = {
        "cluster": cluster,
        "epoch": epoch,
        "sequence": sequence,
        "previous": previous,
        "kind": entry.kind,
        "key": entry.key,
        "at": entry.at.astimezone(UTC).isoformat(timespec="microseconds"),
        "actor": entry.actor,
        "reason": entry.reason,
        "queue": entry.queue,
        "on_behalf_of": entry.on_behalf_of,
        "gang_uid": entry.gang_uid,
        "gang": entry.gang,
        "postings": [[p.queue, p.meter, p.bucket, str(p.amount), p.claim] for p in entry.postings],
        "seats": encoding.of_seats(entry.seats),
        "holdings": encoding.of_holdings(entry.holdings),
        "closes": list(entry.closes),
        **({"user": entry.user} if entry.user else {}),
    }
    return hashlib.sha256(encoding.text(document).encode()).hexdigest()
