"""`drawbridge fix` writes names that `check` suggests, and every fix that has one value."""

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from findings.finding import Code
from testing.command import CLUSTER, EXAMPLES, drawbridge
from testing.rule_cases import ALL, findings_of

NICS: Final = EXAMPLES / "koordinator" / "cluster.yaml"
POD: Final = """\
apiVersion: v1
kind: Pod
metadata:
  name: train
  annotations:
    note: kept   # stays
    ANNOTATION
spec:
  FIELD: x
  containers:
  - name: main
    image: a
    resources:
      limits:
        LIMITS
"""


class Case(NamedTuple):
    """A manifest with a mistake, and the lines that replace those with it."""

    name: str
    manifest: str
    changes: tuple[tuple[str, str], ...]
    snapshot: Path = CLUSTER


def pod(limits: str, annotation: str = "a: b", field: str = "hostname") -> str:
    return POD.replace("LIMITS", limits).replace("ANNOTATION", annotation).replace("FIELD", field)


def claim(request: str) -> str:
    return f"""\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: gpu}}
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        {request}
"""


CASES: Final = (
    Case(
        "a key of HAMi, in limits and requests",
        pod("nvidia.com/gpu: 1\n        nvidia.com/gpumems: 8Gi  # of one card"),
        (("nvidia.com/gpumems: 8Gi  # of one card", "nvidia.com/gpumem: 8192  # of one card"),),
    ),
    Case(
        "a key within braces, with its request",
        pod("nvidia.com/gpu: 1")
        .replace(
            "limits:\n        nvidia.com/gpu: 1",
            "{limits: {nvidia.com/gpu: 1, nvidia.com/gpu-mem: 1000}, requests: {nvidia.com/gpu-mem: 1000}}",
        )
        .replace("resources:\n      {", "resources: {"),
        (
            (
                "resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpu-mem: 1000}, requests: {nvidia.com/gpu-mem: 1000}}",
                "resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 1000}, requests: {nvidia.com/gpumem: 1000}}",
            ),
        ),
    ),
    Case(
        "an annotation",
        pod("nvidia.com/gpu: 1\n        nvidia.com/gpumem: 1000", "nvidia.com/use-gputypes: A100"),
        (("nvidia.com/use-gputypes: A100", "nvidia.com/use-gputype: A100"),),
    ),
    Case(
        "a mode",
        pod(
            "nvidia.com/gpu: 1\n        nvidia.com/gpumem: 1000", 'nvidia.com/vgpu-mode: "hami-cor"'
        ),
        (('nvidia.com/vgpu-mode: "hami-cor"', 'nvidia.com/vgpu-mode: "hami-core"'),),
    ),
    Case(
        "a mode in capitals",
        pod("nvidia.com/gpu: 1\n        nvidia.com/gpumem: 1000", 'nvidia.com/vgpu-mode: "MIG"'),
        (('nvidia.com/vgpu-mode: "MIG"', 'nvidia.com/vgpu-mode: "mig"'),),
    ),
    Case(
        "the deprecated key of Koordinator beside an amount of memory",
        pod("koordinator.sh/gpu: 50\n        koordinator.sh/gpu-memory: 16Gi"),
        (("koordinator.sh/gpu: 50", "koordinator.sh/gpu-core: 50"),),
        NICS,
    ),
    Case(
        "the deprecated key of Koordinator beside cores",
        pod("koordinator.sh/gpu: 50\n        koordinator.sh/gpu-core: 30"),
        (("koordinator.sh/gpu: 50", "koordinator.sh/gpu-memory-ratio: 50"),),
        NICS,
    ),
    Case(
        "a MIG profile",
        pod("nvidia.com/mig-3g.40g: 1"),
        (("nvidia.com/mig-3g.40g: 1", "nvidia.com/mig-3g.40gb: 1"),),
    ),
    Case(
        "a field of a pod",
        pod("nvidia.com/gpu: 1", field="hostnam"),
        (("hostnam: x", "hostname: x"),),
    ),
    Case(
        "a class",
        claim("deviceClassName: gpu.nvidia.con"),
        (("deviceClassName: gpu.nvidia.con", "deviceClassName: gpu.nvidia.com"),),
    ),
    Case(
        "a field of a claim",
        claim("deviceClassName: gpu.nvidia.com\n        alocationMode: All"),
        (("alocationMode: All", "allocationMode: All"),),
    ),
    Case(
        "an attribute",
        claim(
            "deviceClassName: gpu.nvidia.com\n        selectors:\n        - cel: "
            '{expression: \'device.attributes["gpu.nvidia.com"].productNme == "NVIDIA H100 80GB HBM3"\'}'
        ),
        (
            (
                '- cel: {expression: \'device.attributes["gpu.nvidia.com"].productNme == "NVIDIA H100 80GB HBM3"\'}',
                '- cel: {expression: \'device.attributes["gpu.nvidia.com"].productName == "NVIDIA H100 80GB HBM3"\'}',
            ),
        ),
    ),
    Case(
        "a domain and a name in one",
        claim(
            "deviceClassName: gpu.nvidia.com\n        selectors:\n        - cel: "
            '{expression: \'device.attributes["gpu.nvidia.com/type"].string == "gpu"\'}'
        ),
        (
            (
                '- cel: {expression: \'device.attributes["gpu.nvidia.com/type"].string == "gpu"\'}',
                '- cel: {expression: \'device.attributes["gpu.nvidia.com"].type == "gpu"\'}',
            ),
        ),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_name_with_one_right_spelling_is_written(case: Case) -> None:
    call = ("fix", "-f", "-", "--snapshot", case.snapshot, "-o")
    result = drawbridge(*call, "yaml", stdin=case.manifest)

    assert result.exit_code == 0, result.stderr
    pairs = zip(case.manifest.splitlines(), result.stdout.splitlines(), strict=True)
    assert tuple((old.strip(), new.strip()) for old, new in pairs if old != new) == case.changes
    again = drawbridge(*call, "diff", stdin=result.stdout)
    assert (again.exit_code, again.stdout) == (0, "")


@pytest.mark.parametrize(
    ("beside", "fix"),
    [
        (
            "koordinator.sh/gpu-memory: 16Gi",
            "write koordinator.sh/gpu-core: 50 in its place, beside koordinator.sh/gpu-memory: 16Gi [",
        ),
        (
            "koordinator.sh/gpu-core: 30\n        koordinator.sh/gpu-memory: 16Gi",
            "remove it, and keep koordinator.sh/gpu-core and koordinator.sh/gpu-memory [",
        ),
    ],
)
def test_a_deprecated_key_beside_another_amount_says_what_to_write(beside: str, fix: str) -> None:
    manifest = pod(f"koordinator.sh/gpu: 50\n        {beside}")

    result = drawbridge("check", "-f", "-", "--snapshot", NICS, stdin=manifest)

    assert fix in result.stdout


def test_a_mode_in_capitals_is_reported_as_such() -> None:
    manifest = pod("nvidia.com/gpu: 1", "nvidia.com/vgpu-mode: MIG")

    result = drawbridge("check", "-f", "-", "--snapshot", CLUSTER, stdin=manifest)

    assert '"MIG" contains no mode of a card, which are lower case; write mig [' in result.stdout


def test_a_name_that_several_may_stand_for_is_left() -> None:
    manifest = pod(
        "nvidia.com/gpu: 1\n        nvidia.com/gpumems: 1\n        nvidia.com/gpumem: 1000"
    )

    result = drawbridge("fix", "-f", "-", "--snapshot", CLUSTER, "-o", "yaml", stdin=manifest)

    assert result.stdout == manifest


AMOUNTS: Final = (
    ("percent of cards of Volcano", "volcano.sh/vgpu-number: 1\nvolcano.sh/vgpu-memory: 1000\nvolcano.sh/vgpu-cores: 150", ("volcano.sh/vgpu-cores: 150", "volcano.sh/vgpu-cores: 100")),
    ("more devices of Koordinator, and a part of one", "koordinator.sh/gpu: 150", ("koordinator.sh/gpu: 150", "koordinator.sh/gpu: 200")),
    ("a part of a percentage", "nvidia.com/gpu: 1\nnvidia.com/gpumem-percentage: 500m", ("nvidia.com/gpumem-percentage: 500m", "nvidia.com/gpumem-percentage: 50")),
)  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "change"), [row[1:] for row in AMOUNTS], ids=[row[0] for row in AMOUNTS]
)
def test_an_amount_with_one_right_value_is_written(limits: str, change: tuple[str, str]) -> None:
    manifest = pod(limits.replace("\n", "\n        "))

    result = drawbridge("fix", "-f", "-", "--snapshot", NICS, "-o", "yaml", stdin=manifest)

    pairs = zip(manifest.splitlines(), result.stdout.splitlines(), strict=True)
    assert [(old.strip(), new.strip()) for old, new in pairs if old != new] == [change], (
        result.stderr
    )


