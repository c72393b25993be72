"""`drawbridge fix` writes the fixes that `check` proves, and nothing else."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from testing.command import CLUSTER, EXAMPLES, drawbridge
from testing.documents import api_object

DENIED = EXAMPLES / "denied"
ANNOTATED = """\
# The trainer.
apiVersion: apps/v1
kind: Deployment
metadata: {name: trainer}   # stays
spec:
  selector: {matchLabels: {app: trainer}}
  template:
    metadata: {labels: {app: trainer}}
    spec:
      initContainers:
      - name: warm-up
        image: "registry.k8s.io/pause:3.10"
        resources: {limits: {nvidia.com/gpu: 1,  nvidia.com/gpumem: "8Gi"}}   # in bytes
      containers:
      - name: main
        image: registry.k8s.io/pause:3.10
        resources:
          requests:
            cpu: 500m
            'nvidia.com/gpu':    1
            nvidia.com/gpumem: 200000
          limits:
            nvidia.com/gpu: "1"
            "nvidia.com/gpumem": 200000   # more than a card has
"""


WORKLOADS = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train}
spec:
  pytorchReplicaSpecs:
    Master:
      template:
        spec:
          containers:
          - name: pytorch
            resources:
              limits:
                nvidia.com/gpu: 1
                nvidia.com/gpumem: 8Gi
    Worker:
      template:
        spec:
          containers:
          - name: pytorch
            resources:
              limits:
                nvidia.com/gpu: 1
                nvidia.com/gpumem: 300000
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "@daily"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          initContainers:
          - name: warm-up
            resources: {limits: {nvidia.com/gpu: "1", nvidia.com/gpumem: "300000"}}
          containers:
          - name: main
---
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: model}
spec:
  predictor:
    model:
      modelFormat: {name: a}
      resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 4Gi}}
"""


UNMAPPED = EXAMPLES / "accelerators" / "cluster.yaml"
"""A cluster whose DeviceClasses map no key of NVIDIA's plugin."""


def fix(manifest: str, *options: object, snapshot: Path = CLUSTER) -> Any:
    return drawbridge("fix", "-f", "-", "--snapshot", snapshot, *options, stdin=manifest)


def fixed(manifest: str, *options: object, snapshot: Path = CLUSTER) -> str:
    result = fix(manifest, "-o", "yaml", *options, snapshot=snapshot)
    assert result.exit_code in (0, 1), result.stderr
    return str(result.stdout)


def changed_lines(before: str, after: str) -> list[tuple[str, str]]:
    pairs = zip(before.splitlines(), after.splitlines(), strict=True)
    return [(old.strip(), new.strip()) for old, new in pairs if old != new]


def pod(limits: str, requests: str = "") -> str:
    return (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: main\n"
        f"    image: i\n    resources: {{limits: {limits}{', requests: ' + requests if requests else ''}}}\n"
    )


def test_only_the_amounts_of_the_text_change() -> None:
    after = fixed(ANNOTATED)

    assert changed_lines(ANNOTATED, after) == [
        (
            'resources: {limits: {nvidia.com/gpu: 1,  nvidia.com/gpumem: "8Gi"}}   # in bytes',
            "resources: {limits: {nvidia.com/gpu: 1,  nvidia.com/gpumem: 8192}}   # in bytes",
        ),
        ("nvidia.com/gpumem: 200000", "nvidia.com/gpumem: 81920"),
        (
            '"nvidia.com/gpumem": 200000   # more than a card has',
            '"nvidia.com/gpumem": 81920   # more than a card has',
        ),
    ]
    assert fixed(after) == after
    again = fix(after)
    assert (again.exit_code, again.stdout) == (0, "")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("{nvidia.com/gpu: 1, nvidia.com/gpumem: 8Gi}",
                     "{nvidia.com/gpu: 1, nvidia.com/gpumem: 8192}", id="bytes where the key counts MiB"),
        pytest.param("{nvidia.com/gpu: 1, nvidia.com/gpumem: 200Gi}",
                     "{nvidia.com/gpu: 1, nvidia.com/gpumem: 81920}", id="then too large as well"),
        pytest.param("{nvidia.com/gpu: 1, nvidia.com/gpumem: '200000'}",
                     "{nvidia.com/gpu: 1, nvidia.com/gpumem: '81920'}", id="a number in quotes"),
        pytest.param("{nvidia.com/gpu: 1, nvidia.com/gpumem-percentage: 150}",
                     "{nvidia.com/gpu: 1, nvidia.com/gpumem-percentage: 100}", id="more than all"),
        pytest.param("{nvidia.com/gpu: 1, nvidia.com/gpucores: 150}",
                     "{nvidia.com/gpu: 1, nvidia.com/gpucores: 100}", id="a warning"),
        pytest.param("{nvidia.com/gpu: 1, volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 8Gi}",
                     "{nvidia.com/gpu: 1, volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 8Gi}",
                     id="an error is left: two owners"),
        pytest.param("{nvidia.com/gpu: 20}", "{nvidia.com/gpu: 4}", id="a key that a class maps"),
        pytest.param("{nvidia.com/gpu: 500m}", "{nvidia.com/gpu: 500m}", id="no right value"),
        pytest.param("{nvidia.com/gpu: 1}", "{nvidia.com/gpu: 1}", id="nothing to fix"),
    ],
)  # fmt: skip
def test_amounts(before: str, after: str) -> None:
    assert fixed(pod(before)) == pod(after)


