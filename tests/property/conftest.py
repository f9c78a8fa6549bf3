"""What tests of laws share."""

import pytest

from admission.cel.syntax import parser


@pytest.fixture(scope="session")
def cel_grammars() -> None:
    """Build the grammars of CEL, which is done once in the life of a process and is no part of what is bounded."""
    parser.parse("true", escapes=True)
    parser.parse("true", escapes=False)
