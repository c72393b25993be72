"""Settings of the translation of pods.

Webhook, controllers, certificate controller and command line share them, so that they cannot disagree.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from findings.text import printable
from kube.errors import ConfigError
from kube.names import NAMESPACE
from process.model.settings import Name, Section
from process.profiles.profile_files import load_profiles
from translation.cluster.snapshot import (
    DEFAULT_PROFILES,
    ClaimUnawareComponent,
    Mode,
    NativePolicy,
    QuotaPolicy,
    TolerationPolicy,
    TranslationOptions,
    exempt_namespaces,
    split_profiles,
    vocabularies_in_force,
)
from translation.model.choices import (
    MAX_MEMORY_MIB,
    Choices,
    CorePolicy,
    Exclusivity,
    HamiDefaults,
    InitContainers,
    MemoryUnit,
)
from translation.model.npu_chips import NpuChip
from translation.profiles.profile import Profile
from translation.reading import arbiter
from translation.reading.kept_keys import is_kept
from translation.reading.renamed_keys import renaming_fault
from translation.vocabularies import nvidia


class HamiSettings(Section, frozen=True, kw_only=True):
    """The meaning of HAMi's keys, if its own settings differ from those of its chart.

    `drawbridge settings import` reads them from HAMi's ConfigMaps.
    """

    default_count: Annotated[int, msgspec.Meta(ge=0, le=32)] = 1
    """GPUs of a container that has other keys of HAMi only; 0: none. HAMi's defaultGPUNum."""

    default_memory: Annotated[int, msgspec.Meta(ge=0, le=MAX_MEMORY_MIB)] = 0
    """MiB of a GPU without an amount of memory; 0: all of it. HAMi's defaultMemory."""

    default_cores: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    """Percent of the cores of a share without an amount; 0: no limit. HAMi's defaultCores."""

    memory_factor: Annotated[int, msgspec.Meta(ge=1, le=MAX_MEMORY_MIB)] = 1
    """MiB that 1 of `nvidia.com/gpumem` stands for. HAMi's memoryFactor."""

    core_policy: CorePolicy = CorePolicy.DEFAULT
    """The policy of HAMi-core for core limits: `default` (on a shared GPU), `force` or `disable`.
    HAMi's gpuCorePolicy; containers get it as GPU_CORE_UTILIZATION_POLICY."""

    def defaults(self) -> HamiDefaults:
        """Return the same, as the translation takes it."""
        return HamiDefaults(
            count=self.default_count,
            memory=self.default_memory,
            cores=self.default_cores,
            memory_factor=self.memory_factor,
            core_policy=self.core_policy,
        )


class AliyunSettings(Section, frozen=True, kw_only=True):
    """The meaning of Alibaba Cloud's keys."""

    memory_unit: MemoryUnit = MemoryUnit.DETECTED
    """`detected`, `GiB` or `MiB`: what `aliyun.com/gpu-mem` counts, as the flag memory-unit of the
    device plugin has it. `detected`: GiB, but MiB where a pod would have more than any GPU has."""


class VolcanoSettings(Section, frozen=True, kw_only=True):
    """The meaning of the keys of Volcano's vGPUs."""

    memory_factor: Annotated[int, msgspec.Meta(ge=1, le=MAX_MEMORY_MIB)] = 1
    """MiB that 1 of `volcano.sh/vgpu-memory` stands for: gpuMemoryFactor of the device plugin, which has one above
    1 where nodes have much memory. `drawbridge settings import` reads it from the plugin's ConfigMap."""


