"""The Containerfile is read as a container engine would, as far as it goes, and no step is left out."""

import pytest

from e2e.node.containerfile import BuildError, Instruction, read_config, read_stages
from testing.image import CONTAINERFILE


def test_steps_of_a_stage() -> None:
    text = """\
# A comment.
FROM a AS one
RUN b \\
# in between
 && c

COPY d e ./
FROM f
USER 1:1
"""
    first, last = read_stages(text)

    assert ("one", "a") == (first.name, first.base)
    assert first.steps == (Instruction("RUN", "b   && c"), Instruction("COPY", "d e ./"))
    assert ("", "f") == (last.name, last.base)
    assert last.steps == (Instruction("USER", "1:1"),)


def test_ours_is_read() -> None:
    *earlier, last = read_stages(CONTAINERFILE.read_text())

    assert {"build-scheduler", "scheduler", "build"} == {stage.name for stage in earlier}
    assert {"COPY", "ENV", "USER", "CMD"} == {step.word for step in last.steps}


def test_what_containers_run_is_in_the_config() -> None:
    stages = read_stages(
        'FROM a\nENV PATH=/venv/bin:$PATH B=c\nUSER 7:8\nCMD ["python", "-m", "x"]'
    )

    assert read_config(stages) == {
        "Env": ["PATH=/venv/bin:/usr/local/bin:/usr/bin:/bin", "B=c"],
        "WorkingDir": "/",
        "User": "7:8",
        "Cmd": ["python", "-m", "x"],
    }


@pytest.mark.parametrize("step", ["RUN true", "ADD a b", "COPY a b", "ENTRYPOINT a", "VOLUME /a"])
def test_a_step_that_is_not_understood_is_no_image(step: str) -> None:
    with pytest.raises(BuildError, match="not understood"):
        read_config(read_stages(f"FROM a\n{step}"))