def test_workloads_of_all_kinds() -> None:
    after = fixed(WORKLOADS)

    assert changed_lines(WORKLOADS, after) == [
        ("nvidia.com/gpumem: 8Gi", "nvidia.com/gpumem: 8192"),
        ("nvidia.com/gpumem: 300000", "nvidia.com/gpumem: 81920"),
        (
            'resources: {limits: {nvidia.com/gpu: "1", nvidia.com/gpumem: "300000"}}',
            'resources: {limits: {nvidia.com/gpu: "1", nvidia.com/gpumem: "81920"}}',
        ),
        (
            "resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 4Gi}}",
            "resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 4096}}",
        ),
    ]


def test_a_fix_that_brings_another_error_is_not_made() -> None:
    """With a memory in MiB the pod still has cores, and the driver gives no share of these."""
    manifest = pod("{nvidia.com/gpu: 1, nvidia.com/gpucores: 50, nvidia.com/gpumem: 8Gi}")
    options = ("--profile", "hami=gpu.nvidia.com")

    result = drawbridge("fix", "-f", "-", "-o", "yaml", *options, stdin=manifest)

    assert (result.exit_code, result.stdout) == (1, manifest)
    assert "[wrongUnit]" in result.stderr
    alone = drawbridge("fix", "-f", "-", *options, stdin=manifest.replace("8Gi", "8192"))
    assert "[cannotExpress]" in alone.stderr


def test_what_may_fit_devices_that_are_not_known_is_left(tmp_path: Path) -> None:
    snapshot = tmp_path / "cluster.yaml"
    text = (DENIED / "cluster.yaml").read_text()
    snapshot.write_text(text.replace("resourceSliceCount: 1", "resourceSliceCount: 2", 1))
    manifest = (DENIED / "too-large.yaml").read_text()

    result = fix(manifest, "-o", "yaml", snapshot=snapshot)

    assert (result.exit_code, result.stdout) == (0, manifest)
    assert "1 warning left" in result.stderr
    assert fixed(manifest, "--warnings", snapshot=snapshot) != manifest


def test_a_key_that_a_class_maps_is_named_with_its_container_and_left_as_a_choice() -> None:
    second = "  - name: second\n    resources: {limits: {nvidia.com/gpu: 3}}\n"
    manifest = pod("{nvidia.com/gpu: 3}") + second

    check = drawbridge("check", "-f", "-", "--snapshot", CLUSTER, stdin=manifest)

    first, other = (f"spec.containers[{n}].resources.limits[nvidia.com/gpu]" for n in (0, 1))
    assert f"; write {first}: 1 to fit node nvidia-0, " in check.stdout
    assert f", or write {other}: 1 to fit node nvidia-0 [" in check.stdout
    assert fix(manifest, "-o", "yaml").stdout == manifest
    for limit in ("nvidia.com/gpu: 3", "nvidia.com/gpu: 1"):
        mended = pod(f"{{nvidia.com/gpu: {4 - int(limit[-1])}}}")
        mended += second.replace("nvidia.com/gpu: 3", limit)
        assert drawbridge("check", "-f", "-", "--snapshot", CLUSTER, stdin=mended).exit_code == 0


