"""The constructors of all commands and groups, so that they look and behave alike."""

from collections.abc import Sequence

import typer

WIDTH = 110
"""The most columns of help texts."""

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": WIDTH}


def single() -> typer.Typer:
    """Return an application for one command."""
    return typer.Typer(rich_markup_mode=None, add_completion=False, context_settings=CONTEXT)


def group() -> typer.Typer:
    """Return an application for a group of commands; its callback's docstring is its help."""
    return typer.Typer(rich_markup_mode=None, add_completion=False, context_settings=CONTEXT, no_args_is_help=True)


def epilog(examples: Sequence[str], *paragraphs: str) -> str:
    """Return the text below the options: examples as they are typed, one per line, and paragraphs."""
    # Help text is rewrapped by paragraph, except for paragraphs that begin with a backspace character.
    listed = "\n".join(["\b", "Examples:", *(f"  {example}" for example in examples)])
    return "\n\n".join([listed, *paragraphs])
