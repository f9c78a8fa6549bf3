"""The chart's recording rules say of each allocated device what exporters measure of it, and nothing of the others.

promtool evaluates them as Prometheus does, on series that are written here as it wants them: `0+6x20` begins with 0 and
grows by 6 each minute, twenty times, and `_` is a scrape without the series.
"""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.promtool import programs

RULES = Path(__file__).parents[2] / "deploy" / "chart" / "files" / "usage-rules.yaml"

pytestmark = pytest.mark.timeout(120, func_only=True)


def allocated(uuid: str, gang: str = "train", *, claim: str = "", **labels: str) -> str:
    """Return the series of a device that a gang of the queue vision has."""
    known = {
        "driver": "gpu.nvidia.com",
        "class": "h100",
        "uuid": uuid,
        "namespace": "ml",
        "claim": claim or gang,
        "gang": gang,
        "queue": "vision",
        "queue_path": "research/vision",
        "user": "zoe",
        "instance": "muster-0",
    }
    return _series("muster_device_allocation_info", known | labels)


def dcgm(metric: str, uuid: str, **labels: str) -> str:
    """Return a series as NVIDIA's DCGM exporter has it. labels: those of MIG and DRA."""
    known = {"gpu": "0", "UUID": uuid, "device": "nvidia0", "modelName": "NVIDIA H100", "Hostname": "node-a"}
    return _series(f"DCGM_FI_{metric}", known | labels)


def mig(instance: str, uuid: str = "") -> dict[str, str]:
    """Return the labels of a MIG instance. uuid: as the exporter knows it of the DRA driver."""
    found = {"GPU_I_PROFILE": "1g.12gb", "GPU_I_ID": instance}
    return found | {"dra_mig_device_uuid": uuid} if uuid else found