def test_keys_that_share_devices_with_an_init_container_are_left() -> None:
    """The value to write into each container is a choice then."""
    init = "  initContainers:\n  - name: init\n    resources: {limits: {nvidia.com/gpu: 20}}\n"
    manifest = pod("{nvidia.com/gpu: 1}") + init

    result = fix(manifest, "-o", "yaml")

    assert (result.exit_code, result.stdout) == (1, manifest)
    assert "; request " in result.stderr


def test_a_memory_beyond_all_bounds_is_told_the_largest_in_its_unit() -> None:
    result = fix(pod("{nvidia.com/gpu: 1, nvidia.com/gpumem: 99999999999999999999999}"))

    assert "write 2147483647 or less, in MiB [outOfRange]" in result.stderr


def test_more_devices_than_a_claim_can_have_are_told_the_most() -> None:
    result = drawbridge("check", "-f", "-", stdin=pod("{nvidia.com/gpu: 64, nvidia.com/gpumem: 1}"))

    assert "request at most 32 of these devices per pod [tooManyDevices]" in result.stdout


def test_more_shares_than_a_claim_can_have_become_the_most(tmp_path: Path) -> None:
    shares = pod("{nvidia.com/gpu: 40, nvidia.com/gpumem: 1000}")
    percent = pod("{koordinator.sh/gpu.shared: 40, koordinator.sh/gpu-memory-ratio: 4000}")
    file = tmp_path / "pod.yaml"
    outputs = []
    for manifest in (shares, percent):
        file.write_text(manifest)
        outputs.append(drawbridge("fix", "-f", file, "-o", "yaml").stdout)

    assert outputs == [
        pod("{nvidia.com/gpu: 32, nvidia.com/gpumem: 1000}"),
        # A percentage is shared among as many devices, which another number would change.
        percent,
    ]


def test_a_missing_limit_is_added() -> None:
    before = pod("{cpu: 1}", "{nvidia.com/gpu: 1, nvidia.com/gpumem: 3000}")

    assert fixed(before) == before.replace(
        "{cpu: 1}", "{cpu: 1, nvidia.com/gpu: 1, nvidia.com/gpumem: 3000}"
    )


def test_a_request_that_differs_from_its_limit_becomes_equal() -> None:
    before = pod("{nvidia.com/gpu: 1}", "{nvidia.com/gpu: 2}")

    assert fixed(before) == pod("{nvidia.com/gpu: 1}", "{nvidia.com/gpu: 1}")


def test_claims_are_fixed_where_they_are() -> None:
    manifest = (DENIED / "too-many.yaml").read_text()

    result = fix(manifest, "-o", "yaml", snapshot=DENIED / "cluster.yaml")

    assert result.exit_code == 0, result.stderr
    assert changed_lines(manifest, result.stdout) == [("count: 8", "count: 4")]


def test_an_older_version_keeps_its_shape() -> None:
    manifest = (DENIED / "too-large.yaml").read_text()
    old = manifest.replace("resource.k8s.io/v1", "resource.k8s.io/v1beta1").replace(
        "    - name: gpu\n      exactly:\n        deviceClassName",
        "    - name: gpu\n      deviceClassName",
    )
    old = old.replace(
        "        capacity:\n          requests:\n            memory",
        "      capacity:\n        requests:\n          memory",
    )

    after = fixed(old, snapshot=DENIED / "cluster.yaml")

    assert changed_lines(old, after) == [("memory: 100Gi", "memory: 80Gi")]


IN_USE = """---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: other, namespace: team}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: shared.gpu.example.com}}]}}
status:
  allocation:
    devices:
      results:
      - {request: gpu, driver: gpu.example.com, pool: node-b, device: gpu-0,
         shareID: 7d3ee28e-1a45-4b6b-9d6e-2a5cf4b4a7d1, consumedCapacity: {memory: 28Gi}}
"""


