"""`-o text` and `-o diff`, and the demo: the output for people."""

import json
from pathlib import Path

import pytest

from cli.__main__ import COMMANDS
from testing.builders import DRANET, container, gpus, pod
from testing.command import CLUSTER, EXAMPLES, drawbridge, translate
from testing.documents import api_object

SHARE_TOLD = """\
Pod default/train  <stdin>:1
  requested main: nvidia.com/gpu 1, nvidia.com/gpucores 150, nvidia.com/gpumem
            3000
            nvidia.com/use-gputype: A100
  becomes   main: 1 device of class hami-core-gpu.project-hami.io, where
            productName contains a100, with cores 100, memory 3000Mi
  template  {template}
  served by hami-core-gpu.project-hami.io (hami: nvidia.com/gpu,
            nvidia.com/gpucores, nvidia.com/gpumem)
  warning   containers[0].resources.limits[nvidia.com/gpucores]: 150 percent of
            a GPU's cores counts as 100, as in HAMi
  fix       write 100
  warning   containers[0].resources.limits[nvidia.com/gpucores]: all cores and
            an amount of memory: unless it is all of the device's, containers
            without a limit of cores may get the rest

  unchanged ConfigMap/default/settings

1 object translated, 1 template, 1 unchanged, 0 rejected, 2 warnings
"""

SETTINGS = api_object("ConfigMap", "settings")
SHARE = pod(
    gpus(1, mem=3000, cores=150),
    annotations={"nvidia.com/use-gputype": "A100"},
    tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}],
)


def test_text_tells_what_was_asked_what_it_is_why_and_what_is_lost() -> None:
    result = translate(SHARE, SETTINGS, options=("-o", "text"))

    assert (result.exit_code, result.stderr) == (0, "")
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("  template"))
    assert SHARE_TOLD.format(template=line.split()[1]) == result.stdout


def test_text_says_whose_a_name_is_that_a_profile_gives(tmp_path: Path) -> None:
    (tmp_path / "nics.yaml").write_text(
        f"driver: {DRANET}\ndevices: {{nic: {{class: nic, resources: {{acme.example/nic: {{}}}}}}}}"
    )
    pod_ = pod(container("main", {"acme.example/nic": "1"}))

    stdout = translate(pod_, options=("-o", "text", "--profiles", tmp_path)).stdout

    assert "served by dra.net (rdma: acme.example/nic)" in stdout


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_text_is_no_wider_than_the_terminal(width: int) -> None:
    result = drawbridge(
        *("translate", "-f", EXAMPLES, "-f", EXAMPLES / "mistakes", "--snapshot", CLUSTER),
        *("-o", "text"),
        COLUMNS=str(width),
    )

    assert width >= max(map(len, result.stdout.splitlines()))


def test_text_has_no_colour_where_no_terminal_is() -> None:
    assert "\x1b" not in drawbridge("translate", "-f", EXAMPLES, "-o", "text").stdout
    assert "\x1b" not in drawbridge("translate", "-f", EXAMPLES, "-o", "diff").stdout


def test_foreign_text_cannot_move_the_cursor() -> None:
    hostile = pod(gpus(1, mem=1), annotations={"nvidia.com/use-gputype": "A\x1b[2J\nB"})
    hostile["metadata"]["name"] = "a\x1b[2J"

    for form in ("text", "yaml", "diff"):
        result = translate(hostile, options=("-o", form))
        assert "\x1b" not in result.stdout + result.stderr


def test_a_diff_is_what_kubectl_diff_shows() -> None:
    result = drawbridge("translate", "-f", EXAMPLES / "whole-gpu.yaml", "-o", "diff")

    lines = result.stdout.splitlines()
    assert lines[3] == "@@ -0,0 +1,13 @@"
    start = lines.index("--- old/v1.Pod.default.whole-gpu")
    assert lines[start + 1] == "+++ new/v1.Pod.default.whole-gpu"
    assert [line for line in lines[start:] if line.startswith("-        ")] == [
        "-        nvidia.com/gpu: 1"
    ]


def test_a_diff_of_what_does_not_change_is_empty() -> None:
    assert not drawbridge("translate", "-f", EXAMPLES / "opted-out.yaml", "-o", "diff").stdout


def test_a_diff_has_nothing_that_a_terminal_or_a_ci_system_obeys() -> None:
    hostile = "a\x1b[2J\x07\n::warning ::\u202e"
    document = pod(gpus(1, mem=1), annotations={"note": hostile})
    document["metadata"] |= {"name": hostile, "namespace": hostile}

    stdout = drawbridge("translate", "-f", "-", "-o", "diff", stdin=json.dumps(document)).stdout

    assert "nvidia.com/gpu" in stdout
    assert not {"\x1b", "\x07", "\u202e"} & set(stdout)
    assert not any(line.lstrip(" +-").startswith("::") for line in stdout.splitlines())


@pytest.mark.parametrize("command", ["translate", "check"])
def test_texts_have_no_commands_of_ci_systems(command: str) -> None:
    # At every width some line of the text begins where the hostile part does.
    name = " ".join(["::error::x"] * 40) + "##vso[task.setvariable variable=a]b"
    document = pod(gpus(1, mem=3000), container(name, {"nvidia.com/gpu": "1.5"}))
    document["metadata"]["name"] = name

    result = drawbridge(command, "-f", "-", "-o", "text", stdin=json.dumps(document))

    assert "error::" in result.stdout
    assert not any(line.lstrip().startswith("::") for line in result.stdout.splitlines())
    assert "##vso[" not in result.output


def test_demo_shows_every_kind_of_outcome(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    result = drawbridge("demo")

    assert (result.exit_code, result.stderr) == (0, "")
    for label in (
        "  becomes ",
        "  served by ",
        "  warning ",
        "  skipped ",
        "  rejected ",
        "  fix ",
    ):
        assert label in result.stdout
    assert max(map(len, result.stdout.partition("\nNext")[0].splitlines())) <= 80


def test_what_the_demo_says_to_try_next_works() -> None:
    label = drawbridge("demo").stdout.partition("\nNext\n")[2]

    tried = set()
    for line in label.splitlines():
        words = line.split()
        at = next((n for n, word in enumerate(words) if word in COMMANDS), len(words))
        command, *arguments = words[at:] or [""]
        if command and not line.lstrip().startswith("#") and "FOLDER" not in arguments:
            tried.add(command)
            assert drawbridge(command, *arguments).exit_code in (0, 1)
    assert tried == {"simulate", "translate", "why"}


def test_text_tells_of_each_template_of_a_custom_workload() -> None:
    replica = {
        "Master": pod(gpus(1, mem=3000, name="train")),
        "Worker": pod(gpus(2, name="train")),
    }
    job = api_object(
        "PyTorchJob",
        "train",
        spec={
            "pytorchReplicaSpecs": {
                role: {"replicas": 1, "template": {"spec": document["spec"]}}
                for role, document in replica.items()
            }
        },
    )

    lines = translate(job, options=("-o", "text")).stdout.splitlines()

    told = [
        line.strip() for line in lines if line.startswith(("  pods", "  requested", "  served"))
    ]
    assert told == [
        "pods of   spec.pytorchReplicaSpecs.Master.template",
        "requested train: nvidia.com/gpu 1, nvidia.com/gpumem 3000",
        "served by hami-core-gpu.project-hami.io (hami: nvidia.com/gpu,",
        "pods of   spec.pytorchReplicaSpecs.Worker.template",
        "requested train: nvidia.com/gpu 2",
        "served by gpu.nvidia.com (nvidia: nvidia.com/gpu)",
    ]
