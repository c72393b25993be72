"""Claims in a manifest for a driver that also serves its device keys."""

from collections.abc import Iterable, Iterator

from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from kube.api.core import Pod
from translation.cluster.snapshot import TranslationSnapshot


def check_duplicate_claims(
    pod: Pod, drivers: Iterable[str], namespace: str, snapshot: TranslationSnapshot
) -> Iterator[Finding]:
    """Yield a warning for each claim in the manifest for a driver that also serves its device keys.

    Only claims from templates are checked, by the DeviceClasses in the driver's profile.

    Args:
        drivers: The drivers of the claims that replace the keys.
    """
    entries = pod.spec.resource_claims
    if not entries:
        return
    driver_of_class = {
        name: driver
        for driver in drivers
        if driver in snapshot.profiles
        for name in snapshot.profiles[driver].class_names()
    }
    for index, entry in enumerate(entries):
        template = snapshot.templates.get((namespace, entry.resource_claim_template_name or ""))
        both = sorted(driver_of_class.keys() & template.classes) if template is not None else []
        if both:
            yield warning(
                Code.DUPLICATE_CLAIM,
                FieldPath.of("spec", "resourceClaims", index),
                f"requests DeviceClass {both[0]} of {driver_of_class[both[0]]}, and so do the pod's "
                "device keys: it gets the devices of both",
                "remove the claim or the keys, if one of them should replace the other",
            )