class TranslationSettings(Section, frozen=True, kw_only=True):
    """Settings of the translation of pods."""

    mode: Mode = Mode.OPT_OUT
    """`OptOut`: pods of every namespace without `drawbridge.internal/translate: "false"` are
    translated. `OptIn`: those of namespaces with `"true"` only. `Shadow`: none; what would become of
    them is counted, logged and told. In every mode a namespace with `selected` takes part with those of
    its pods that have the label `"true"` themselves. The webhook configurations have to be those of the mode, as in
    manifests/overlays and `python -m webhook --print-configuration`."""

    exempt_namespaces: tuple[Name, ...] = ()
    """Namespaces whose pods are never translated nor validated, beside `kube-system` and the webhook's
    own, whatever their labels say. The webhook configurations have to exempt them, too: the chart and
    `python -m webhook --print-configuration` do. Empty: a label opts a namespace out without us."""

    profiles_directory: str | None = None
    """Driver profiles of this cluster, as files; a profile of a shipped driver replaces it.
    None: the shipped ones only."""

    profiles_config_map: Name = "drawbridge-profiles"
    """Name of the ConfigMap, in `namespace`, in which the controllers publish the
    DeviceTranslationProfiles in force, and the versions of them that live pods name."""

    profiles: Mapping[str, str] = {}
    """Vocabulary, or resource name, to the driver that serves it, whatever exists: `hami`, or
    `nvidia.com/gpu`, which precedes. Empty: the driver of the project that a vocabulary comes from,
    and for GPUs the first in docs/vocabularies.md that has devices."""

    vocabularies: tuple[str, ...] = tuple(arbiter.VOCABULARIES)
    """The vocabularies whose keys are translated. The keys of others have no effect, as without us, and
    their pods do not depend on the webhook: apply the webhook configuration that
    `python -m webhook --print-configuration` prints. All of them, since a key that nobody uses costs
    nothing."""

    keep: tuple[str, ...] = ()
    """Vocabularies and resource names that stay with their device plugin, as `[rdma, sriov, multus]` where
    GPUs move and NICs do not. A pod keeps these keys beside its claims, and gets both on one node; nothing
    aligns their devices. A resource name is one that no other vocabulary translates, as
    `nvidia.com/sriov_rdma`, or one of replicas, as `nvidia.com/gpu.shared`: pods keep it, and nodes that
    offer it stay as they are. One to which `renamedKeys` gives a name of `rdma` or `sriov` stays by itself,
    together with that name, or with that vocabulary, and its nodes move. Empty: all that is known is translated."""

    default_gpu_owner: str = "nvidia"
    """The vocabulary that owns `nvidia.com/gpu` where nothing else in the pod says. `nvidia`, since
    the key is the device plugin's; clusters that ran HAMi everywhere want `hami`."""

    renamed_keys: Mapping[str, str] = {}
    """Resource name in pods to the name that it has in its vocabulary, of a cluster that renamed
    it: `example.com/vgpu: nvidia.com/gpu`. Both names work, and `nvidia.com/gpu` is HAMi's then.
    `drawbridge settings import` reads them from HAMi's ConfigMaps."""

    hami: HamiSettings = HamiSettings()

    aliyun: AliyunSettings = AliyunSettings()

    volcano: VolcanoSettings = VolcanoSettings()

    ascend_chips: Mapping[str, NpuChip] = {}
    """Ascend chip, as in `huawei.com/Ascend910B3`, to its memory, cores and templates, as HAMi's
    ConfigMap has them (`memoryAllocatable`, `memoryCapacity`, `aiCore`, `superPod`, `templates`).
    `drawbridge settings import` reads them. Empty: those of the chart of HAMi 2.10."""

    adopt_schedulers: Mapping[str, str] = {}
    """Foreign schedulerName to the scheduler that gets its translated pods; the same name keeps
    them there. Empty: whether a foreign scheduler understands claims is not ours to guess.
    Pods that a scheduler keeps get claims also where a DeviceClass maps their keys, since only kube-scheduler serves such names."""

    native: NativePolicy = NativePolicy.EXACT
    """`exact`, `mapped` or `translate`: the pods that stay as they are where a DeviceClass maps their
    keys. `exact`: those whose class gives only what a key means. A class of all MIG devices gives a pod
    with a MIG profile any of them, so it is translated, with a warning. `mapped`: all of them, whatever
    the class gives. `translate`: none. Kubernetes' own claims for mapped names are ignored by device
    taints that evict, by Karpenter and by Kueue; those of a translation need not be."""

    quota: QuotaPolicy = QuotaPolicy.DENY
    """`deny` or `warn`, where a ResourceQuota counts a key that a translation takes away. `deny`:
    a quota that silently stops counting is worse than a refused pod."""

    tolerations: TolerationPolicy = TolerationPolicy.DETECTED
    """`detected`, `always` or `never`: the pods that get a toleration (Exists, NoSchedule) of the taint
    of each removed key, as the API server's plugin ExtendedResourceToleration adds it for the key.
    `detected`: those of manifests, if live pods show that the plugin is on. A pod that comes to the
    webhook has them already then, as the plugin runs first."""

    claim_aware_components: tuple[ClaimUnawareComponent, ...] = ()
    """The components of `clusterAutoscaler`, `karpenter` and `kueue` that see claims in this
    cluster; they are neither searched for nor warned about. Empty: none of them does, as installed
    by default."""

    exclusivity: Exclusivity = Exclusivity.POLICIES
    """The shares that become whole devices: `always`, `policies` (HAMi's `mutex`, Koordinator's
    `DeviceLevel`) or `never`. `policies`: their users say that they want a device of their own; all
    cores with a part of the memory could mean only that."""

    init_containers: InitContainers = InitContainers.LARGEST
    """The devices of an init container that needs more than every app container: `largest`, those
    of an app container with the larger amounts of both, or `separate`, its own. `largest`: the pod
    reserves as much as in the legacy system, so it fits where it fitted; but smaller shares of more
    devices are the init container's own with a driver that gives containers the limits of a whole claim
    (`claims: container` in its profile)."""

    def options(self, namespace: str = NAMESPACE) -> TranslationOptions:
        """Return the same, as the translation takes it.

        Args:
            namespace: The namespace in which the webhook is installed.
        """
        by_vocabulary, by_key = split_profiles(self.profiles)
        return TranslationOptions(
            mode=self.mode,
            exempt_namespaces=exempt_namespaces(namespace, self.exempt_namespaces),
            profiles={**DEFAULT_PROFILES, **by_vocabulary},
            fixed=frozenset(by_vocabulary),
            drivers=by_key,
            default_gpu_owner=self.default_gpu_owner,
            adopt_schedulers=self.adopt_schedulers,
            native=self.native,
            quota=self.quota,
            tolerations=self.tolerations,
            claim_aware_components=frozenset(self.claim_aware_components),
            vocabularies=frozenset(self.vocabularies) - frozenset(self.keep),
            kept=frozenset((*self.keep, *self._renamed_nics())),
            renamed_keys=self.renamed_keys,
            choices=Choices(
                exclusivity=self.exclusivity,
                init_containers=self.init_containers,
                hami=self.hami.defaults(),
                ascend_chips=self.ascend_chips,
                aliyun_memory_unit=self.aliyun.memory_unit,
                volcano_memory_factor=self.volcano.memory_factor,
            ),
        )

    def _renamed_nics(self) -> Iterator[str]:
        """Yield the names that stand for NICs of vocabularies that stay: they stay with these."""
        for name, meaning in self.renamed_keys.items():
            if arbiter.is_nic(meaning) and is_kept(meaning, self.keep):
                yield name

    def checked_options(
        self,
        profiles: Mapping[str, Profile],
        *,
        namespace: str = NAMESPACE,
        others_may_come: bool = False,
    ) -> TranslationOptions:
        """Return the options of translation, checked against the profiles that there are.

        Args:
            namespace: The namespace in which the webhook is installed.
            others_may_come: DeviceTranslationProfiles are not known yet, so a driver without a
                profile is no mistake. Until it has one, pods with its keys are rejected.

        Raises:
            ConfigError: A vocabulary or a driver is not known.
        """
        for fault in _renaming_faults(self.renamed_keys):
            raise ConfigError(fault)
        options = self.options(namespace)
        known_names = ", ".join(sorted(arbiter.VOCABULARIES))
        for vocabulary in sorted(options.vocabularies - arbiter.VOCABULARIES.keys()):
            raise ConfigError(
                f"translation.vocabularies: no vocabulary {vocabulary}; known are {known_names}"
            )
        for vocabulary in sorted(options.profiles.keys() - arbiter.VOCABULARIES.keys()):
            raise ConfigError(
                f"translation.profiles: no vocabulary {vocabulary}; known are {known_names}"
            )
        for fault in () if others_may_come else _driver_faults(options, profiles):
            raise ConfigError(fault)
        for fault in _keep_faults(options, profiles):
            raise ConfigError(f"translation.keep: {fault}")
        owners = {
            name
            for name, vocabulary in arbiter.VOCABULARIES.items()
            if vocabulary.handles(nvidia.GPU)
        }
        chosen_owners = owners & options.vocabularies
        if options.default_gpu_owner not in (chosen_owners or owners):
            raise ConfigError(
                f"translation.defaultGpuOwner: {options.default_gpu_owner} cannot own {nvidia.GPU}; "
                f"{', '.join(sorted(chosen_owners or owners))} can"
            )
        return options

    def load_profiles(self) -> dict[str, Profile]:
        """Return the driver profiles: the shipped ones, and those of the directory.

        Raises:
            ConfigError: A file of theirs is not a profile.
        """
        directory = self.profiles_directory
        return dict(load_profiles(Path(directory) if directory else None))


