"""The explanations of codes: the file that `drawbridge explain` reads, and the page of the same content.

Causes are the texts below the codes; fixes of rules are those of the table of rules.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from allocator.compatibility import lint_findings
from cli.verbs.explain.explanation import COMPONENTS, Example, ExplainAnswer, Explanation, RuleNote
from cli.verbs.explain.explanation import FILE as FILE_NAME
from findings.finding import Code
from findings.transient_causes import TRANSIENT_CAUSES
from kube.manifests.dump import dump_yaml
from rules.context.rule import KINDS
from rules.engine.registry import RULES
from testing.rule_cases import ALL
from tools.code_examples import EXAMPLES, REASON_EXAMPLES
from tools.docstrings import texts_below
from tools.example_documents import CHECK, CodeExample

ROOT: Final = Path(__file__).parent.parent
FILE: Final = f"cli/verbs/explain/{FILE_NAME}"
PAGE: Final = "docs/reference/codes.md"
_CLUSTER: Final = "examples/cluster/cluster.yaml"
_GROUPS: Final = "examples/groups/cluster.yaml"
_NICS: Final = "examples/nics/cluster.yaml"
_QUOTA: Final = "examples/quota/cluster.yaml"
_POOLS: Final = "examples/ownership/cluster.yaml"
_DENIED: Final = "examples/denied/cluster.yaml"
NOTHING: Final = "None needed; the finding is for your information."
"""The fix of a code that comes without one."""

FIXES: Final[Mapping[str, str]] = {
    "invalidQuantity": "Write a number, or a quantity such as 10Gi for memory.",
    "groupTooSmall": "Create as many pods as the group needs, or lower its minimum.",
    "exceedsNodeResources": "Request no more than the node has that the finding names.",
    "notAnInteger": "Write a whole number.",
    "outOfRange": "Write an amount within the range that the message names.",
    "wrongUnit": "Write the amount in the unit of the key; if the key counts another unit in this "
    "cluster, set the unit in the settings that the finding names.",
    "limitRequired": "Set the same amount in limits.",
    "limitDiffers": "Use one amount for requests and limits.",
    "unknownMigProfile": "Write a name such as nvidia.com/mig-1g.10gb.",
    "unknownMode": "Write one of the modes that the finding names.",
    "invalidCombination": "Keep one of the keys that the message names, or add the key or the annotation that "
    "the finding says is missing.",
    "malformedAnnotation": "Write the annotation as its schema says, with names that exist, or remove it.",
    "emptyDeviceList": "Name a device, or remove the annotation.",
    "tooLong": "Name fewer devices, or shorten the annotations about them.",
    "tooLarge": "Make the pod smaller in what the message counts.",
    "invalidObject": "Write the field in the type that the message names, or add it if it is missing.",
    "cannotExpress": "Request the devices in another way, as the finding says, or use a driver that "
    "can express the key.",
    "unsupportedAsPublished": "Use a driver that publishes what the message names, or remove the key or the scope that "
    "needs it.",
    "memoryAmountRequired": "Request an amount of memory by a key that the finding names; a percentage only if the "
    "finding names one.",
    "memorySizesUnknown": "Have the driver that the message names publish devices, or provide the inventory (--snapshot); "
    "a claim for an amount of memory is created without them, and waits for them.",
    "ambiguousOwner": "Request devices by the keys of one system; or give the keys that the message names one driver "
    "in translation.profiles, if it says that they have several.",
    "privilegedShare": "Remove privileged, or request whole devices.",
    "quotaNotCounted": "Let a ResourceQuota count the DeviceClass; drawbridge quota prints one.",
    "duplicateResource": "Stop the device plugin on this node.",
    "invalidGroup": "Write the name of a PodGroup, a whole number of pods from 1 on, and one scheduling policy.",
    "groupMinimumDiffers": "Write one number on all pods of the group, and into its PodGroup.",
    "groupNotFound": "Create the PodGroup that the message names, with the number of pods that it needs.",
    "groupTooLarge": "Divide the group.",
    "compositeGroup": "Leave parentCompositePodGroupName out of the PodGroup, or let kube-scheduler place its pods.",
    "groupSchedulerUnknown": "Create the PodGroup first, with the annotation that the message names, or write "
    "schedulerName into all pods of the group.",
    "groupSchedulerDiffers": "Let all pods of the group go to one scheduler, as the message says.",
    "groupPriorityDiffers": "Give all pods of the group, and the PodGroup, one priorityClassName.",
    "groupClaimDiffers": "Write the same name and the same claim or template into the pod and its PodGroup.",
    "gangNotAdopted": "Set validation.adoptGangs to true, or name a PodGroup in spec.schedulingGroup; without PodGroups "
    "in the API server, turn on the feature gate GenericWorkload and scheduling.k8s.io/v1beta1.",
    "claimsNotSeen": "Let the quota, LimitRange or policy count or read claims, too; for a gang, start its pods by a "
    "queue that admits them together. Or keep their scheduler: an administrator lists it in the setting "
    "translation.adoptSchedulers with its own name, if it allocates claims.",
    "templateNotCounted": "Count the devices of the driver's classes in the ResourceQuota, too.",
    "limitRangeConflict": "Remove the key from the LimitRange, and limit claims by a ResourceQuota on "
    "their DeviceClass.",
    "templateConflict": "Delete the ResourceClaimTemplate that the message names.",
    "schedulerReplaced": "An administrator lists the scheduler in the setting translation.adoptSchedulers, with its own name "
    "if it supports claims.",
    "foreignScheduler": "List the scheduler in adoptSchedulers, or label the namespace for translation. Remove "
    "schedulerName only from a pod with device keys or claims: annotations such as KAI's request devices only beside it.",
    "claimUnawareComponent": "The finding names one where there is one for the component and its version.",
    "noScaleFromZero": "Keep one node of each kind running.",
    "noProvisionedCapacity": "Label the pod template drawbridge.internal/translate=false, so that it keeps its device keys. "
    "The pods that consume the request are translated all the same.",
    "mixedDriverOwnership": "Own both drivers (drawbridge bridge own), name one driver in the selectors of the class, or "
    "leave the pod out of its group.",
    "driverOwnershipUnknown": "Create the claim, the template or the class before the pod, name the driver in the class, "
    "or set schedulerName.",
    "driverOwnedByBridge": "Leave schedulerName out, or set it to the scheduler of the bridge.",
    "driverNotOwned": "Leave schedulerName out, or own the driver (drawbridge bridge own); if its fence is open, "
    "drawbridge bridge status says why.",
    "nodeNameSet": "Remove nodeName, or select the node with a nodeSelector.",
    "translationRecordMalformed": "Remove the annotation, or create the pod from its legacy manifest.",
    "translationRecordForged": "Remove the annotation; the webhook writes it.",
    "translationRecordChanged": "Restore the annotation; to change the devices, create the pod again.",
    "translationNotSigned": "Remove the annotation; apply the templates that drawbridge translate prints.",
    "profileChanged": "Create the pod again from its legacy manifest.",
    "invalidProfile": "Correct the field that the message names.",
    "profileTooLarge": "List resource names that begin alike as one that ends in *; replace many attributes by a "
    "DeviceClass of your own, and deep parameters by those that the driver documents.",
    "profileKeyNotServed": "Remove the name from the profile, or from that of the other driver.",
    "shippedProfileReplaced": "None needed if this is intended; else delete the profile.",
    "clamped": "Write the amount that the finding names.",
    "amountRoundedUp": "Request an amount that is a multiple of the driver's step.",
    "allocationIgnored": "Remove the annotation.",
    "gpusInParts": "Take the sharing out of the device plugin's configuration before the migration, let the pods request "
    "a share with its memory, or plan with --time-slicing whole. MIG devices need the plugin's strategy mixed, and pods that "
    "request them by their size.",
    "hostNetworkNic": "Remove hostNetwork, or remove the key.",
    "keptBesideClaims": "None needed unless the pod depends on the alignment; else take the key out of "
    "translation.keep.",
    "networkByClaim": "Run Multus on other nodes, or take its driver out of translation.profiles.",
    "controllerReadsKeys": "None in general; the message says what the controller reads, and what it lacks.",
    "classConfigMissing": "Add the configuration to the DeviceClass that the finding names.",
    "noPartitionOfSize": "Request one of the numbers of GPUs that the finding names.",
    "policyDropped": "Write the placement in the pod, as the finding says or as affinity, or remove the policy.",
    "notPublishedByDriver": "Use a driver that publishes it, provide the inventory, or remove the request.",
    "wholeDevice": "None needed if a whole device is wanted; else set the amount or the setting that the finding "
    "names, or use a driver that shares its devices.",
    "oneOfPool": "None needed if the pod may have the NIC alone; else keep the device plugin for it.",
    "multusBesidePool": "Keep the device plugin on its nodes, or remove the annotation of the networks.",
    "limitsEnforced": "Request what the container uses at most.",
    "tolerationMissing": "Add a toleration of the taint to the pod.",
    "uncappedCores": "Request cores, if some must be left.",
    "equalMemorySizes": NOTHING,
    "equalComputeUnits": NOTHING,
    "memorySizesMerged": NOTHING,
    "nominalMemory": "Request the memory that the device has, or more, as the finding says.",
    "notExclusive": "For a GPU of its own, set translation.exclusivity to policies, or to always if the pod requests "
    "all cores and a part of the memory; nothing helps with a driver that allows any number of consumers.",
    "bandwidthNotReserved": "The finding names one where there is one; its message says why nothing reserves it.",
    "duplicateClaim": "Remove the claim or the keys, if one of them should replace the other.",
    "sharedWithinPodOnly": NOTHING,
    "mixedHardware": "Select nodes of one kind, if groups have to fit.",
    "smallestDeviceNotPreferred": "Provide the inventory, so that the sizes are known.",
    "initRaisesLimit": "To keep the limits apart, set translation.initContainers to separate.",
    "initSharesDevice": "To keep the devices apart, set translation.initContainers to separate.",
    "heldForPodLifetime": "Let an app container request as much, with its memory in the same form, an amount or a "
    "percentage; or set translation.initContainers to largest, if it is separate.",
    "sidecarAdded": "Request less, so that the sum fits.",
    "grantedWhereRejected": "Write the keys that the finding names.",
    "noDeviceRequested": "Write the keys into the container with the key of its devices, as the finding says, or add a "
    "device count above zero; remove them only if the container is to have no devices.",
    "devicesExposedByEnv": "Remove the variable; the driver injects the claimed devices.",
    "notInjected": "None in general; the message says what the container lacks. A driver may provide it.",
    "envVarNotProvided": "Read the devices from what the driver provides.",
    "existingValueKept": "Remove the variable from the pod, if the translation should set it.",
    "gpuSharingNodeLabel": "Select the product without the suffix of shared GPUs.",
    "passedThrough": NOTHING,
    "notOptedIn": "Label the namespace drawbridge.internal/translate=true to have its pods translated, or the pod if "
    "the namespace has the value selected.",
    "shadowMode": "None needed; another mode acts on it.",
    "optedOut": "Remove the label, or the namespace from translation.exemptNamespaces, to have the pod translated; "
    "a mirror pod belongs to its kubelet and never is, nor are pods of kube-system and of Drawbridge's own namespace.",
    "alreadyConverted": NOTHING,
    "gpuDiscoveryNodeLabel": "Keep GPU feature discovery running, or remove the labels from the selector.",
    "untranslatedDeviceKey": "Keep the device plugin running, install the driver that the finding names, or write the key "
    "that it suggests.",
    "podTemplateNotRead": "None needed as long as the pods are created again, and so translated; in a migration, stop "
    "the workload, plan again from a new snapshot, and start it after the last wave.",
    "mappingTooWide": "Map the name by a DeviceClass of its own that selects only these devices; take a name of replicas "
    "of MIG devices, which no driver publishes, from the class.",
    "ruleInvalid": "Correct the expression as the message says.",
    "ruleNotEvaluated": "Write the expression with the parts of CEL that the API documents for devices.",
    "ruleEvaluationError": "Test that an attribute exists before the rule reads it.",
    "ruleNotBoolean": "Write an expression that is true or false.",
    "ruleGroupMismatch": "Make the rules and the groups of the devices say the same.",
    "mixedDeclaration": "Declare groups on all devices of the counter set.",
    "nonHellyGroups": "Give all three devices a group in common, or fewer groups in pairs.",
    "allocatedSetInconsistent": "Delete the pods of one of the devices when they can be spared.",
    "oneSidedRule": "Give the other device a rule, too.",
    "exclusiveByRule": "None needed if the device has to be alone; else let the rule accept others.",
    "lonelyGroup": "Give the group to another device, or remove it.",
    "fullDevice": NOTHING,
    "selfRejectingShare": "None needed; let the rule accept its own kind to say so.",
    "neverCoFit": NOTHING,
}
"""Fixes of codes that no rule reports."""

REASONS: Final[Mapping[str, tuple[str, str]]] = {
    "allocated": ("The device is in use.", "Wait until its claim ends, or request other devices."),
    "selector": (
        "No selector of the request and its class accepts the device.",
        "Select what the devices have; drawbridge inventory prints it.",
    ),
    "nodeSelection": ("The device is for other nodes.", "Place the pod on a node that can use it."),
    "bindingConditionsDisabled": (
        "The device has binding conditions, and their feature gates are off.",
        "Turn on the feature gates that the message names.",
    ),
    "partitionableDevicesDisabled": (
        "The device consumes shared counters, and their feature gate is off.",
        "Turn on the feature gate that the message names.",
    ),
    "nodeFeature": (
        "The device needs a feature that the node does not declare.",
        "Update the node, or request other devices.",
    ),
    "taint": (
        "The device has a taint that the request does not tolerate.",
        "Repair the device, or tolerate the taint in the request.",
    ),
    "capacityNotFound": (
        "The device lacks a capacity that the request names.",
        "Write the name of a capacity that the driver publishes.",
    ),
    "aboveMaximum": (
        "The amount is more than the device grants to one request.",
        "Request the amount that the message names, or less.",
    ),
    "notMultipleOfStep": (
        "The amount, rounded up to the step of the device, is more than it grants to one request.",
        "Request less.",
    ),
    "notInValidValues": (
        "The amount is more than the largest of the amounts that the device grants.",
        "Request one of these amounts.",
    ),
    "capacity": (
        "The device has less of a capacity left than is requested.",
        "Request less, or wait until a claim ends.",
    ),
    "counters": (
        "The counters that the device shares with others have too little left.",
        "Request a smaller partition, or wait until a claim ends.",
    ),
    "compatibilityGroups": (
        "The device has no compatibility group in common with a device in use beside it.",
        "Wait until that device is free, or request one of its groups.",
    ),
    "compatibilityPolicy": (
        "A DeviceCompatibilityPolicy keeps the device apart from one in use.",
        "Wait until that device is free, or request one that the policy allows.",
    ),
    "consumerLimit": (
        "The device, or the node, has as many consumers as its driver's settings allow there.",
        "Wait until a claim there ends, or raise the limit of the driver, or of its pool of nodes, in the AllocatorOwnership.",
    ),
    "quota": (
        "The device is more than what is left of a quota.",
        "Request less, or raise the quota.",
    ),
    "constraint": (
        "The device differs from others of the claim in an attribute that a constraint compares.",
        "Request fewer devices, or remove the constraint.",
    ),
    "poolIncomplete": (
        "Slices of the pool are missing, so that none of its devices is allocated.",
        "Wait for the driver, or restart it.",
    ),
    "poolInvalid": (
        "The pool has devices of equal names or another fault, so that none of them is allocated.",
        "Correct what the driver publishes.",
    ),
    "tooFewDevices": (
        "The node has fewer suitable devices than are requested.",
        "Request fewer devices.",
    ),
    "nodeNotEligible": (
        "The pod cannot run on the node, whatever its devices: labels, taints or affinity.",
        "Change the pod's nodeSelector, affinity or tolerations, or the node.",
    ),
    "insufficientResource": (
        "The node has too little CPU, memory or another counted resource left, or has none of it at all.",
        "Request less, or wait until pods of the node end; where it has none at all, select another node or install what provides it.",
    ),
    "groupDoesNotFit": (
        "Fewer pods of the group fit than it needs, so that none is placed.",
        "Lower the minimum of the group and the number of its pods, let its pods request less, or add nodes.",
    ),
    "groupIncomplete": (
        "Fewer pods of the group exist than it needs, so that they wait.",
        "Create the other pods, or lower the minimum of the group.",
    ),
    "budgetExhausted": (
        "The search ended at its limit of steps before it found devices or ruled them out.",
        "Request fewer devices at once, or constrain them less.",
    ),
    "attemptFailed": (
        "A claim cannot be evaluated: a selector fails on a device, or its class does not exist.",
        "Correct what the message names.",
    ),
    "claimNotFound": (
        "The ResourceClaim that the pod names does not exist.",
        "Create the claim, or correct its name in the pod.",
    ),
    "templateNotFound": (
        "The ResourceClaimTemplate that the pod names does not exist.",
        "Create the template, or correct its name in the pod.",
    ),
}
"""Cause and fix of the reasons of simulate and why that are no codes of findings."""

_FILES: Final[Mapping[str, tuple[str, str]]] = {
    "compositeGroup": ("groups/composite.yaml", _GROUPS),
    "groupClaimDiffers": ("groups/own-claim.yaml", _GROUPS),
    "groupMinimumDiffers": ("groups/disagreeing.yaml", _GROUPS),
    "groupNotFound": ("groups/missing.yaml", _GROUPS),
    "groupPriorityDiffers": ("groups/two-priorities.yaml", _GROUPS),
    "groupSchedulerDiffers": ("groups/two-schedulers.yaml", _GROUPS),
    "invalidGroup": ("groups/malformed.yaml", _GROUPS),
    "uncappedCores": ("by-uuid.yaml", _CLUSTER),
    "equalMemorySizes": ("half-of-each.yaml", _CLUSTER),
    "initSharesDevice": ("init-and-sidecar.yaml", _CLUSTER),
    "sidecarAdded": ("init-and-sidecar.yaml", _CLUSTER),
    "policyDropped": ("mig-mode.yaml", _CLUSTER),
    "sharedWithinPodOnly": ("mps.yaml", _CLUSTER),
    "requiresFeatureGate": ("mps.yaml", _CLUSTER),
    "notPublishedByDriver": ("numa-bind.yaml", _CLUSTER),
    "optedOut": ("opted-out.yaml", _CLUSTER),
    "passedThrough": ("whole-gpu.yaml", _CLUSTER),
    "untranslatedDeviceKey": ("accelerators/amd.yaml", _CLUSTER),
    "deviceClassMissing": ("check/single-device-constraint.yaml", _CLUSTER),
    "capacityNotPublished": ("denied/misspelt.yaml", _CLUSTER),
    "unsatisfiableConstraint": ("denied/one-root.yaml", _DENIED),
    "exceedsLargestNode": ("denied/too-many.yaml", _CLUSTER),
    "exceedsLargestDevice": ("denied/too-large.yaml", _CLUSTER),
    "noUsableDevice": ("denied/unusable.yaml", _CLUSTER),
    "unsupportedAsPublished": ("gpu-shared/pod.yaml", _CLUSTER),
    "notInjected": ("koordinator/share.yaml", _CLUSTER),
    "exceedsPerRequestQuota": ("quota/pods.yaml", _QUOTA),
    "exceedsDeviceQuota": ("quota/pods.yaml", _QUOTA),
    "deviceQuotaFull": ("quota/pods.yaml", _QUOTA),
    "limitCountsNothing": ("quota/mistakes.yaml", _QUOTA),
    "limitBelowLeast": ("quota/mistakes.yaml", _QUOTA),
    "selectsNoNamespace": ("quota/mistakes.yaml", _QUOTA),
    "invalidAllocatorOwnership": ("ownership/mistakes.yaml", _POOLS),
    "shadowedPool": ("ownership/mistakes.yaml", _POOLS),
    "selectsNoNode": ("ownership/mistakes.yaml", _POOLS),
    "ownedDevicesExposed": ("ownership/exposed.yaml", _POOLS),
    "wrongUnit": ("mistakes/bytes-for-mebibytes.yaml", _CLUSTER),
    "notAnInteger": ("mistakes/half-a-gpu.yaml", _CLUSTER),
    "outOfRange": ("mistakes/more-than-all.yaml", _CLUSTER),
    "selectorMatchesNothing": ("check/unpublished-mig-profile.yaml", _CLUSTER),
    "unknownMigProfile": ("mistakes/no-such-profile.yaml", _CLUSTER),
    "limitRequired": ("mistakes/requests-only.yaml", _CLUSTER),
    "bandwidthNotReserved": ("multus/pod.yaml", _CLUSTER),
    "clamped": ("nics/rdma-pool.yaml", _CLUSTER),
    "oneOfPool": ("nics/rdma-pool.yaml", _CLUSTER),
    "envVarNotProvided": ("shares/aliyun.yaml", _CLUSTER),
    "networkByClaim": ("nics/sriov.yaml", _CLUSTER),
    "foreignScheduler": ("shares/kai.yaml", _CLUSTER),
    "unservedVersion": ("upgrade/claim.yaml", _CLUSTER),
    "translationRecordMalformed": ("upgrade/deployment.yaml", _CLUSTER),
    "poolIncomplete": ("denied/unusable.yaml", _DENIED),
    "jointlyInfeasible": ("denied/together.yaml", _DENIED),
    "outsideRequestPolicy": ("denied/outside-policy.yaml", _DENIED),
    "claimsNotSeen": ("quota/hami.yaml", ""),
    "memorySizesUnknown": ("half-of-each.yaml", ""),
    "tolerationMissing": ("accelerators/amd.yaml", ""),
    "smallestDeviceNotPreferred": ("mig-mode.yaml", ""),
}
"""Code to the manifest among the examples that yields it, and the cluster state that it needs."""

_HEADER: Final = """\
# Codes

