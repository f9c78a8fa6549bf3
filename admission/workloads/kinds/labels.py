"""Readers of pods' labels and annotations, and of numbers and names in them."""

from collections.abc import Callable

from admission.api.kubernetes.pods import Pod

MOST_DIGITS = 6
MOST_CHARACTERS = 63
"""The most characters of a foreign text in a message."""

PodText = Callable[[Pod], str]
"""Reads a text of a pod; "" if it has none."""


def setting(pod: Pod, key: str) -> str:
    """Return the label of a key, or else the annotation of the same key."""
    return pod.meta.labels.get(key) or pod.meta.annotations.get(key, "")


def either(key: str) -> PodText:
    """Read a label, or else an annotation of the same key."""
    return lambda pod: setting(pod, key)


def label(key: str) -> PodText:
    """Read a label."""
    return lambda pod: pod.meta.labels.get(key, "")


def annotation(*keys: str) -> PodText:
    """Read the first of some annotations that is present."""
    return lambda pod: next((text for key in keys if (text := pod.meta.annotations.get(key, ""))), "")


def number(text: str, *, digits: int = MOST_DIGITS) -> int:
    """Return a whole number from 1, or 0 if the text is none or has too many digits.

    isdigit alone accepts digits of every script, int() accepts signs, spaces and underscores, and Python refuses to
    convert thousands of digits.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else 0


def shortened(text: str, longest: int = MOST_CHARACTERS) -> str:
    """Return a foreign text, cut to a length that fits a message."""
    return text if len(text) <= longest else f"{text[:longest]}…"
