"""Values that properties are checked on."""

from typing import Any

from hypothesis import strategies as st

from kube.api.resource import ResourceSlice
from testing.builders import (
    DRANET,
    EXAMPLE,
    HAMI,
    NVIDIA,
    SRIOV,
    device,
    device_at_root,
    driver_slice,
    hami_gpu,
    mig_device,
    nvidia_gpu,
)
from translation.cluster.snapshot import DEFAULT_PROFILES, TranslationOptions

_DIGITS = st.text("0123456789", max_size=24)
_SHORT_DIGITS = st.text("0123456789", max_size=4)
_SUFFIXES = st.sampled_from(("", "n", "u", "m", "k", *"MGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
_EXPONENTS = st.builds(
    "{}{}".format, st.sampled_from("eE"), st.integers(-30, 30).map(lambda power: f"{power:+d}")
) | st.builds("e{}".format, st.integers(-30, 30))


@st.composite
def quantity_texts(draw: st.DrawFn) -> str:
    """Texts in the grammar of quantities, the odd ones that upstream takes included."""
    sign = draw(st.sampled_from(("", "", "", "-", "+")))
    whole = draw(_SHORT_DIGITS | _DIGITS)
    fraction = draw(st.just("") | st.builds(".{}".format, _SHORT_DIGITS | _DIGITS))
    suffix = draw(_SUFFIXES | _EXPONENTS)
    # Digits may be missing on both sides where upstream has no need of them.
    if not (whole or fraction.strip(".")) and suffix not in {"m", "k", "Ki", "e3"}:
        whole = "0"
    return f"{sign}{whole}{fraction}{suffix}"


def broken_quantity_texts() -> st.SearchStrategy[str]:
    """Texts made of the letters of quantities, mostly not quantities."""
    return st.text("0123456789.+-eEinumkKMGTP _", max_size=12)


# --- pods -----------------------------------------------------------------------------------------

_AMOUNTS = {
    "nvidia.com/gpu": ("1", "2", "0", "1.0"),
    "nvidia.com/gpu.shared": ("1", "2"),
    "nvidia.com/gpumem": ("3000", "5k", "0", "1"),
    "nvidia.com/gpumem-percentage": ("50", "33", "100", "0"),
    "nvidia.com/gpucores": ("30", "100", "0", "150"),
    "nvidia.com/priority": ("0", "1"),
    "nvidia.com/mig-1g.5gb": ("1", "2"),
    "nvidia.com/mig-1g.10gb.me": ("1", "0"),
    "cpu": ("2", "500m"),
    "example.com/nic": ("1",),
}
_NICS = {
    "rdma/hca_shared_devices_a": ("1", "4", "0"),
    "rdma/ib": ("1",),
    "vpc.amazonaws.com/efa": ("4", "32", "0"),
    "aliyun/erdma": ("1", "2"),
    "networking.gke.io.networks/rdma-0": ("1",),
    "networking.gke.io.networks/rdma-0.IP": ("1",),
    "mellanox.com/mlnx_rdma": ("2", "33"),
    "intel.com/intel_sriov_netdevice": ("1", "0"),
}
_KOORDINATOR = {
    "koordinator.sh/gpu": ("50", "100", "200", "0"),
    "koordinator.sh/gpu-core": ("50", "100", "200"),
    "koordinator.sh/gpu-memory": ("8Gi", "80Gi", "5"),
    "koordinator.sh/gpu-memory-ratio": ("50", "100", "200"),
    "koordinator.sh/gpu.shared": ("1", "2"),
    "koordinator.sh/rdma": ("1", "100", "400"),
    "koordinator.sh/fpga": ("1", "100"),
    "nvidia.com/gpu": ("1", "4", "16"),
    "nvidia.com/mig-1g.5gb": ("1",),
    "nvidia.com/gpumem": ("3000",),
    "huawei.com/npu-core": ("1",),
}
_RDMA = ("koordinator.sh/rdma",)
_GPU_SETS = (
    ("koordinator.sh/gpu",),
    ("koordinator.sh/gpu-memory",),
    ("koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"),
    ("koordinator.sh/gpu.shared", "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory"),
    ("nvidia.com/gpu",),
    ("nvidia.com/gpu",),
    (),
)
_JSON = {
    "device-allocate-hint": (
        '{"rdma":{"allocateStrategy":"ApplyForAll"}}',
        '{"rdma":{"allocateStrategy":"RequestsAsCount","exclusivePolicy":"DeviceLevel"}}',
        '{"gpu":{"requiredTopologyScope":"PCIe"},"rdma":{"vfSelector":{}}}',
        '{"gpu":{"requiredTopologyScope":"NUMANode"},"fpga":{"selector":{"a":"b"}}}',
    ),
    "device-joint-allocate": (
        '{"deviceTypes":["gpu","rdma"]}',
        '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}',
        '{"deviceTypes":["rdma","gpu"],"requiredScope":"SamePCIe"}',
    ),
    "gpu-partition-spec": ("{}", '{"allocatePolicy":"Restricted"}'),
    "device-allocated": ("{}",),
}
_LISTS = ("use-gputype", "nouse-gputype", "use-gpuuuid", "nouse-gpuuuid")
_LABEL_LETTERS = "abcxyz019"

_hostile_text = st.text(max_size=40) | st.sampled_from(
    ('"', "\\", '"] || true || ["', "'", "\n", "\\u0022", "${x}", "\x00", "A100,", ",", "é" * 3_000)
)


def dns_labels() -> st.SearchStrategy[str]:
    """Names of containers, up to the longest."""
    return st.text(_LABEL_LETTERS, min_size=1, max_size=63) | st.sampled_from(("main", "x" * 63))


def device_lists(*, hostile: bool) -> st.SearchStrategy[str]:
    """Values of annotations that list models or UUIDs."""
    plain = st.lists(
        st.sampled_from(("A100", "v100", "GPU-0", "GPU-1", "NVIDIA-NVIDIA A100")), min_size=1
    ).map(",".join)
    return plain | st.lists(_hostile_text, max_size=5).map(",".join) if hostile else plain


def _annotations(*, hostile: bool) -> st.SearchStrategy[dict[str, str]]:
    policy = st.sampled_from(("mutex", "numa", "binpack", "spread,numa"))
    mode = st.sampled_from(("hami-core", "hami-core", "mig", "mps"))
    texts_by_key = {f"nvidia.com/{name}": device_lists(hostile=hostile) for name in _LISTS}
    texts_by_key["nvidia.com/numa-bind"] = st.sampled_from(("true", "false", "T", "no"))
    texts_by_key["hami.io/gpu-scheduler-policy"] = policy | _hostile_text if hostile else policy
    texts_by_key["hami.io/device-scoring-weights"] = _hostile_text if hostile else st.just("slot=1")
    texts_by_key["nvidia.com/vgpu-mode"] = mode | _hostile_text if hostile else mode
    keys_ = st.lists(st.sampled_from(sorted(texts_by_key)), max_size=2, unique=True)
    return keys_.flatmap(
        lambda keys: st.fixed_dictionaries({key: texts_by_key[key] for key in keys})
    )


@st.composite
def _amount(draw: st.DrawFn, key: str, *, hostile: bool) -> str:
    if hostile and draw(st.integers(0, 5)) == 0:
        wild = st.sampled_from(("1e30", "-1", "500m", "8Gi", "9" * 100, "1.5"))
        return draw(quantity_texts() | wild)
    return draw(st.sampled_from((_KOORDINATOR | _AMOUNTS | _NICS)[key]))


@st.composite
def _resources(draw: st.DrawFn, *, hostile: bool) -> dict[str, Any]:
    keys = draw(st.lists(st.sampled_from(sorted(_AMOUNTS)), max_size=3, unique=True))
    if draw(st.integers(0, 2)) == 0:
        keys += draw(st.lists(st.sampled_from(sorted(_NICS)), max_size=3, unique=True))
    limits = {key: draw(_amount(key, hostile=hostile)) for key in keys}
    resources: dict[str, Any] = {"limits": limits}
    if draw(st.booleans()):
        resources["requests"] = dict(limits)
    if hostile and keys and draw(st.integers(0, 7)) == 0:
        resources["requests"] = {key: draw(_amount(key, hostile=True)) for key in reversed(keys)}
        if draw(st.booleans()):
            del resources["limits"]
    if draw(st.booleans()):
        resources["claims"] = [{"name": "nic"}]
    return resources


@st.composite
def containers(draw: st.DrawFn, name: str, *, init: bool, hostile: bool) -> dict[str, Any]:
    """A container that asks for devices, or for none."""
    container_: dict[str, Any] = {"name": name}
    if draw(st.integers(0, 4)):
        container_["resources"] = draw(_resources(hostile=hostile))
    if draw(st.booleans()):
        container_["env"] = [{"name": "CUDA_TASK_PRIORITY", "value": draw(st.sampled_from("01"))}]
    if init and draw(st.booleans()):
        container_["restartPolicy"] = "Always"
    if hostile and draw(st.integers(0, 15)) == 0:
        container_["securityContext"] = {"privileged": True}
    return container_


@st.composite
def legacy_pods(draw: st.DrawFn, *, hostile: bool = False) -> dict[str, Any]:
    """Pods as reviews bring them; hostile ones are often refused, the others mostly translated."""
    unique = not (hostile and draw(st.integers(0, 3)) == 0)
    names = draw(st.lists(dns_labels(), min_size=1, max_size=4, unique=unique))
    parting = draw(st.integers(0, len(names) - 1))
    spec: dict[str, Any] = {
        "containers": [draw(containers(n, init=False, hostile=hostile)) for n in names[parting:]],
        "resourceClaims": [{"name": "nic", "resourceClaimName": "nic-1"}],
        "hostNetwork": draw(st.booleans()),
    }
    if parting:
        spec["initContainers"] = [
            draw(containers(n, init=True, hostile=hostile)) for n in names[:parting]
        ]
    if hostile and draw(st.integers(0, 3)) == 0:
        spec["schedulerName"] = draw(st.sampled_from(("default-scheduler", "volcano", "")))
    metadata: dict[str, Any] = {"generateName": "train-"}
    annotations = draw(_annotations(hostile=hostile))
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@st.composite
def koordinator_pods(draw: st.DrawFn, *, hostile: bool = False) -> dict[str, Any]:
    """Pods in Koordinator's words; hostile ones mix its keys and write nonsense in annotations."""
    document = draw(legacy_pods())
    spec = document["spec"]
    key_lists = st.lists(st.sampled_from(sorted(_KOORDINATOR)), max_size=4, unique=True)
    gpus = draw(st.sampled_from(_GPU_SETS))
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        container.pop("resources", None)
        if draw(st.booleans()):
            keys = draw(key_lists) if hostile else [*gpus, *draw(st.sampled_from(((), _RDMA)))]
            limits = {
                key: draw(_amount(key, hostile=True))
                if hostile
                else draw(st.sampled_from(_KOORDINATOR[key]))
                for key in keys
            }
            container["resources"] = {"limits": limits}
    chosen = draw(st.lists(st.sampled_from(sorted(_JSON)), max_size=2, unique=True))
    annotations = {
        f"scheduling.koordinator.sh/{name}": draw(
            st.sampled_from(_JSON[name]) | _hostile_text
            if hostile
            else st.sampled_from(_JSON[name])
        )
        for name in chosen
    }
    if hostile and draw(st.booleans()):
        annotations["pod.koordinator.sh/replace-resources"] = draw(
            _hostile_text | st.just("nvidia.com/gpu:koordinator.sh/gpu,koordinator.sh/rdma:")
        )
    document["metadata"]["annotations"] = annotations
    return document


def published_slices() -> st.SearchStrategy[list[ResourceSlice]]:
    """Slices that drivers may have published."""
    sizes = st.sampled_from(("80Gi", "40Gi", "24576Mi", "85899345920", "17179869183"))
    gpu = st.builds(hami_gpu, sizes)
    whole = st.builds(
        nvidia_gpu,
        sizes,
        shared=st.sampled_from((None, True)),
        replicas=st.booleans(),
        default=st.sampled_from((None, "0", "1Gi")),
    )
    under_roots = st.lists(st.sampled_from(("pci0000:01", "pci0000:02", "")), max_size=6)
    pools = st.sampled_from("abc")
    gpus_under_roots = st.builds(
        lambda roots, pool: driver_slice(HAMI, *map(device_at_root, roots), pool=pool),
        under_roots,
        pools,
    )
    nics_under_roots = st.builds(
        lambda roots, pool: driver_slice(
            DRANET, *(device_at_root(root, device()) for root in roots), pool=pool
        ),
        under_roots,
        pools,
    )
    mig = st.builds(mig_device, st.sampled_from(("4864Mi", "9728Mi", "19968Mi")))
    return st.lists(
        st.builds(driver_slice, st.just(HAMI), gpu, gpu, pool=st.sampled_from("ab"))
        | st.builds(driver_slice, st.just(NVIDIA), whole, mig, pool=st.sampled_from("ab"))
        | st.builds(
            driver_slice, st.just(DRANET), st.just(device("nic")), pool=st.sampled_from("ab")
        )
        | gpus_under_roots
        | nics_under_roots,
        max_size=4,
    )


def operators_options() -> st.SearchStrategy[TranslationOptions]:
    """Translation options that an operator may choose."""
    gpus = st.sampled_from((HAMI, NVIDIA, EXAMPLE))
    nics = st.sampled_from((DRANET, SRIOV, NVIDIA))
    owners = {"hami": gpus, "nvidia": gpus, "koordinator": gpus, "rdma": nics, "sriov": nics}
    return st.builds(
        TranslationOptions,
        profiles=st.just(DEFAULT_PROFILES)
        | st.just(DEFAULT_PROFILES)
        | st.fixed_dictionaries({}, optional=owners),
        default_gpu_owner=st.sampled_from(("nvidia", "hami", "koordinator")),
        adopt_schedulers=st.sampled_from(({}, {"volcano": "default-scheduler"})),
    )