Each code of a finding with its cause, its fix and a manifest that yields it, then the reasons for which
`simulate` and `why` find no devices. `drawbridge explain CODE` prints the same. The [table of findings](../findings.md) has all of them on one page.
"""


def explanations() -> ExplainAnswer:
    """Return the explanation of every code, in the order of the source.

    Raises:
        LookupError: A code has no text or no fix.
    """
    causes = {
        code.value: texts_below(kind)[code.name]
        for kind in (lint_findings.Code, Code)
        for code in kind
    }
    order = dict.fromkeys(code.value for code in (*Code, *lint_findings.Code))
    findings = tuple(_explanation(code, causes[code]) for code in order)
    return ExplainAnswer(explanations=(*findings, *_reasons()))


def _reasons() -> Iterator[Explanation]:
    for code, (cause, fix) in REASONS.items():
        yield Explanation(code=code, cause=cause, fixes=(fix,), example=_example_of_reason(code))


def _example_of_reason(code: str) -> Example | None:
    """Return the manifests of a reason of simulations; None without any."""
    if code in _FILES:
        return _example(code)
    if code not in REASON_EXAMPLES:
        return None
    name, documents = REASON_EXAMPLES[code]
    return Example(name=name, manifest=dump_yaml(documents), snapshot=_CLUSTER)


def _explanation(code: str, cause: str) -> Explanation:
    rules = [rule for rule in RULES if rule.code == code]
    fixes = tuple(dict.fromkeys(rule.fix for rule in rules)) or tuple(
        fix for name, fix in FIXES.items() if name == code
    )
    if not fixes:
        raise ValueError(
            f"no rule and no line of FIXES in {__name__} has a fix for {code}: add one"
        )
    return Explanation(
        code=code,
        cause=cause,
        fixes=fixes,
        rules=tuple(
            RuleNote(
                kinds=KINDS[rule.scope],
                category=rule.category.value,
                api_server="yes" if rule.cel is not None else f"no: {rule.no_cel_reason}",
            )
            for rule in rules
        ),
        how_it_passes={key.value: how for key, how in TRANSIENT_CAUSES.items()}.get(code, ""),
        example=_example(code),
    )


def _example(code: str) -> Example | None:
    """Return the code's manifest: a file of the examples, a pod, or the shortest case of only this code."""
    if code in _FILES:
        file, snapshot = _FILES[code]
        text = (ROOT / "examples" / file).read_text()
        return Example(name=f"examples/{file}", manifest=text, snapshot=snapshot)
    if code in EXAMPLES:
        return _example_of(EXAMPLES[code])
    cases = [
        Example(name=case.name, manifest=dump_yaml([case.document]))
        for case in ALL
        if [line.split()[1] for line in case.expected_lines] == [code]
    ]
    return min(cases, key=lambda example: len(example.manifest), default=None)


