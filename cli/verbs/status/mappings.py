"""DeviceClasses that give other devices than the resource names mean that they map. Pure."""

from collections.abc import Iterator

from cli.reading.installation import Installation
from cli.verbs.status.model import State, StatusCheck
from translation.cluster.native_allocation import wide_mapping_fix
from translation.cluster.snapshot import NativePolicy
from translation.reading.kept_keys import is_kept


def check_mappings(installation: Installation) -> Iterator[StatusCheck]:
    """Yield a check for each class that maps more than a resource name means; nothing without any.

    Pods with the name are translated, so nothing waits; where the settings leave them to the class, they
    get any of its devices.
    """
    translation = installation.settings.translation
    served = translation.native is NativePolicy.MAPPED
    for mapping in installation.wide_mappings:
        if is_kept(mapping.resource, translation.keep):
            consequence = "its pods get any of them where their device plugin has none free"
        else:
            consequence = (
                "its pods get any of them" if served else "its pods are translated, where pods are"
            )
        yield StatusCheck(
            name="mapping",
            state=State.FAILED if served else State.OK,
            message=f"DeviceClass {mapping.device_class} maps {mapping.resource}, and {mapping.reason}: "
            f"{consequence} (mappingTooWide)",
            fix=wide_mapping_fix(mapping.resource, translation.renamed_keys, translation.keep),
        )
