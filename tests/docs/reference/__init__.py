"""The pages of docs/reference, written from the code: one for each kind of object, and two for the command line."""

from collections.abc import Callable, Mapping
from functools import partial

from admission.dashboard.documents import openapi
from tests.docs.reference import commands, kinds, manual

PAGES: Mapping[str, Callable[[], str]] = {
    **{f"{kind.lower()}.md": partial(kinds.page, kind) for kind in kinds.KINDS},
    "cli.md": commands.page,
    "muster.1": manual.page,
    "dashboard.json": lambda: f"{openapi.text().decode()}\n",
}
"""Name of a page in docs/reference → what writes it."""