def _example_of(case: CodeExample) -> Example:
    """Return an example with its command, if that is more than `check -f` with a cluster state."""
    given = (f"--snapshot {case.snapshot}",) if case.snapshot else ()
    settings = dump_yaml([case.settings]) if case.settings is not None else ""
    words = (case.command, *given, *(("--settings settings.yaml",) if settings else ()))
    is_default = case.component or (case.command == CHECK and not settings)
    lines = manifest_of(case).splitlines()
    shown = lines[: case.lines] if case.lines else lines
    return Example(
        name=case.name,
        manifest="\n".join(shown) + "\n",
        snapshot=case.snapshot,
        command="" if is_default else " ".join(words),
        settings=settings,
        left_out=len(lines) - len(shown),
        component=case.component,
        answer=case.answer,
    )


def manifest_of(case: CodeExample) -> str:
    """Return the whole manifest of an example, the object with the finding last."""
    return dump_yaml((*case.beside, case.document))


def file() -> str:
    """Return the text of the file that the command reads."""
    text = msgspec.json.format(msgspec.json.encode(explanations()), indent=1)
    return text.decode() + "\n"


def page() -> str:
    """Return the text of the page."""
    return _HEADER + "".join(map(_section, explanations().explanations))


def _section(explanation: Explanation) -> str:
    fixes = "".join(f"- Fix: {fix}\n" for fix in explanation.fixes)
    passing = f"- It may pass: {explanation.how_it_passes}\n" if explanation.how_it_passes else ""
    example = explanation.example
    if example is None:
        shown = "- Example: none yet\n"
    else:
        state = f", with the cluster `{example.snapshot}`" if example.snapshot else ""
        command = f"- Command: `drawbridge {example.command}`\n" if example.command else ""
        if example.component:
            command = f"- {COMPONENTS[example.component]}\n- Answer: `{example.answer}`\n"
        parts = (
            example.settings and f"# settings.yaml\n{example.settings}",
            example.shown_manifest(),
        )
        text = "".join(f"\n```text\n{part.rstrip()}\n```\n" for part in parts if part)
        shown = f"- Example: {example.name}{state}\n{command}{text}"
    return f"\n## {explanation.code}\n\n- Cause: {explanation.cause}\n{fixes}{passing}{shown}"
