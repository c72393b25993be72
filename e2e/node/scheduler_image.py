"""The scheduler's own image, with the program that all stories run.

The stage of the Containerfile that builds the program downloads Go and its modules, so it is not run. It
has to build as `e2e/binaries.py` does, or there is no image.
"""

import shlex
from pathlib import Path
from typing import Final

from e2e.binaries import BRIDGE, BUILD_ENVIRONMENT, scheduler
from e2e.node.containerfile import BuildError, Config, Instruction, read_config, read_stages
from e2e.node.images import write_program_image
from testing.image import CONTAINERFILE

NAME: Final = "drawbridge-scheduler:0.1.0"
"""The name of the image in the manifests."""
BUILT: Final = "/drawbridge-scheduler"
"""The program in the stage that builds it."""


def write_scheduler_image(archive: Path) -> None:
    """Write an archive of the image that `ctr images import` takes."""
    target, config = read_scheduler_image(CONTAINERFILE.read_text())
    write_program_image(f"docker.io/library/{NAME}", scheduler(), target, config, archive)


def read_scheduler_image(text: str) -> tuple[str, Config]:
    """Return the program's place in the image of a Containerfile, and its containers' configuration.

    Raises:
        BuildError: The Containerfile builds another program, or puts more into the image.
    """
    stages = {stage.name: stage for stage in read_stages(text)}
    found = [(step.word, _words(step)) for step in stages["build-scheduler"].steps]
    if found != (expected := _steps()):
        raise BuildError(f"stage build-scheduler has {found}, where {expected} was expected")
    image = stages["scheduler"]
    copies = [step.text.split() for step in image.steps if step.word == "COPY"]
    match copies:
        case [["--from=build-scheduler", program, target]] if program == BUILT:
            pass
        case _:
            raise BuildError(f"stage scheduler copies {copies}, where {BUILT} alone was expected")
    if image.base != "scratch":
        raise BuildError(f"stage scheduler is FROM {image.base}, where scratch was expected")
    return target, read_config((image,))


def _steps() -> list[tuple[str, list[str]]]:
    """Return the steps that build the program as the stories' one is built."""
    variables = sorted(f"{name}={value}" for name, value in BUILD_ENVIRONMENT.items())
    build = ("go", "build", "-o", BUILT, "-ldflags", BRIDGE.ldflags, ".")
    return [
        ("WORKDIR", ["/build"]),
        ("COPY", ["bridge", "bridge"]),
        ("ENV", variables),
        ("RUN", ["cd", "bridge", "&&", *build]),
    ]


def _words(step: Instruction) -> list[str]:
    """Return the words of a step, without those that the shell ignores."""
    words = [" ".join(word.split()) for word in shlex.split(step.text)]
    return sorted(words) if step.word == "ENV" else words
