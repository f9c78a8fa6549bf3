"""The heap of the C library, which keeps memory that Python has freed; glibc alone has an interface for it."""

import contextlib
import ctypes

M_ARENA_MAX = -8
"""The parameter of mallopt(3) for the number of heaps, of glibc's malloc.h."""


def share() -> None:
    """Let all threads that start from now on allocate from one heap.

    Otherwise each gets one of its own, which keeps what it has freed: some 5 % of a process that serves. Its lock costs
    little, since the interpreter's lets threads allocate one at a time.
    """
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def trim() -> None:
    """Give free memory back to the system: after a start, what was used to import modules and to read a cluster."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