@pytest.mark.parametrize(
    ("annotation", "change"),
    [
        ('tensor-fusion.ai/vram-request: "24GB"', "24GB -> 24G [invalidQuantity]"),
        ('tensor-fusion.ai/compute-percent-request: "150"', "150 -> 100 [outOfRange]"),
    ],
)
def test_an_annotation_with_one_right_value_is_written(annotation: str, change: str) -> None:
    label = '  labels: {tensor-fusion.ai/enabled: "true"}\n  annotations:'
    manifest = pod("cpu: 1", annotation).replace("  annotations:", label)

    result = drawbridge("fix", "-f", "-", "--snapshot", NICS, "-o", "text", stdin=manifest)

    assert change in result.stdout, result.stderr


_ONE_VALUE: Final = re.compile(r"did you mean \S+\?|write \S+")
"""A fix that names one value, and nothing beside it."""
_EITHER_IS_MEANT: Final = {Code.UNKNOWN_ATTRIBUTE, Code.UNKNOWN_LITERAL}
"""Two rules of a policy differ in a name, and nothing says which of them is misspelt."""


def test_every_fix_of_a_rule_that_names_one_value_can_be_written() -> None:
    findings = [finding for case in ALL for finding in findings_of(case.document)]
    told = [
        finding
        for finding in findings
        if _ONE_VALUE.fullmatch(finding.fix) and finding.code not in _EITHER_IS_MEANT
    ]

    assert len(told) >= 10
    assert [
        finding.advice for finding in told if not (finding.corrections or finding.rewrites)
    ] == []
