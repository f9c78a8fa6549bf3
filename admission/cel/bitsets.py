"""The result of a program on all devices of a slice, as bitsets: bit i stands for the device at index i.

A program's vectorized form runs first, if it has one; the interpreter then evaluates the devices that are undecided.
"""

from admission.api.kubernetes.devices import Device, Slice, Version
from admission.cel import programs
from admission.cel.core.errors import EvaluationError
from admission.cel.eval.parse_cache import ParseCache

_SCALARS: frozenset[type] = frozenset({str, int, bool})


def unreadable(slice_: Slice, parse_cache: ParseCache, *, lists: bool) -> int:
    """Return the devices on which every expression fails. All values are inspected, once for all expressions."""
    result, bit = 0, 1
    amounts, versions = parse_cache.amounts, parse_cache.versions
    for device in slice_.devices:
        for value in device.attributes.values():
            kind = value.__class__
            if kind in _SCALARS or (kind is Version and value in versions):
                continue
            if not _is_readable(device, slice_.driver, parse_cache, lists=lists):
                result |= bit
                break
        else:
            for amount in device.capacity.values():
                if amount.text not in amounts and not _is_readable(device, slice_.driver, parse_cache, lists=lists):
                    result |= bit
                    break
        bit <<= 1
    return result


def _is_readable(device: Device, driver: str, parse_cache: ParseCache, *, lists: bool) -> bool:
    """Build the device. This is rare, since the values of readable devices are in the cache."""
    value = programs.device_value(driver, device, lists=lists, parse_cache=parse_cache)
    return isinstance(value, programs.DeviceValue)


class SliceValues:
    """The CEL values of one slice's devices, built on demand. Lives while the slice's bitsets are computed."""

    def __init__(self, slice_: Slice, parse_cache: ParseCache, *, lists: bool) -> None:
        self.slice = slice_
        self._parse_cache = parse_cache
        self._lists = lists
        self._built: dict[int, programs.DeviceValue | programs.UnreadableDevice] = {}

    def at(self, index: int) -> programs.DeviceValue | programs.UnreadableDevice:
        """Return the value of the device at an index."""
        if index not in self._built:
            device = self.slice.devices[index]
            self._built[index] = programs.device_value(
                self.slice.driver, device, lists=self._lists, parse_cache=self._parse_cache
            )
        return self._built[index]


def evaluate(program: programs.Program, values: SliceValues, failed: int) -> tuple[int, int]:
    """Return the devices on which the program is true, and those on which it fails. failed: the unreadable ones."""
    all_devices = (1 << len(values.slice.devices)) - 1
    matching, undecided = 0, all_devices
    if program.vector_program is not None:
        matching, undecided = program.vector_program.evaluate(values.slice.devices, values.slice.driver)
    matching, undecided = matching & ~failed, undecided & ~failed
    while undecided:
        bit = undecided & -undecided
        undecided ^= bit
        try:
            if program.evaluate(values.at(bit.bit_length() - 1)) is True:
                matching |= bit
        except EvaluationError:
            failed |= bit
    return matching, failed
