"""What a DeviceClass cannot mean, and what it shares with other classes.

Source: KEP-5004 for names of extended resources; of two classes with one name the newest wins.
"""

import re
from collections.abc import Iterator
from typing import Final

from kube.api.resource import DeviceClass
from webhook.findings import Code, Finding, error, shown, warning
from webhook.rules.asked import at
from webhook.rules.context import Context
from webhook.rules.rule import BUILT_IN, OTHER_OBJECTS, Class, ClassRule, Part, Subject

_NAME: Final = re.compile(
    r"(?=.{1,253}/)[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


def extended_resource(
    device_class: Subject[DeviceClass], path: str, _context: Context
) -> Iterator[Finding]:
    """Yield a name that no container could ask for."""
    name = device_class.view.spec.extended_resource_name
    if name is None:
        return
    native = name.partition("/")[0].endswith("kubernetes.io") or name.startswith("requests.")
    if native or not _NAME.fullmatch(name):
        yield error(
            Code.INVALID_EXTENDED_RESOURCE,
            at(path, "spec.extendedResourceName"),
            f"{shown(name)} is no name of an extended resource",
            "write a domain that is not kubernetes.io, a slash and a name",
        )


def same_extended_resource(
    device_class: Subject[DeviceClass], path: str, context: Context
) -> Iterator[Finding]:
    """Yield a name that another class has, too: the newest of them gets all pods."""
    name = device_class.view.spec.extended_resource_name
    others = sorted(
        one.metadata.name
        for one in context.classes.values()
        if one.spec.extended_resource_name == name
        and one.metadata.name != device_class.view.metadata.name
    )
    if name and others:
        yield warning(
            Code.SAME_EXTENDED_RESOURCE,
            at(path, "spec.extendedResourceName"),
            f"class {', '.join(others)} has {shown(name)}, too, and the newest class gets its pods",
            "leave the name to one class",
        )


RULES: Final[tuple[ClassRule, ...]] = (
    ClassRule(
        code=Code.INVALID_EXTENDED_RESOURCE,
        part=Part.CLASS,
        rank=Class.WRONG,
        judge=extended_resource,
        cure="Write a domain that is not `kubernetes.io`, a slash and a name.",
        why_not_cel=BUILT_IN,
    ),
    ClassRule(
        code=Code.SAME_EXTENDED_RESOURCE,
        part=Part.CLASS,
        rank=Class.ADVICE,
        judge=same_extended_resource,
        cure="Leave the name to one class.",
        why_not_cel=OTHER_OBJECTS,
    ),
)
