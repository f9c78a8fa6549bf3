"""Reads the pages that people are given: their headings, links and fenced blocks."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OTHERS = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "deploy/chart/README.md")
"""Pages that stand elsewhere in the repository."""

MARKDOWN = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block: where it stands, its language, the attributes behind it, and what is in it.

    Attributes are words (`offline`) and values (`skip="needs a registry"`) after the language, which code hosts do not
    show.
    """

    page: str
    line: int
    language: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def names() -> list[str]:
    """Return the path of every page, from the root of the repository."""
    return [*OTHERS, *sorted(str(path.relative_to(ROOT)) for path in DOCS.rglob("*.md"))]


@cache
def tokens(name: str) -> tuple[Token, ...]:
    return tuple(MARKDOWN.parse((ROOT / name).read_text()))


def blocks(name: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    return [_block(name, token) for token in tokens(name) if token.type == "fence"]


def _block(name: str, token: Token) -> Block:
    assert token.map is not None
    language, *words = shlex.split(token.info) or [""]
    parts = (word.partition("=") for word in words)
    attributes = {key: value for key, _, value in parts}
    return Block(
        page=name, line=token.map[0] + 1, language=language, attributes=attributes, text=token.content.rstrip("\n")
    )


def links(name: str) -> list[str]:
    """Return where the links and pictures of a page lead."""
    found = []
    for token in _inline(name):
        target = token.attrGet("href") if token.type == "link_open" else None
        target = token.attrGet("src") if token.type == "image" else target
        if target is not None:
            found.append(str(target))
    return found


def spans(name: str) -> list[str]:
    """Return the code spans of a page, in order."""
    return [token.content for token in _inline(name) if token.type == "code_inline"]


def _inline(name: str) -> Iterator[Token]:
    for token in tokens(name):
        yield from token.children or ()


def anchors(name: str) -> set[str]:
    """Return what the headings of a page are called in links, as code hosts do it."""
    known: dict[str, int] = {}
    for opening, content in zip(tokens(name), tokens(name)[1:], strict=False):
        if opening.type == "heading_open":
            called = re.sub(r"[^\w -]", "", _words(content).strip().lower()).replace(" ", "-")
            known[called] = known.get(called, -1) + 1
    return {
        called if number == 0 else f"{called}-{number}" for called, most in known.items() for number in range(most + 1)
    }


def _words(content: Token) -> str:
    """Return what a heading shows, without its marks."""
    return "".join(token.content for token in content.children or () if token.type in ("text", "code_inline"))
