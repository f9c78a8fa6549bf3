"""The PromQL that measures devices, by driver.

A query is an instant vector with the label `uuid` alone, for the devices that `$uuids` names, a regular expression; its
value is that of the `$step` before the time of evaluation, so that a gap in the data is one in the result.
The metrics are those of the recording rules in deploy/chart/files/usage-rules.yaml, which say where they come from.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from admission.accounting.device_samples import Quantity
from admission.errors import FixError

Queries = Mapping[tuple[str, Quantity], str]
"""By driver and quantity. Utilization is a share of 0 to 1, memory in bytes, power in watts."""

_MEBIBYTE = " * 1048576"
_PERCENT = " / 100"


def _by(label: str, value: str, *, of: str = "max") -> str:
    """Return a vector by `uuid` from one with the UUID in another label."""
    return f'{of} by (uuid) (label_replace({value}, "uuid", "$1", "{label}", "(.+)"))'


def _nvidia(metric: str, over_time: str) -> str:
    """Return what DCGM exporter measures of whole devices, and of the MIG instances whose UUID it knows."""
    device = f'{over_time}({metric}{{GPU_I_ID="",UUID=~"$uuids"}}[$step])'
    instance = f'{over_time}({metric}{{GPU_I_ID!="",dra_mig_device_uuid=~"$uuids"}}[$step])'
    return f"({_by('UUID', device)} or {_by('dra_mig_device_uuid', instance)})"


_NVIDIA, _AMD, _INTEL, _TPU = "gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com", "tpu.google.com"

DEFAULTS: Queries = {
    # The engine goes before the utilization: it is measured of MIG instances, too, and says more.
    (_NVIDIA, Quantity.UTILIZATION): (
        _nvidia("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "avg_over_time")
        + " or "
        + _by("UUID", 'avg_over_time(DCGM_FI_DEV_GPU_UTIL{GPU_I_ID="",UUID=~"$uuids"}[$step])')
        + _PERCENT
    ),
    (_NVIDIA, Quantity.MEMORY): _nvidia("DCGM_FI_DEV_FB_USED", "max_over_time") + _MEBIBYTE,
    # An instance has no power of its own.
    (_NVIDIA, Quantity.POWER): _by("UUID", 'avg_over_time(DCGM_FI_DEV_POWER_USAGE{GPU_I_ID="",UUID=~"$uuids"}[$step])'),
    (_AMD, Quantity.UTILIZATION): _by("gpu_uuid", 'avg_over_time(gpu_gfx_activity{gpu_uuid=~"$uuids"}[$step])')
    + _PERCENT,
    (_AMD, Quantity.MEMORY): _by("gpu_uuid", 'max_over_time(gpu_used_vram{gpu_uuid=~"$uuids"}[$step])') + _MEBIBYTE,
    (_AMD, Quantity.POWER): _by("gpu_uuid", 'avg_over_time(gpu_package_power{gpu_uuid=~"$uuids"}[$step])'),
    (_INTEL, Quantity.UTILIZATION): 'max by (uuid) (avg_over_time(xpum_engine_ratio{uuid=~"$uuids"}[$step]))',
    # Of each tile.
    (_INTEL, Quantity.MEMORY): 'sum by (uuid) (max_over_time(xpum_memory_used_bytes{uuid=~"$uuids"}[$step]))',
    (_INTEL, Quantity.POWER): 'max by (uuid) (avg_over_time(xpum_power_watts{uuid=~"$uuids"}[$step]))',
    (_TPU, Quantity.UTILIZATION): _by(
        "accelerator_id", 'avg_over_time(tensorcore_utilization{make="cloud-tpu",accelerator_id=~"$uuids"}[$step])'
    )
    + _PERCENT,
    (_TPU, Quantity.MEMORY): _by(
        "accelerator_id", 'max_over_time(memory_used{make="cloud-tpu",accelerator_id=~"$uuids"}[$step])'
    ),
}

_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")


def chosen(given: Mapping[Quantity, Iterable[str]]) -> Queries:
    """Return the defaults and those of the settings, each `driver=query`, which go before. An empty query asks nothing.

    Raises FixError for one without a driver.
    """
    return {key: query for key, query in {**DEFAULTS, **_given(given)}.items() if query}


def uncounted(given: Mapping[Quantity, Iterable[str]]) -> frozenset[str]:
    """Return the drivers of whose devices the settings say that nobody asks how busy they are. Raises FixError."""
    return frozenset(
        driver for (driver, quantity), query in _given(given).items() if quantity is Quantity.UTILIZATION and not query
    )


def _given(given: Mapping[Quantity, Iterable[str]]) -> Queries:
    found: dict[tuple[str, Quantity], str] = {}
    for quantity, texts in given.items():
        for text in texts:
            driver, equals, query = text.partition("=")
            if not driver.strip() or not equals:
                raise FixError(f"usage.prometheus.{quantity}: {text[:60]!r} is not driver=query")
            found[driver.strip(), quantity] = query.strip()
    return found


def filled(query: str, uuids: Sequence[str], step: int) -> str:
    """Return a query for some devices. step: in seconds."""
    pattern = "|".join(_SPECIAL.sub(r"\\\g<0>", uuid) for uuid in uuids)
    text = pattern.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return query.replace("$uuids", text).replace("$step", f"{step}s")