def test_what_is_in_use_is_left_unless_it_is_asked_for(tmp_path: Path) -> None:
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text((DENIED / "cluster.yaml").read_text() + IN_USE)
    manifest = (DENIED / "outside-policy.yaml").read_text().replace("38Gi", "31Gi")

    assert fixed(manifest, snapshot=snapshot) == manifest
    after = fixed(manifest, "--warnings", snapshot=snapshot)
    assert changed_lines(manifest, after) == [("memory: 31Gi", "memory: 10Gi")]


def test_what_a_quota_has_left_is_written_if_it_is_asked_for(tmp_path: Path) -> None:
    quota = DENIED.parent / "quota"
    text = (quota / "cluster.yaml").read_text() + "---\n" + (quota / "vision.yaml").read_text()
    # A pod that the quota denies, and would not if others ended, is as right as one that waits.
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(text.replace("  limits:\n", "  whenFull: Deny\n  limits:\n"))
    pod = (quota / "pods.yaml").read_text().split("---\n")[1]

    assert fixed(pod, snapshot=snapshot) == pod
    after = fixed(pod, "--warnings", snapshot=snapshot)
    assert changed_lines(pod, after) == [("nvidia.com/gpumem: 28672", "nvidia.com/gpumem: 24576")]


@pytest.mark.parametrize("indent", [None, 2, "\t"])
def test_json_stays_json(indent: int | str | None) -> None:
    manifest = api_object(
        "Pod",
        "p",
        annotations={"a/b": 'x: "y" \u00e9'},
        spec={
            "containers": [
                {
                    "name": "main",
                    "image": "i",
                    "resources": {
                        "requests": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8Gi"},
                        "limits": {"nvidia.com/gpumem": "8Gi"},
                    },
                }
            ]
        },
    )
    text = json.dumps(manifest, indent=indent)

    after = fixed(text)

    limits = {"nvidia.com/gpumem": 8192, "nvidia.com/gpu": 1}
    requests = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": 8192}
    resources = {"requests": requests, "limits": limits}
    manifest["spec"]["containers"][0]["resources"] = resources
    assert json.loads(after) == manifest
    old_lines, lines = text.split("\n"), after.split("\n")
    assert len(lines) == len(old_lines) + (indent is not None)


def test_a_list_of_json_is_edited_in_its_items() -> None:
    pods = [
        api_object(
            "Pod",
            name,
            spec={
                "containers": [
                    {
                        "name": "main",
                        "resources": {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": memory}},
                    }
                ]
            },
        )
        for name, memory in (("a", 3000), ("b", 200000))
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}, indent=1)

    assert changed_lines(text, fixed(text)) == [
        ('"nvidia.com/gpumem": 200000', '"nvidia.com/gpumem": 81920')
    ]


def test_json_lists_fixes_objects_and_what_is_left() -> None:
    result = fix(ANNOTATED, "-o", "json")

    answer = json.loads(result.stdout)
    assert (answer["apiVersion"], answer["kind"]) == ("cli.drawbridge.internal/v1", "FixReport")
    place = "spec.template.spec.containers[0].resources"
    assert {
        "code": "exceedsLargestDevice",
        "object": "Deployment/default/trainer",
        "file": "<stdin>",
        "line": 2,
        "path": f"{place}.limits[nvidia.com/gpumem]",
        "before": "200000",
        "after": "81920",
    } in answer["fixes"]
    assert [entry["path"] for entry in answer["fixes"]].count(
        f"{place}.requests[nvidia.com/gpumem]"
    ) == 1
    (deployment,) = answer["objects"]
    containers = deployment["spec"]["template"]["spec"]["containers"]
    assert 81920 == containers[0]["resources"]["limits"]["nvidia.com/gpumem"]
    assert "error" not in {finding["severity"] for finding in answer["findings"]}


def test_text_has_a_line_for_each_amount() -> None:
    result = fix(pod("{nvidia.com/gpu: 1, nvidia.com/gpumem: 8Gi}"), "-o", "text")

    place = "<stdin>:8: Pod/default/p: spec.containers[0].resources.limits[nvidia.com/gpumem]"
    assert result.stdout.splitlines() == [
        f"{place}: 8Gi -> 8192 [wrongUnit]",
        "1 object checked: 1 value fixed in 1",
    ]


