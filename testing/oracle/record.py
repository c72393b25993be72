"""Ask Go about every CEL case and keep its answers: `python -m testing.oracle.record`.

The unit run compares with the kept answers, so it needs no Go.
"""

import json
from pathlib import Path
from typing import Any, Final

from testing.oracle.cases import DEVICES, cases
from testing.oracle.go import Oracle

CEL: Final = Path(__file__).parent / "data" / "cel.json"

ENVIRONMENTS: Final = ("new", "stored")


def main() -> None:
    """Write data/cel.json anew; the same packages give the same bytes."""
    CEL.parent.mkdir(exist_ok=True)
    CEL.write_text(json.dumps(recorded_document(), indent=1) + "\n")


def recorded_document() -> dict[str, Any]:
    """Return the provenance, the devices, and a row per case with Go's two verdicts."""
    all_cases = list(cases())
    with Oracle() as oracle:
        (versions,) = oracle.ask([{"versions": True}])
        answers = oracle.ask(
            {
                "cel": {
                    "expression": case.expression,
                    "environment": environment,
                    "device": DEVICES[case.device],
                }
            }
            for case in all_cases
            for environment in ENVIRONMENTS
        )
    verdicts = zip(answers[::2], answers[1::2], strict=True)
    return {
        "provenance": {
            "package": "k8s.io/dynamic-resource-allocation/cel",
            "features": {"EnableConsumableCapacity": True, "EnableListTypeAttributes": False},
            "modules": versions,
        },
        "devices": DEVICES,
        "rows": [
            {**case._asdict(), "new": new, "stored": stored_verdict}
            for case, (new, stored_verdict) in zip(all_cases, verdicts, strict=True)
        ],
    }


if __name__ == "__main__":
    main()