def _keep_faults(options: TranslationOptions, profiles: Mapping[str, Profile]) -> Iterator[str]:
    """Yield the reasons that names of `keep` cannot stay with their device plugin."""
    handlers = vocabularies_in_force(options, profiles)
    for name in sorted(options.kept - arbiter.VOCABULARIES.keys()):
        owners = [owner for owner, handler in handlers.items() if handler.handles(name)]
        if "/" not in name:
            known_names = ", ".join(sorted(arbiter.VOCABULARIES))
            yield f"no vocabulary {printable(name)}; known are {known_names}, and resource names"
        elif owners:
            meaning = options.renamed_keys.get(name)
            stands = f", which stands for {printable(meaning)}," if meaning else ""
            own = ", ".join(sorted(owners))
            noun, pronoun = (
                ("vocabulary", "that") if len(owners) == 1 else ("vocabularies", "these")
            )
            yield f"{printable(name)}{stands} is translated by the {noun} {own}; name {pronoun}, or none"


def _driver_faults(options: TranslationOptions, profiles: Mapping[str, Profile]) -> Iterator[str]:
    """Yield the reasons that chosen drivers, or the keys that they are chosen for, are not known."""
    handlers = vocabularies_in_force(options, profiles).values()
    for key in sorted(options.drivers):
        if not any(handler.handles(key) for handler in handlers):
            yield (
                f"translation.profiles: no vocabulary has {key}; list it under resources in a profile"
            )
    for name, driver in (*options.profiles.items(), *options.drivers.items()):
        if driver not in profiles:
            yield (
                f"translation.profiles.{name}: no profile {driver}; known are "
                f"{', '.join(sorted(profiles))}"
            )


def _renaming_faults(renamed_keys: Mapping[str, str]) -> Iterator[str]:
    by_meaning: dict[str, str] = {}
    for name, names_of_key in sorted(renamed_keys.items()):
        fault = renaming_fault(name, names_of_key)
        if fault is not None:
            yield f"translation.renamedKeys: {printable(name)} {fault}"
        first = by_meaning.setdefault(names_of_key, name)
        if first != name:
            yield (
                f"translation.renamedKeys: {printable(first)} and {printable(name)} both stand for "
                f"{printable(names_of_key)}; name one"
            )
