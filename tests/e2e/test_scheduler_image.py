"""The image of the scheduler has the program that the stories run, and nothing else."""

import pytest

from e2e.node.containerfile import BuildError
from e2e.node.scheduler_image import read_scheduler_image
from testing.image import CONTAINERFILE


def test_ours_is_built_as_the_stories_build_it() -> None:
    target, config = read_scheduler_image(CONTAINERFILE.read_text())

    assert target == "/usr/local/bin/drawbridge-scheduler"
    assert config == {
        "Env": ["PATH=/usr/local/bin"],
        "WorkingDir": "/",
        "User": "65532:65532",
        "Cmd": ["drawbridge-scheduler"],
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("CGO_ENABLED=0", "CGO_ENABLED=1"),
        ("gitMinor=37", "gitMinor=36"),
        ("-s -w", "-s"),
        ("COPY bridge bridge", "COPY bridge bridge\nCOPY kube kube"),
        ("FROM scratch AS scheduler", "FROM debian AS scheduler"),
        ("USER 65532:65532\nCMD", "COPY --from=build-scheduler /etc /etc\nUSER 65532:65532\nCMD"),
    ],
)
def test_another_one_is_no_image(before: str, after: str) -> None:
    text = CONTAINERFILE.read_text()
    assert before in text

    with pytest.raises(BuildError, match="expected"):
        read_scheduler_image(text.replace(before, after, 1))