def test_what_is_left_has_the_line_of_its_field(tmp_path: Path) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(ANNOTATED.replace("nvidia.com/gpumem: 200000", "nvidia.com/gpumem: lots"))

    for options in ((), ("--in-place",)):
        result = drawbridge("fix", "-f", file, "--snapshot", CLUSTER, *options)

        (error,) = (line for line in result.stderr.splitlines() if ": error: " in line)
        number = int(error.removeprefix(f"{file}:").partition(":")[0])
        assert "gpumem" in file.read_text().splitlines()[number - 1], error


def test_the_default_is_a_diff(tmp_path: Path) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(ANNOTATED)

    result = drawbridge("fix", "-f", file, "--snapshot", CLUSTER)

    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert [f"--- {file}", f"+++ {file}"] == lines[:2]
    assert "+            nvidia.com/gpumem: 81920" in lines
    assert file.read_text() == ANNOTATED


def test_files_are_rewritten_in_place(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(ANNOTATED)
    good = pod("{nvidia.com/gpu: 1}")
    (tmp_path / "good.yaml").write_text(good)
    bad = pod("{nvidia.com/gpu: 500m}")
    (tmp_path / "bad.yaml").write_text(bad)

    result = drawbridge("fix", "-f", tmp_path, "--snapshot", CLUSTER, "--in-place")

    assert result.exit_code == 1
    assert result.stdout == f"{tmp_path / 'app.yaml'}: 1 object fixed\n"
    assert "[notAnInteger]" in result.stderr
    assert (tmp_path / "app.yaml").read_text() == fixed(ANNOTATED)
    assert (tmp_path / "good.yaml").read_text() == good
    assert (tmp_path / "bad.yaml").read_text() == bad

    again = drawbridge("fix", "-f", tmp_path, "--snapshot", CLUSTER, "--in-place")

    assert (again.exit_code, again.stdout) == (1, "")
    assert "no file changes" in again.stderr


def test_several_files_are_one_stream(tmp_path: Path) -> None:
    first, second = pod("{nvidia.com/gpu: 1}").rstrip("\n"), pod("{nvidia.com/gpucores: 10}")
    (tmp_path / "a.yaml").write_text(first)
    (tmp_path / "b.yaml").write_text(second)

    result = drawbridge("fix", "-f", tmp_path, "--snapshot", CLUSTER, "-o", "yaml")

    assert result.stdout == f"{first}\n---\n{second}"


def test_a_repository_is_fixed_around_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("a: 1\n")
    (tmp_path / "broken.yaml").write_text("a: [\n")
    (tmp_path / "app.yaml").write_text(ANNOTATED)

    result = drawbridge("fix", "-f", tmp_path, "-R", "--snapshot", CLUSTER, "--in-place")

    assert result.exit_code == 2
    assert f"Error: {tmp_path / 'broken.yaml'}" in result.stderr
    assert (tmp_path / "app.yaml").read_text() == fixed(ANNOTATED)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--in-place", "-o", "yaml"), "--in-place and -o are mutually exclusive."),
        (("--in-place",), "--in-place rewrites files; - is standard input."),
        (("-o", "sarif"), "'sarif' is not one of"),
    ],
)
def test_wrong_calls(options: tuple[str, ...], message: str) -> None:
    result = fix(ANNOTATED, *options)

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_files_of_others_and_compressed_ones_are_not_rewritten(tmp_path: Path) -> None:
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: web\n")
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "app.yaml").write_text(ANNOTATED)
    compressed = tmp_path.parent / f"{tmp_path.name}.yaml.gz"
    compressed.write_bytes(gzip.compress(ANNOTATED.encode()))

    chart = drawbridge("fix", "-f", tmp_path / "templates", "--snapshot", CLUSTER, "--in-place")
    archive = drawbridge("fix", "-f", compressed, "--snapshot", CLUSTER, "--in-place")

    assert (2, 2) == (chart.exit_code, archive.exit_code)
    assert f"helm template {tmp_path} | drawbridge fix -f -" in chart.stderr
    assert "is compressed" in archive.stderr
    printed = drawbridge("fix", "-f", compressed, "--snapshot", CLUSTER, "-o", "yaml")
    assert printed.stdout == fixed(ANNOTATED)


