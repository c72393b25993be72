"""The provenance of a release: its files, their source, their builder and its inputs.

An in-toto statement with a SLSA provenance, unsigned: whoever runs the release job signs it.

Source: in-toto attestation framework, spec v1; SLSA, provenance v1.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PREDICATE: Final = "https://slsa.dev/provenance/v1"
BUILD_TYPE: Final = "urn:drawbridge:make-release:v1"


def provenance(
    files: Sequence[Path],
    *,
    source: str,
    commit: str,
    builder: str,
    parameters: Mapping[str, str],
    materials: Sequence[Path],
    started: str,
) -> str:
    """Return the statement as JSON.

    Args:
        files: The files of the release.
        source: The address of the repository.
        commit: The commit of the repository.
        builder: The runner of the job, as a URI.
        parameters: The parameters of the job.
        materials: Files that decide what is built in, such as locked requirements.
        started: The time of the start, in RFC 3339.
    """
    predicate: dict[str, Any] = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": dict(parameters),
            "internalParameters": {},
            "resolvedDependencies": [
                {"uri": source, "digest": {"gitCommit": commit}},
                *(
                    {"name": path.name, "digest": {"sha256": digest(path)}}
                    for path in sorted(materials)
                ),
            ],
        },
        "runDetails": {
            "builder": {"id": builder},
            "metadata": {"invocationId": f"{commit}/{started}", "startedOn": started},
        },
    }
    statement = {
        "_type": STATEMENT,
        "subject": [
            {"name": path.name, "digest": {"sha256": digest(path)}} for path in sorted(files)
        ],
        "predicateType": PREDICATE,
        "predicate": predicate,
    }
    return json.dumps(statement, indent=1) + "\n"


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
