"""How every command and group of commands is made, so that they look and behave alike."""

from collections.abc import Sequence

import typer

WIDTH = 110
"""Columns of help texts, on a terminal that has them."""

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": WIDTH}


def single() -> typer.Typer:
    """Return an application for one command."""
    return typer.Typer(rich_markup_mode=None, add_completion=False, context_settings=CONTEXT)


def group() -> typer.Typer:
    """Return an application for a group of commands; its callback's docstring is its help."""
    return typer.Typer(rich_markup_mode=None, add_completion=False, context_settings=CONTEXT, no_args_is_help=True)


def epilog(examples: Sequence[str], *paragraphs: str) -> str:
    """Return what stands below the options: examples, one a line as they are typed, and paragraphs."""
    # Help text is wrapped by paragraph, but for those that begin with a backspace character.
    listed = "\n".join(["\b", "Examples:", *(f"  {example}" for example in examples)])
    return "\n\n".join([listed, *paragraphs])
