"""Finds commands that stand in sentences of the pages, as code spans, and says which of them can be typed as they are.

Many only name a command, or leave open what somebody else has to fill in: `muster why POD`, `kubectl get -o yaml`. One
that changes more than a look at a cluster belongs into a block, where it has its place among the others.
"""

import re
from dataclasses import dataclass

from tests.docs import pages

TOOLS = ("kubectl", "helm", "muster")
PLUGIN = re.compile(r"^kubectl (?=muster\b)")
OPEN = re.compile(r"…|\b[A-Z]{2,}\b")
"""What a reader has to fill in."""

VALUED = re.compile(r" (?:-n|-o|-l) \S+")
"""Options of kubectl whose values are words that name nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A command in a sentence, and the page that it stands on."""

    page: str
    text: str

    @property
    def tool(self) -> str:
        return self.text.partition(" ")[0]

    @property
    def words(self) -> list[str]:
        """What stands behind the tool, but for options."""
        return [word for word in VALUED.sub("", self.text).split()[1:] if not word.startswith("-")]

    @property
    def complete(self) -> bool:
        """Whether it can be typed as it stands: it has a verb, names what it is about, and leaves nothing open."""
        return len(self.words) > 1 and OPEN.search(self.text) is None


def every() -> list[Said]:
    """Return the code spans of all pages that begin with a tool and go on; `kubectl muster` is `muster`."""
    found = ((name, PLUGIN.sub("", span)) for name in pages.names() for span in pages.spans(name))
    return [Said(page=name, text=span) for name, span in found if span.split(" ")[0] in TOOLS and " " in span]
