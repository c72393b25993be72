"""`drawbridge settings import`: HAMi's and Koordinator's own settings as ours."""

from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from cli.reading.settings import settings_of
from kube.manifests.dump import dump_yaml
from process.model.settings import to_document
from testing.command import drawbridge
from testing.documents import api_object

# As the chart of HAMi 4707fb0 writes it, with other names and defaults.
DEVICE_CONFIG: Final = """\
nvidia:
  resourceCountName: example.com/vgpu
  resourceMemoryName: example.com/vgpu-memory
  resourceMemoryPercentageName: nvidia.com/gpumem-percentage
  resourceCoreName: nvidia.com/gpucores
  resourcePriorityName: nvidia.com/priority
  overwriteEnv: false
  defaultMemory: 4096
  defaultCores: 25
  defaultGPUNum: 1
  preConfiguredDeviceMemory: 0
  memoryFactor: 1
  deviceSplitCount: 10
  deviceMemoryScaling: 1.5
  deviceCoreScaling: 1
  enableNumaTopology: false
  gpuCorePolicy: force
  libCudaLogLevel: 1
  runtimeClassName: ""
  migProfileAllowlist:
  - models: [ "A30" ]
    profiles: [ "1g.6gb", "2g.12gb", "4g.24gb" ]
cambricon:
  resourceCountName: cambricon.com/vmlu
hygon:
  resourceCountName: hygon.com/dcunum
  resourceMemoryName: example.com/dcu-memory
  resourceCoreName: hygon.com/dcucores
  memoryFactor: 1
vnpus:
  hamiVnpuCore: false
  configs:
  - chipName: 910B2
    commonWord: Ascend910B2
    resourceName: example.com/npu
    resourceMemoryName: huawei.com/Ascend910B2-memory
  - chipName: 310P3
    commonWord: Ascend310P
    memoryAllocatable: 21527
    memoryCapacity: 24576
    memoryFactor: 1
    aiCore: 8
    aiCPU: 7
    templates:
    - {name: vir04, memory: 12288, aiCore: 4, aiCPU: 4}
  - chipName: Ascend910
    commonWord: Ascend910C
    memoryAllocatable: 65536
    memoryCapacity: 65536
    memoryFactor: 1024
    aiCore: 20
    superPod: true
    templates:
    - {name: vir05_1c_16g, memory: 16384, aiCore: 5}
    - {name: vir10_3c_32g, memory: 32768, aiCore: 10}
  - {commonWord: Ascend910A, templates: 7}
"""
KOORDINATOR: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - pluginConfig:
    - name: DeviceShare
      args:
        scoringStrategy:
          type: MostAllocated
    plugins:
      preFilter:
        enabled:
          - name: DeviceShare
    schedulerName: koord-scheduler
"""
HAMI_SCHEDULER: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: my-hami
extenders:
- urlPrefix: "https://127.0.0.1:443"
  filterVerb: filter
  managedResources:
  - name: nvidia.com/gpu
    ignoredByScheduler: true
"""
NODE_CONFIG: Final = """\
{"nodeconfig": [{"name": "your-node-name", "devicesplitcount": 10}, {"name": "big", "devicesplitcount": 2}]}
"""


def config_map(name: str, key: str, text: str) -> dict[str, Any]:
    return api_object("ConfigMap", name, "kube-system", data={key: text})


CONFIG_MAPS_OF_BOTH: Final = (
    config_map("hami-scheduler-device", "device-config.yaml", DEVICE_CONFIG),
    config_map("hami-scheduler", "config.yaml", HAMI_SCHEDULER),
    config_map("hami-device-plugin", "config.json", NODE_CONFIG),
    config_map("koord-scheduler-config", "koord-scheduler-config", KOORDINATOR),
    config_map("kube-root-ca.crt", "ca.crt", "-----BEGIN CERTIFICATE-----\n"),
)


def imported(*objects: dict[str, Any]) -> str:
    result = drawbridge("settings", "import", "-f", "-", stdin=dump_yaml(objects))
    assert result.exit_code == 0, result.output
    return result.stdout


def comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.startswith("#"))


def test_config_maps_become_settings() -> None:
    assert {
        "translation": {
            "adoptSchedulers": {
                "koord-scheduler": "default-scheduler",
                "my-hami": "default-scheduler",
            },
            "ascendChips": {
                "Ascend310P": {
                    "memoryAllocatable": 21527,
                    "memoryCapacity": 24576,
                    "aiCore": 8,
                    "templates": [{"name": "vir04", "memory": 12288, "aiCore": 4}],
                }
            },
            "hami": {"corePolicy": "force", "defaultCores": 25, "defaultMemory": 4096},
            "renamedKeys": {
                "example.com/dcu-memory": "hygon.com/dcumem",
                "example.com/npu": "huawei.com/Ascend910B2",
                "example.com/vgpu": "nvidia.com/gpu",
                "example.com/vgpu-memory": "nvidia.com/gpumem",
            },
        }
    } == yaml.load(imported(*CONFIG_MAPS_OF_BOTH), Loader=yaml.CSafeLoader)


def test_what_is_printed_is_a_settings_file() -> None:
    settings = settings_of(imported(*CONFIG_MAPS_OF_BOTH), "test")

    document = to_document(settings)["translation"]
    assert (4096, "force") == (document["hami"]["defaultMemory"], document["hami"]["corePolicy"])


@pytest.mark.parametrize(
    "want",
    [
        "# Imported from ConfigMap kube-system/hami-scheduler-device.",
        "# - nvidia.deviceSplitCount 10 (",
        "# - nvidia.deviceMemoryScaling 1.5 (",
        "# - cambricon (",
        "# - vnpus.Ascend910C.memoryFactor (",
        "# - vnpus.Ascend910A (",
        '# - nodeconfig of "big" (',
        "# - DeviceShare.scoringStrategy (",
    ],
)
def test_what_has_no_target_is_a_comment(want: str) -> None:
    assert want in comments(imported(*CONFIG_MAPS_OF_BOTH))


@pytest.mark.parametrize(
    "name", ["ca.crt", "your-node-name", "libCudaLogLevel", "deviceCoreScaling"]
)
def test_what_is_as_in_the_chart_is_no_comment(name: str) -> None:
    assert name not in comments(imported(*CONFIG_MAPS_OF_BOTH))


HAMI_VALUES: Final = {
    "resourceName": "nvidia.com/gpu",
    "resourceMem": "example.com/mem",
    "schedulerName": "hami-scheduler",
    "scheduler": {"defaultSchedulerPolicy": {"gpuSchedulerPolicy": "spread"}},
    "devicePlugin": {"deviceSplitCount": 4},
    "devices": {"nvidia": {"gpuCorePolicy": "disable"}},
}


class Case(NamedTuple):
    name: str
    values: dict[str, Any]
    want: dict[str, Any]
    comment: str


