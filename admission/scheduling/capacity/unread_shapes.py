"""NodeShapes that cannot be read: which nodes are of them is not known, but none of them counts as deleted.

One is malformed, as by a newer version of Muster, or Muster may not read the kind any more.
"""

from admission.api.capacity import node_shapes
from admission.api.kubernetes.owners import UNSERVED
from admission.api.snapshot import Snapshot


def reason(name: str, snapshot: Snapshot) -> str:
    """Return why a shape cannot be read; empty if it can, or does not exist."""
    if name in snapshot.shapes:
        return ""
    error = snapshot.malformed.get((node_shapes.KIND, name))
    return str(error) if error is not None else _of_kind(snapshot)


def is_gone(name: str, snapshot: Snapshot) -> bool:
    """Return whether a shape does not exist any more."""
    return name not in snapshot.shapes and not reason(name, snapshot)


def any_unread(snapshot: Snapshot) -> bool:
    """Return whether there may be a shape that cannot be read."""
    return bool(_of_kind(snapshot)) or any(kind == node_shapes.KIND for kind, _ in snapshot.malformed)


def _of_kind(snapshot: Snapshot) -> str:
    why = snapshot.unwatched.get(node_shapes.KEY, UNSERVED)
    return "" if why == UNSERVED else f"NodeShapes cannot be read: {why}"
