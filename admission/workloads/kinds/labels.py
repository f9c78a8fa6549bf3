"""What pods say in labels and annotations: where a key is read, and how numbers and names in it are."""

from collections.abc import Callable

from admission.api.kubernetes.pods import Pod

MOST_DIGITS = 6
MOST_CHARACTERS = 63
"""Characters of a text that are shown to people."""

Said = Callable[[Pod], str]
"""Returns what a pod says of something; nothing where it does not."""


def setting(pod: Pod, key: str) -> str:
    """Return what a pod says; a label goes before an annotation of the same key."""
    return pod.meta.labels.get(key) or pod.meta.annotations.get(key, "")


def either(key: str) -> Said:
    """Read a label, or else an annotation of the same key."""
    return lambda pod: setting(pod, key)


def label(key: str) -> Said:
    """Read a label."""
    return lambda pod: pod.meta.labels.get(key, "")


def annotation(*keys: str) -> Said:
    """Read the first of some annotations that is there."""
    return lambda pod: next((text for key in keys if (text := pod.meta.annotations.get(key, ""))), "")


def number(text: str, *, digits: int = MOST_DIGITS) -> int:
    """Return a whole number from 1, or 0 where the text is none, or has too many digits.

    isdigit alone takes digits of every script, int() takes signs, spaces and underscores, and Python refuses to read a
    number of thousands of digits.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else 0


def shown(text: str, longest: int = MOST_CHARACTERS) -> str:
    """Return a text that anybody may have written, short enough for a message."""
    return text if len(text) <= longest else f"{text[:longest]}…"
