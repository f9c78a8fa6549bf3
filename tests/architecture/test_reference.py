"""docs/reference is what the code says. `make reference` (this file with `MUSTER_REGENERATE=1`) rewrites it."""

import os
from typing import Any

import pytest
import typer

from admission import cli
from tests.docs import pages, reference
from tests.docs.reference import commands, outline

FOLDER = pages.DOCS / "reference"


@pytest.mark.parametrize("name", reference.PAGES)
def test_the_page_is_what_the_code_says(name: str) -> None:
    path, wanted = FOLDER / name, reference.PAGES[name]()
    if os.environ.get("MUSTER_REGENERATE") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(wanted)

    assert path.exists(), f"{path} is missing: run `make reference`"
    assert path.read_text() == wanted, f"{path} is stale: run `make reference`"


def test_every_command_has_its_section() -> None:
    text = commands.page()

    for word in ("muster simulate", "muster ledger report", "muster fence lift"):
        assert f"# {word}\n" in text


def test_help_shows_what_takes_several_values_without_a_type_of_pythons() -> None:
    assert "list[" not in commands.page()


def test_the_help_that_is_shown_without_an_import_is_that_of_the_commands() -> None:
    wanted = outline.page()
    if os.environ.get("MUSTER_REGENERATE") == "1":
        cli.outline.PATH.write_text(wanted)

    assert cli.outline.PATH.read_text() == wanted, f"{cli.outline.PATH} is stale: run `make reference`"


def test_a_help_has_the_same_words_with_and_without_an_import() -> None:
    """All that typer writes: usage, arguments, options, defaults, and what stands below them."""
    shown = typer.main.get_command(cli.app)
    for one in commands.every()[1:]:
        described: Any = shown
        for word in one.name.split()[1:]:
            described = described.commands[word]
        context = typer.Context(described, info_name=one.context.info_name, parent=one.context.parent)

        assert described.get_help(context) == one.command.get_help(one.context), one.name


def test_examples_of_the_help_are_taken_by_the_parser() -> None:
    examples = [line for one in commands.every() for line in _examples(one.command.epilog or "")]

    assert len(examples) > 10
    for line in examples:
        commands.parse(line)


def _examples(epilog: str) -> list[str]:
    listed = [part for part in epilog.split("\n\n") if part.startswith("\b\nExamples:")]
    return [line.strip() for part in listed for line in part.splitlines()[2:]]


@pytest.mark.parametrize("line", ["muster lint --no-such-option", "muster ledger forget", "cat a | muster why"])
def test_the_parser_refuses_what_is_no_command(line: str) -> None:
    with pytest.raises(Exception, match=r"(?i)no such|missing"):
        commands.parse(line)
