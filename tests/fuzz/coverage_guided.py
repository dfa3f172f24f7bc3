"""The targets under atheris: libFuzzer mutates the bytes from which hypothesis makes an input, and keeps what reaches
branches of this package that nothing reached before.

libFuzzer never returns, so every target runs in a process of its own: ``python -m tests.fuzz.coverage_guided TARGET``.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

CORPUS = Path(".hypothesis/atheris")
LONGEST = 8192
"""Bytes of hypothesis's choices."""
SLOWEST_SECONDS = 120
MEMORY_MB = 4096


def run(seconds: float, names: list[str]) -> bool:
    """Give every target its share of the time, and print what became of it; whether there were no faults."""
    sound = True
    for name in names:
        folder = CORPUS / name.replace(" ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        options = [f"-max_total_time={max(1, round(seconds / len(names)))}", f"-max_len={LONGEST}"]
        options += [f"-timeout={SLOWEST_SECONDS}", f"-rss_limit_mb={MEMORY_MB}", f"-artifact_prefix={folder}-"]
        command = [sys.executable, "-m", __spec__.name, name, str(folder), *options]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        log = done.stdout + done.stderr
        runs = re.findall(r"^Done (\d+) runs", log, re.MULTILINE)
        reached = re.findall(r"^#\d+\s.* cov: (\d+)", log, re.MULTILINE)
        if done.returncode or not runs:
            sound = False
            print(f"{name}: a fault, exit code {done.returncode}\n{log[-8000:]}", flush=True)
        else:
            kept = sum(1 for _ in folder.iterdir())
            print(f"{name}: {runs[-1]} inputs, {(reached or ['0'])[-1]} edges reached, {kept} inputs kept", flush=True)
    return sound


def fuzz(name: str, arguments: list[str]) -> None:
    """Run one target until libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["infernix_plugin"]):
        from tests.fuzz.check import check_of
        from tests.fuzz.targets import TARGETS

    outcomes: Counter[str] = Counter()
    check = check_of(name, TARGETS[name], outcomes, examples=1)
    atheris.Setup([sys.argv[0], *arguments], check.hypothesis.fuzz_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    fuzz(sys.argv[1], sys.argv[2:])
