"""Writes tables and plain text in Markdown."""

import re
from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; nothing where it would be empty."""
    lines = [_row([cell.replace("|", r"\|") for cell in row]) for row in rows]
    return [_row(columns), _row(["---"] * len(columns)), *lines] if lines else []


def code(text: str) -> str:
    """Return text as it is typed, whatever is in it."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}"


def plain(text: str) -> str:
    """Return text on one line whose brackets and stars are no marks; what stands between backticks stays code."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    parts[::2] = [re.sub(r"([<\[*_])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
