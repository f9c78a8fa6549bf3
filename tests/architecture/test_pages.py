"""The pages that people are given hang together: every link leads somewhere, and the site shows every page."""

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.api.values import names
from tests.docs import pages
from tests.unit.api import crds

SITE = tomllib.loads((pages.ROOT / "zensical.toml").read_text())["project"]


@pytest.mark.parametrize("name", pages.names())
def test_the_links_of_a_page_lead_somewhere(name: str) -> None:
    for link in pages.links(name):
        path, _, heading = link.partition("#")
        if ":" in path:
            continue
        target = os.path.normpath(Path(name).parent / path) if path else name
        assert (pages.ROOT / target).exists(), f"{name} leads to {link}"
        assert not heading or heading in pages.anchors(target), f"{name} leads to {link}"


def test_the_site_lists_every_page_once() -> None:
    listed = list(_listed(SITE["nav"]))

    assert sorted(listed) == sorted(name.removeprefix("docs/") for name in pages.names() if name.startswith("docs/"))


def _listed(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict):
        for below in part.values():
            yield from _listed(below)
    else:
        for below in part:
            yield from _listed(below)


TEXTS = {name: (pages.ROOT / name).read_text() for name in pages.names()}


@pytest.mark.parametrize("name", [name for name, text in TEXTS.items() if "```yaml" in text])
def test_yaml_is_what_the_schemas_take(name: str) -> None:
    """The blocks of a page are looked for in its test: to parse all pages takes seconds, in each process."""
    problems = {
        block.place: found
        for block in pages.blocks(name)
        if block.language == "yaml"
        for obj in yaml.safe_load_all(block.text)
        if obj.get("apiVersion") == names.API_VERSION and (found := crds.problems(obj))
    }

    assert problems == {}


def test_most_kinds_are_shown_in_yaml() -> None:
    blocks = [
        text for page in TEXTS.values() for text in re.findall(r"^```yaml.*?$(.*?)^```", page, re.MULTILINE | re.DOTALL)
    ]
    shown = {kind for text in blocks for kind in re.findall(r"^kind: (\w+)$", text, re.MULTILINE)}

    assert {"Queue", "Meter", "ClaimPolicy"} <= shown


def test_a_page_has_one_title() -> None:
    titles = {
        name: [one for one in pages.tokens(name) if one.tag == "h1" and one.nesting == 1] for name in pages.names()
    }

    assert {name: len(found) for name, found in titles.items() if len(found) != 1} == {}
