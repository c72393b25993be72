"""A pod that gets its keys back is admitted only as a pod that was created with them."""

import copy
import json
from pathlib import Path
from typing import Any

from admission.pods import Answer, Decision, admit_created
from answers.model.translation_snapshot import build_snapshot
from kube.api.core import Pod
from kube.api.meta import convert
from kube.jsonpatch import apply
from kube.manifests.reader import read_paths
from kube.names import REQUEST_ANNOTATION
from process.profiles.profile_files import load_profiles
from translation.cluster.snapshot import TranslationOptions

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SNAPSHOT, _ = build_snapshot(
    load_profiles(None), (), read_paths([str(EXAMPLES / "cluster" / "cluster.yaml")])
)
SHARE = {"nvidia.com/gpucores": "0", "nvidia.com/gpumem": "3k"}
RDMA = "koordinator.sh/rdma"


def admit(document: dict[str, Any]) -> Answer:
    return admit_created(
        document,
        convert(document, Pod),
        namespace="team",
        snapshot=SNAPSHOT,
        options=TranslationOptions(),
    )


def translated_pod() -> dict[str, Any]:
    """Return a pod with two shares, as the webhook has translated it."""
    sidecar = {"name": "main", "restartPolicy": "Always", "resources": {"limits": SHARE}}
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "train-"},
        "spec": {
            "initContainers": [sidecar],
            "containers": [{"name": "y", "resources": {"limits": SHARE}}],
        },
    }
    answer = admit(document)
    assert answer.decision is Decision.TRANSLATED
    translated: dict[str, Any] = apply(copy.deepcopy(document), answer.operations)
    return translated


def test_a_forged_record_restores_no_key_that_would_be_rejected() -> None:
    document = translated_pod()
    record = json.loads(document["metadata"]["annotations"][REQUEST_ANNOTATION])
    record["containers"][1]["limits"][RDMA] = "0.0000000001"
    document["metadata"]["annotations"][REQUEST_ANNOTATION] = json.dumps(record)
    # The key of another vendor has no driver here, so the pod is left to device plugins.
    document["spec"]["initContainers"][0]["resources"]["limits"] = {
        **SHARE,
        "hygon.com/hcumem": "1",
    }
    document["spec"]["hostNetwork"] = True

    answer = admit(document)

    assert answer.decision is Decision.REFUSED
    assert RDMA in "".join(str(finding.path) for finding in answer.findings)
