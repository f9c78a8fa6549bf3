"""A sample device, and helpers that evaluate expressions on it; shared by the tests of CEL."""

from fractions import Fraction

from admission.api.kubernetes import devices
from admission.device_cel import environment, programs

DEVICE = devices.Device(
    name="gpu-0",
    attributes={
        "model": "A100",
        "index": 3,
        "ecc": True,
        "driverVersion": devices.Version("570.86.15"),
        "resource.kubernetes.io/pcieRoot": "pci0000:5d",
        "max": 2**63 - 1,
    },
    capacity={"memory": devices.Capacity(value=Fraction(80 * 2**30), text="80Gi")},
)

VALUE = programs.device_value("gpu.example.com", DEVICE)

D = 'device.attributes["gpu.example.com"]'


def program(text: str, **options: object) -> programs.Program:
    compiled = programs.compile_device(text, **options)  # type: ignore[arg-type]
    assert isinstance(compiled, programs.Program), str(compiled)
    return compiled


def evaluate(text: str, device: programs.DeviceValue | programs.UnreadableDevice = VALUE) -> bool | int | str:
    """Return the value, or the message of the error."""
    try:
        return program(text).evaluate(device)
    except programs.EvaluationError as error:
        return str(error)


def compile_error(text: str, profile: environment.Profile = environment.DEFAULT) -> str:
    """Return why an expression does not compile."""
    compiled = programs.compile_device(text, profile=profile)
    assert isinstance(compiled, programs.CompileError), "it compiles"
    return str(compiled)