def _series(name: str, labels: dict[str, str]) -> str:
    return f"{name}{{{','.join(f'{label}={json.dumps(value)}' for label, value in labels.items())}}}"


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is scraped, what is asked after some minutes, and the values of the answer by its labels."""

    series: dict[str, str]
    asked: str
    at: str = "5m"
    found: dict[str, float]


def by(labels: str, record: str) -> str:
    return f"sum by ({labels}) (muster:{record})"


BUSY = {dcgm("PROF_GR_ENGINE_ACTIVE", "GPU-1"): "0.75x20", dcgm("PROF_GR_ENGINE_ACTIVE", "GPU-2"): "0x20"}
TWO = {allocated("GPU-1"): "1x20", allocated("GPU-2", "idle"): "1x20"}
INSTANCES = {
    dcgm("PROF_GR_ENGINE_ACTIVE", "GPU-1", **mig("7", "MIG-7")): "0.5x20",
    dcgm("PROF_GR_ENGINE_ACTIVE", "GPU-1", **mig("8", "MIG-8")): "0.25x20",
    dcgm("DEV_FB_USED", "GPU-1", **mig("7", "MIG-7")): "1024x20",
    dcgm("DEV_POWER_USAGE", "GPU-1", **mig("7", "MIG-7")): "600x20",
}
OTHERS = {
    "gpu.amd.com": (
        ('gpu_gfx_activity{gpu_uuid="X",gpu_id="0"}', "50x20"),
        ('gpu_used_vram{gpu_uuid="X",gpu_id="0"}', "2x20"),
        ('gpu_package_power{gpu_uuid="X",gpu_id="0"}', "300x20"),
    ),
    "gpu.intel.com": (
        ('xpum_engine_ratio{uuid="X",sub_dev="0"}', "0.5x20"),
        ('xpum_memory_used_bytes{uuid="X",sub_dev="0"}', "2097152x20"),
        ('xpum_power_watts{uuid="X"}', "300x20"),
    ),
    "tpu.google.com": (
        ('tensorcore_utilization{make="cloud-tpu",accelerator_id="X"}', "50x20"),
        ('memory_used{make="cloud-tpu",accelerator_id="X"}', "2097152x20"),
        ('memory_used{accelerator_id="X"}', "7x20"),
    ),
}

CASES = {
    "a busy gang and an idle one": Case(
        series=TWO | BUSY,
        asked=by("gang", "allocation_active:ratio"),
        found={'{gang="train"}': 0.75, '{gang="idle"}': 0},
    ),
    "all that the exporter measures, in one unit": Case(
        series={
            allocated("GPU-1"): "1x20",
            dcgm("DEV_GPU_UTIL", "GPU-1"): "40x20",
            dcgm("DEV_FB_USED", "GPU-1"): "2x20",
            dcgm("DEV_POWER_USAGE", "GPU-1"): "310x20",
        },
        asked='sum by (__name__, gang, queue_path) ({__name__=~"muster:allocation_.*"})',
        found={
            '{__name__="muster:allocation_utilization:ratio", gang="train", queue_path="research/vision"}': 0.4,
            '{__name__="muster:allocation_active:ratio", gang="train", queue_path="research/vision"}': 0.4,
            '{__name__="muster:allocation_memory_used:bytes", gang="train", queue_path="research/vision"}': 2097152,
            '{__name__="muster:allocation_power:watts", gang="train", queue_path="research/vision"}': 310,
        },
    ),
    "what devices do is known by user": Case(
        series=TWO | BUSY | {allocated("GPU-3", "other", user="ann"): "1x20"},
        asked='sum by (__name__, user) ({__name__=~"muster:user_devices_.*"})',
        found={
            '{__name__="muster:user_devices_allocated:count", user="zoe"}': 2,
            '{__name__="muster:user_devices_allocated:count", user="ann"}': 1,
            '{__name__="muster:user_devices_measured:count", user="zoe"}': 2,
            '{__name__="muster:user_devices_active:sum", user="zoe"}': 0.75,
        },
    ),
    "the engine goes before the utilization": Case(
        series={**BUSY, allocated("GPU-1"): "1x20", dcgm("DEV_GPU_UTIL", "GPU-1"): "100x20"},
        asked=by("gang", "allocation_active:ratio"),
        found={'{gang="train"}': 0.75},
    ),
    "a device that nobody measures is missing, and counted as allocated": Case(
        series=TWO | {dcgm("PROF_GR_ENGINE_ACTIVE", "GPU-1"): "0.5x20"},
        asked="muster:queue_devices_allocated:count - muster:queue_devices_measured:count",
        found={'{class="h100", queue="vision", queue_path="research/vision"}': 1},
    ),
    "an exporter that went away says nothing": Case(
        series=TWO | {dcgm("PROF_GR_ENGINE_ACTIVE", "GPU-1"): "0.5x2 _x20", dcgm("DEV_GPU_UTIL", "GPU-2"): "7x20"},
        asked=by("gang", "allocation_active:ratio"),
        at="15m",
        found={'{gang="idle"}': 0.07},
    ),
    "a device that moves to another gang": Case(
        series={
            allocated("GPU-1"): "1x4 stale",
            allocated("GPU-1", "next"): "_x4 1x9",
            dcgm("PROF_GR_ENGINE_ACTIVE", "GPU-1"): "0.5x20",
        },
        asked=by("gang", "allocation_active:ratio"),
        at="6m",
        found={'{gang="next"}': 0.5},
    ),
    "MIG instances of one card": Case(
        series=INSTANCES | {allocated("MIG-7", "a"): "1x20", allocated("MIG-8", "b"): "1x20"},
        asked='sum by (__name__, gang) ({__name__=~"muster:allocation_(active:ratio|memory.*|power.*)"})',
        found={
            '{__name__="muster:allocation_active:ratio", gang="a"}': 0.5,
            '{__name__="muster:allocation_active:ratio", gang="b"}': 0.25,
            '{__name__="muster:allocation_memory_used:bytes", gang="a"}': 2**30,
        },
    ),
    "a MIG instance whose UUID the exporter does not know": Case(
        series={
            allocated("MIG-7"): "1x20",
            allocated("GPU-1", "card"): "1x20",
            dcgm("PROF_GR_ENGINE_ACTIVE", "GPU-1", **mig("7")): "0.5x20",
        },
        asked=by("gang", "allocation_active:ratio"),
        found={},
    ),
    "a device without the attribute is nobody's": Case(
        series={allocated(""): "1x20", _series("DCGM_FI_DEV_GPU_UTIL", {"gpu": "0"}): "9x20"},
        asked=by("gang", "allocation_active:ratio"),
        found={},
    ),
    "claims that share a device": Case(
        series={allocated("GPU-1", "a"): "1x20", allocated("GPU-1", "b"): "1x20", **BUSY},
        asked=by("gang", "allocation_active:ratio"),
        found={'{gang="a"}': 0.75, '{gang="b"}': 0.75},
    ),
    "what two leaders show at a change is counted once": Case(
        series={allocated("GPU-1"): "1x20", allocated("GPU-1", instance="muster-1"): "1x20", **BUSY},
        asked="muster:gang_devices_active:sum",
        found={'muster:gang_devices_active:sum{class="h100", gang="train", namespace="ml", queue="vision"}': 0.75},
    ),
    "an exporter that shows a device for each of its pods": Case(
        series={
            allocated("GPU-1"): "1x20",
            dcgm("DEV_GPU_UTIL", "GPU-1", pod="a"): "50x20",
            dcgm("DEV_GPU_UTIL", "GPU-1", pod="b"): "50x20",
        },
        asked=by("gang", "allocation_active:ratio"),
        found={'{gang="train"}': 0.5},
    ),
    **{
        f"exporters of {driver}": Case(
            series={allocated("X", driver=driver): "1x20", allocated("X", "other"): "1x20", **dict(series)},
            asked='sum by (__name__, gang) ({__name__=~"muster:allocation_(utilization|memory_used|power):.*"})',
            found={
                '{__name__="muster:allocation_utilization:ratio", gang="train"}': 0.5,
                '{__name__="muster:allocation_memory_used:bytes", gang="train"}': 2097152,
                **({'{__name__="muster:allocation_power:watts", gang="train"}': 300} if "gpu" in driver else {}),
            },
        )
        for driver, series in OTHERS.items()
    },
}


def test_allocated_devices_get_what_is_measured_of_them(tmp_path: Path) -> None:
    try:
        promtool = programs.path("promtool")
    except programs.ProgramMissing as missing:
        pytest.skip(str(missing))
    tests = [
        {
            "name": name,
            "interval": "1m",
            "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
            "promql_expr_test": [
                {
                    "expr": case.asked,
                    "eval_time": case.at,
                    "exp_samples": [{"labels": labels, "value": value} for labels, value in case.found.items()],
                }
            ],
        }
        for name, case in CASES.items()
    ]
    file = tmp_path / "cases.yaml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))

    done = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