CASES = (
    Case(
        "the values of HAMi's chart",
        HAMI_VALUES,
        {
            "adoptSchedulers": {"hami-scheduler": "default-scheduler"},
            "defaultGpuOwner": "hami",
            "hami": {"corePolicy": "disable"},
            "renamedKeys": {"example.com/mem": "nvidia.com/gpumem"},
        },
        "devicePlugin.deviceSplitCount 4",
    ),
    Case(
        "the values of Koordinator's chart",
        {"koordlet": {}, "scheduler": {"featureGates": ""}},
        {"adoptSchedulers": {"koord-scheduler": "default-scheduler"}},
        "ReplaceResourcesTransformer is off",
    ),
    Case(
        "the values of the chart of Volcano's device plugin",
        {
            "deviceConfig": {
                "nvidia": {
                    "resourceCountName": "volcano.sh/vgpu-number",
                    "resourceMemoryName": "example.com/mem",
                    "gpuMemoryFactor": 10,
                    "deviceSplitCount": 5,
                }
            }
        },
        {
            "renamedKeys": {"example.com/mem": "volcano.sh/vgpu-memory"},
            "volcano": {"memoryFactor": 10},
        },
        "deviceConfig.nvidia.deviceSplitCount 5 (",
    ),
    Case(
        "a name that another vocabulary has",
        {**HAMI_VALUES, "resourceMem": "volcano.sh/vgpu-memory"},
        {
            "adoptSchedulers": {"hami-scheduler": "default-scheduler"},
            "defaultGpuOwner": "hami",
            "hami": {"corePolicy": "disable"},
        },
        'resourceMem (values.yaml): "volcano.sh/vgpu-memory" is a key of the vocabulary volcano',
    ),
    Case(
        "a name that is none",
        {**HAMI_VALUES, "resourceMem": "memory\n- x"},
        {
            "adoptSchedulers": {"hami-scheduler": "default-scheduler"},
            "defaultGpuOwner": "hami",
            "hami": {"corePolicy": "disable"},
        },
        r'"memory\n- x" is not the name of an extended resource',
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_become_settings(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("values.yaml").write_text(dump_yaml([case.values]))

    result = drawbridge("settings", "import", "--values", "values.yaml")

    assert (0, {"translation": case.want}) == (
        result.exit_code,
        yaml.load(result.stdout, Loader=yaml.CSafeLoader),
    )
    assert case.comment in comments(result.stdout)


def test_documents_that_differ_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(dump_yaml([HAMI_VALUES]))

    result = drawbridge(
        *("settings", "import", "-f", "-", "--values", file),
        stdin=dump_yaml([config_map("hami", "device-config.yaml", DEVICE_CONFIG)]),
    )

    translation = yaml.load(result.stdout, Loader=yaml.CSafeLoader)["translation"]
    assert ("force", False) == (translation["hami"]["corePolicy"], "defaultGpuOwner" in translation)
    assert "example.com/mem" not in translation["renamedKeys"]
    note = "hami.corePolicy: force of ConfigMap kube-system/hami is kept"
    assert f"# - hami.corePolicy: disable ({file}): {note}" in result.stdout


@pytest.mark.parametrize(
    "text",
    [
        "nvidia: [1]",
        "nvidia: {resourceCountName: [a], defaultMemory: x, gpuCorePolicy: [force]}",
        "nvidia: {gpuCorePolicy: {a: b}, deviceSplitCount: {a: b}}\nvnpus: [1, {commonWord: 3}]",
        "nvidia: {x: 1}\nvnpus: {configs: 7}\nhygon: no",
    ],
)
def test_wrong_types_are_no_crash(text: str) -> None:
    objects = [config_map("hami", "device-config.yaml", text), *CONFIG_MAPS_OF_BOTH]

    assert imported(*objects)


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 30_000, "- " * 60_000, "#" * 1_000_000])
def test_a_text_of_anybody_ends_no_command(text: str) -> None:
    theirs = config_map("a", "a.yaml", f"# KubeSchedulerConfiguration\n{text}")
    theirs["metadata"]["namespace"] = "theirs"

    assert "example.com/vgpu: nvidia.com/gpu" in imported(
        theirs, config_map("hami-scheduler-device", "device-config.yaml", DEVICE_CONFIG)
    )


def test_nothing_to_import_is_reported() -> None:
    objects = [config_map("other", "a.yaml", "b: c")]

    result = drawbridge("settings", "import", "-f", "-", stdin=dump_yaml(objects))

    assert (1, "") == (result.exit_code, result.stdout)
    assert "no settings of HAMi or Koordinator" in result.stderr


@pytest.mark.parametrize(
    "flags", [(), ("--context", "x", "-f", "x"), ("--values", "/nonexistent/values.yaml")]
)
def test_wrong_calls(flags: tuple[str, ...]) -> None:
    assert drawbridge("settings", "import", *flags).exit_code == 2


# As the chart of HAMi-DRA 052848d writes it, with other names.
DRA_CONFIG: Final = """\
nvidia:
  resourceCountName: example.com/vgpu
  resourceMemoryName: nvidia.com/gpumem
  resourceCoreName: nvidia.com/gpucores
  deviceClassName: hami-core-gpu.project-hami.io
  draDriverName: hami-core-gpu.project-hami.io
  overwriteEnv: false
  defaultMemory: 0
  defaultCores: 10
  defaultGPUNum: 1
hygon:
  resourceCountName: hygon.com/hcunum
  resourceMemoryName: example.com/hcu-memory
  resourceCoreName: hygon.com/hcucores
  deviceClassName: other.hygon.example
  draDriverName: dra.hygon.com
  requestName: hcu
  referenceComputeUnits: 80
ascend:
  deviceClassName: hami-vnpu-core.project-hami.io
  draDriverName: ascend.project-hami.io
  requestName: npu
  devices:
  - commonWord: Ascend910B3
    chipName: "910B3"
    resourceName: example.com/npu
    resourceMemoryName: huawei.com/Ascend910B3-memory
    resourceCoreName: huawei.com/Ascend910B3-core
vendors:
- "nvidia"
- "hygon"
"""


def test_the_config_of_hamis_converter_becomes_settings() -> None:
    text = imported(config_map("hami-dra-webhook-device-config", "device-config.yaml", DRA_CONFIG))

    # Ascend is not among the vendors, so the converter leaves it alone.
    assert {
        "hami": {"defaultCores": 10},
        "renamedKeys": {
            "example.com/hcu-memory": "hygon.com/hcumem",
            "example.com/vgpu": "nvidia.com/gpu",
        },
    } == yaml.load(text, Loader=yaml.CSafeLoader)["translation"]
    assert '# - hygon.deviceClassName "other.hygon.example" (' in comments(text)
    assert "# - hygon.referenceComputeUnits 80 (" in comments(text)


def test_the_values_of_hamis_converter_become_settings(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(
        """\
resourceName: nvidia.com/gpu
resourceMem: example.com/memory
hcuResourceName: example.com/hcu
deviceVendors: [nvidia, ascend, metax]
ascendDeviceClassName: hami-vnpu-core.project-hami.io
ascendDevices:
- commonWord: Ascend310P
  resourceName: example.com/npu
webhook: {config: {scope: {excludedNamespaces: [kube-system, team-a]}}}
"""
    )

    result = drawbridge("settings", "import", "--values", str(values))

    assert {
        "defaultGpuOwner": "hami",
        "renamedKeys": {
            "example.com/memory": "nvidia.com/gpumem",
            "example.com/npu": "huawei.com/Ascend310P",
        },
    } == yaml.load(result.stdout, Loader=yaml.CSafeLoader)["translation"]
    assert '# - vendors "metax" (' in result.stdout
    assert "# - webhook.config.scope.excludedNamespaces (" in result.stdout


def test_volcanos_config_map_has_the_key_of_hamis_and_other_settings() -> None:
    config = """\
nvidia:
  resourceCountName: volcano.sh/vgpu-number
  resourceMemoryName: volcano.sh/vgpu-memory
  resourceMemoryPercentageName: volcano.sh/vgpu-memory-percentage
  resourceCoreName: volcano.sh/vgpu-cores
  defaultMemory: 0
  gpuMemoryFactor: 10
"""

    text = imported(config_map("volcano-vgpu-device-config", "device-config.yaml", config))

    assert {"translation": {"volcano": {"memoryFactor": 10}}} == yaml.load(
        text, Loader=yaml.CSafeLoader
    )
    assert 10 == settings_of(text, "test").translation.volcano.memory_factor


def test_the_memory_factor_of_hygon_has_no_target() -> None:
    config = "nvidia: {resourceCountName: nvidia.com/gpu}\nhygon: {memoryFactor: 512}\n"

    text = imported(config_map("hami-scheduler-device", "device-config.yaml", config))

    assert "# - hygon.memoryFactor (" in comments(text)
