"""docs/reference is what the code says. `make reference` (this file with `MUSTER_REGENERATE=1`) rewrites it."""

import os

import pytest

from admission import cli
from tests.docs import pages, reference
from tests.docs.reference import commands

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


def test_the_summary_of_a_command_is_that_of_its_help() -> None:
    """`muster --help` imports no command to show it."""
    helps = {one.name: one.command.help.split("\n\n")[0] for one in commands.every() if one.name.count(" ") == 1}

    assert {name: " ".join(text.split()) for name, text in helps.items()} == {
        f"muster {name}": command.summary for name, command in cli.COMMANDS.items()
    }


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
