"""The image of a program that uses the GPUs it is given: `cuda_probe.c`, with this machine's libraries of CUDA.

A container gets devices from our driver, and libraries from its image where NVIDIA's toolkit adds none
(docs/driver.md, Discovery).
"""

import ctypes
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

from e2e.node.images import Layer, write_archive

CUDA_IMAGE: Final = "drawbridge.internal/cuda-probe:1"
_SOURCE: Final = Path(__file__).parent / "cuda_probe.c"
_LIBRARIES: Final = "lib/cuda"
"""The folder of the libraries in the image."""
_LINKED: Final = re.compile(r"(\S+)(?: => (\S+))? \(0x")
_MAPPED: Final = re.compile(r"/\S*/lib(?:cuda|nvidia)[^/\s]*\.so\S*")
_MAPS_OF_CUDA: Final = """
import ctypes
ctypes.CDLL("libcuda.so.1").cuInit(0)
ctypes.CDLL("libnvidia-ptxjitcompiler.so.1")
print(open("/proc/self/maps").read())
"""


def missing() -> str:
    """Return the reason the image cannot be written on this machine; empty when it can."""
    if shutil.which("cc") is None:
        return "the program that uses a GPU needs a compiler of C, `cc`"
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no CUDA on this machine: {error}"
    return ""


def write_cuda_image(folder: Path) -> Path:
    """Write the image into a folder; return its archive, for `ctr images import`."""
    program, layer = folder / "cuda-probe", folder / "layer.tar"
    subprocess.run(["cc", "-std=gnu17", "-O1", "-w", "-o", program, _SOURCE, "-ldl"], check=True)
    with tarfile.open(layer, mode="w") as archive:
        archive.add(program, program.name)
        for name, path in _libraries(program).items():
            # The linker's own path is absolute; all other names are looked up in the folder.
            archive.add(path.resolve(), name.lstrip("/") if "/" in name else f"{_LIBRARIES}/{name}")
    config = {"Entrypoint": [f"/{program.name}"], "Env": [f"LD_LIBRARY_PATH=/{_LIBRARIES}"]}
    image = folder / "cuda.tar"
    write_archive(CUDA_IMAGE, [Layer(layer.name, layer)], config, image)
    return image


def _libraries(program: Path) -> dict[str, Path]:
    """Return the libraries of the image by the names in programs."""
    maps = _stdout(sys.executable, "-c", _MAPS_OF_CUDA)
    of_cuda = sorted({Path(text) for text in _MAPPED.findall(maps)})
    versions = {f"{path.name.partition('.so')[0]}.so.1": path for path in of_cuda}
    linked = [_linked(path) for path in (program, *of_cuda)]
    return {name: path for names in (*linked, versions) for name, path in names.items()}


def _linked(program: Path) -> dict[str, Path]:
    """Return the libraries of a program by name, without the kernel's own page."""
    pairs = _LINKED.findall(_stdout("ldd", program))
    return {name: Path(path or name) for name, path in pairs if "/" in (path or name)}


def _stdout(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