def test_hostile_names_are_escaped() -> None:
    manifest = pod("{nvidia.com/gpu: 1, nvidia.com/gpumem: 8Gi}").replace(
        "name: p", 'name: "\\e[31m"'
    )

    result = fix(manifest, "-o", "text")

    assert "\x1b" not in result.stdout + result.stderr


def test_one_fix_that_is_not_proved_keeps_no_other_from_being_made() -> None:
    """All together fail, so each is tried alone; twice is still once."""
    containers = [
        f"  - name: c{number}\n    resources: {{limits: {{{limits}}}}}\n"
        for number, limits in enumerate(
            [
                "nvidia.com/gpu: 40, nvidia.com/gpumem-percentage: 150",
                *["nvidia.com/gpu: 1, nvidia.com/gpucores: 150"] * 20,
                "nvidia.com/gpu: 1, nvidia.com/gpumem: 4Gi",
            ]
        )
    ]
    head = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n"
    manifest = head + "".join(containers)

    after = fixed(manifest, snapshot=UNMAPPED)

    assert fixed(after, snapshot=UNMAPPED) == after
    assert after.count("nvidia.com/gpucores: 100") == 20
    assert "nvidia.com/gpumem-percentage: 150" in after


@pytest.mark.parametrize("options", [(), ("-o", "yaml"), ("--in-place",)])
def test_a_file_that_is_named_twice_is_a_wrong_call(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(ANNOTATED)

    again = tmp_path / ".." / tmp_path.name / "app.yaml"
    result = drawbridge("fix", "-f", file, "-f", again, "--snapshot", CLUSTER, *options)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "a file is named twice" in result.stderr
    assert file.read_text() == ANNOTATED


ALIASES = """\
# Two containers alike.
apiVersion: v1
kind: Pod
metadata: {name: alias}
spec:
  containers:
  - {name: a, resources: {limits: &limits {nvidia.com/gpu: 1, nvidia.com/gpumem: 200000}}}
  - {name: b, resources: {limits: *limits}}
"""
ALIAS_REASON = ":8: cannot be edited: the value is an alias; write it out"


def test_output_of_yaml_prints_the_objects_of_a_file_that_cannot_be_edited() -> None:
    result = fix(ALIASES, "-o", "yaml")

    assert result.exit_code == 0
    assert result.stdout.count("nvidia.com/gpumem: 81920\n") == 2
    assert f"{ALIAS_REASON}; its objects are printed anew" in result.stderr


def test_a_shared_anchor_is_named_with_its_line() -> None:
    text = pod("{nvidia.com/gpu: 1, nvidia.com/gpumem: &amount 200000}")
    text = text.replace("metadata:", "x-amount: &other 1\nmetadata:") + "x-copy: *amount\n"

    result = fix(text)

    number = next(n for n, line in enumerate(text.splitlines(), 1) if "&amount" in line)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f":{number}: cannot be edited: aliases refer to the value by &amount" in result.stderr
    assert "-o yaml prints the objects" in result.stderr


@pytest.mark.parametrize("options", [(), ("--in-place",)])
def test_files_are_fixed_around_one_that_cannot_be_edited(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "alias.yaml").write_text(ALIASES)
    (tmp_path / "app.yaml").write_text(ANNOTATED)

    result = drawbridge("fix", "-f", tmp_path, "--snapshot", CLUSTER, *options)

    assert result.exit_code == 2
    assert f"Error: {tmp_path / 'alias.yaml'}{ALIAS_REASON}\n" in result.stderr
    assert (tmp_path / "alias.yaml").read_text() == ALIASES
    if options:
        assert (tmp_path / "app.yaml").read_text() == fixed(ANNOTATED)
    else:
        assert f"+++ {tmp_path / 'app.yaml'}" in result.stdout


def test_a_stream_of_json_is_not_edited() -> None:
    document = api_object("Pod", "p")
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": "8Gi"}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    text = f"{json.dumps({**document, 'spec': spec})}\n{json.dumps(document)}\n"

    result = fix(text)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "a stream; use -o json" in result.stderr
    assert "nvidia.com/gpumem: 8192\n" in fix(text, "-o", "yaml").stdout
    assert json.loads(fix(text, "-o", "json").stdout)["fixes"][0]["after"] == "8192"


@pytest.mark.parametrize(
    ("limits", "fixed_limits"),
    [
        (
            "{nvidia.com/gpu: 3, nvidia.com/gpumem-percentage: 50}",
            "{nvidia.com/gpu: 2, nvidia.com/gpumem-percentage: 50}",
        ),
        (
            "{koordinator.sh/gpu.shared: 3, koordinator.sh/gpu-core: 150, koordinator.sh/gpu-memory-ratio: 150}",
            "{koordinator.sh/gpu.shared: 2, koordinator.sh/gpu-core: 100, koordinator.sh/gpu-memory-ratio: 100}",
        ),
    ],
    ids=["hami", "koordinator"],
)
def test_a_number_of_devices_of_several_sizes_is_one_fix(limits: str, fixed_limits: str) -> None:
    manifest, call = pod(limits), ("-f", "-", "--snapshot", CLUSTER)
    values = fixed_limits.strip("{}").replace(", nvidia.com/gpumem-percentage: 50", "")

    simulated = drawbridge("simulate", *call, stdin=manifest, COLUMNS="300").stdout
    rejected = drawbridge("check", *call, stdin=manifest)
    fixed_manifest = fixed(manifest, snapshot=CLUSTER)

    assert f"closest   write {values} to fit node hami-0\n" in simulated
    assert f"; write {values} to fit node hami-0 [exceedsLargestNode]" in rejected.stdout
    assert fixed_manifest == pod(fixed_limits)
    assert drawbridge("check", *call, stdin=fixed_manifest).exit_code == 0


KAI = """\
apiVersion: v1
kind: Namespace
metadata: {name: team, labels: {drawbridge.internal/translate: "true"}}
---
apiVersion: v1
kind: Pod
metadata:
  name: train
  namespace: team
  annotations: {gpu-memory: "200000"}
spec:
  schedulerName: kai-scheduler
  containers: [{name: main}]
"""
TENSORFUSION = """\
apiVersion: v1
kind: Pod
metadata:
  name: train
  labels: {tensor-fusion.ai/enabled: "true"}
  annotations:
    tensor-fusion.ai/vram-request: 200Gi
    tensor-fusion.ai/vram-limit: 200Gi
    tensor-fusion.ai/compute-percent-request: "50"
spec:
  containers: [{name: main}]
"""
PROFILE = """\
apiVersion: tensor-fusion.ai/v1
kind: WorkloadProfile
metadata: {name: large, namespace: default}
spec:
  resources: {requests: {vram: 10Gi}}
  gpuCount: 4
---
apiVersion: v1
kind: Pod
metadata:
  name: train
  namespace: default
  labels: {tensor-fusion.ai/enabled: "true"}
  annotations:
    tensor-fusion.ai/workload-profile: large
spec:
  containers: [{name: main}]
"""
VRAM = "annotation tensor-fusion.ai/vram-"


@pytest.mark.parametrize(
    ("manifest", "fix_in_words", "fixed_manifest"),
    [
        (KAI, "write annotation gpu-memory: 81920 to", KAI.replace("200000", "81920")),
        (
            TENSORFUSION,
            f"write {VRAM}request: 80Gi, {VRAM}limit: 80Gi to",
            TENSORFUSION.replace("200Gi", "80Gi"),
        ),
        (
            PROFILE,
            "write annotation tensor-fusion.ai/gpu-count: 2 to",
            PROFILE.replace(
                "workload-profile: large\n",
                'workload-profile: large\n    tensor-fusion.ai/gpu-count: "2"\n',
            ),
        ),
    ],
    ids=["kai", "tensorfusion", "tensorfusion with a profile"],
)
def test_an_amount_of_an_annotation_is_written(
    manifest: str, fix_in_words: str, fixed_manifest: str
) -> None:
    call = ("-f", "-", "--snapshot", CLUSTER)

    assert f"; {fix_in_words} fit node hami-" in drawbridge("check", *call, stdin=manifest).stdout
    assert fixed(manifest, snapshot=CLUSTER) == fixed_manifest
    assert drawbridge("check", *call, stdin=fixed_manifest).exit_code == 0
