"""Types that several threads use for the first time in one moment."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

RACE = """
import sys, threading, types
import msgspec
from admission.api.values import typed_json

sys.setswitchinterval(1e-7)
THREADS = 6

def new_type(number):
    module = sys.modules[f"race_{number}"] = types.ModuleType(f"race_{number}")
    lines = ["from __future__ import annotations", "import msgspec"]
    for at in range(30):
        below = f"C{at - 1} | None" if at else "int | None"
        lines += [f"class C{at}(msgspec.Struct):", f"    x: {below} = None", "    y: list[dict[str, int]] = []"]
    exec("\\n".join(lines), module.__dict__)
    return module.C29

for number in range(200):
    kind, together = new_type(number), threading.Barrier(THREADS)
    convert = MAKE(kind)

    def use():
        together.wait()
        convert({"x": {"x": {"y": [{"a": 1}]}}, "y": [{"b": 2}]})

    threads = [threading.Thread(target=use) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_a_type_is_used_for_the_first_time_by_several_threads() -> None:
    """By msgspec.convert itself the process of this script ends by a null pointer."""
    script = RACE.replace("MAKE", "typed_json.converter")

    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")


ONE_THREAD = {"settings/load.py", "app.py"}
"""What is done before there are others: reading settings, and what the first process tells a worker."""


def test_no_type_is_looked_at_only_when_it_is_first_used() -> None:
    lazy = re.compile(r"msgspec\.convert\(|msgspec\.\w+\.decode\([^\n]*type=")
    found = {
        path.relative_to(ROOT / "admission").as_posix()
        for path in (ROOT / "admission").rglob("*.py")
        if lazy.search(path.read_text())
    }

    assert found == ONE_THREAD
