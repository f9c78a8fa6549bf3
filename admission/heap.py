"""The heap of the C library, which keeps memory that Python has freed, and when Python looks for garbage.

glibc alone has an interface for its heap.
"""

import contextlib
import ctypes
import gc
from collections.abc import Iterator

GC_THRESHOLDS = (200_000, 50, 1_000)
"""Thresholds of the garbage collector's generations where most objects that are made stay alive (gc.set_threshold)."""

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


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage less often within the block: where a cluster is read or simulated, nearly all objects stay alive.

    With the interpreter's default thresholds, half of the time of reading goes into collections that free nothing.
    """
    before = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextlib.contextmanager
def frozen() -> Iterator[None]:
    """Keep what there is from the garbage collector within the block, which it would visit again and again.

    Where objects are frozen already, nothing is frozen beside them: gc.unfreeze would thaw those, too.
    """
    freezes = gc.get_freeze_count() == 0
    if freezes:
        gc.collect()
        gc.freeze()
    try:
        with rare_collections():
            yield
    finally:
        if freezes:
            gc.unfreeze()
