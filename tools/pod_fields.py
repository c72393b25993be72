"""Record the fields of pods and pod templates, as the API server of one version describes them.

    python -m tools.pod_fields "$(go env GOMODCACHE)/k8s.io/kubernetes@v1.37.1/api/openapi-spec/v3/api__v1_openapi.json"

It writes rules/model/recorded_pods.py. An e2e test compares the record with a running API server.
"""

import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

ROOTS: Final = ("io.k8s.api.core.v1.Pod", "io.k8s.api.core.v1.PodTemplateSpec")
LEAVES: Final = frozenset({"PodStatus", "ManagedFieldsEntry"})
"""Types that nobody writes in a manifest; their fields are not recorded."""
TARGET: Final = Path(__file__).parent.parent / "rules" / "model" / "recorded_pods.py"
HEADER: Final = '''"""The fields of pods and pod templates in Kubernetes {version}, type by type.

Recorded by `python -m tools.pod_fields` from the API server's OpenAPI document: the name of a type to its
fields, with the type of a field, or of its elements or values, where that has fields as well.
"""

from collections.abc import Mapping
from typing import Final

VERSION: Final = (1, 37)
"""Minor version of Kubernetes that was recorded."""

POD: Final = "Pod"
POD_TEMPLATE: Final = "PodTemplateSpec"

FIELDS: Final[Mapping[str, str]] = {{
'''


def record_fields(schemas: Mapping[str, Any]) -> dict[str, str]:
    """Return each type that pods have to its fields: `containers=Container hostname ...`, sorted.

    Args:
        schemas: `components.schemas` of an OpenAPI v3 document of the core group.
    """
    fields: dict[str, str] = {}
    waiting = list(ROOTS)
    while waiting:
        schema = waiting.pop()
        name = _short(schema)
        if name in fields:
            continue
        words = []
        for field, description in sorted(schemas[schema].get("properties", {}).items()):
            reference = next(_references(description), "")
            is_leaf = not reference or _short(reference) in LEAVES
            has_fields = not is_leaf and bool(schemas[reference].get("properties"))
            words.append(f"{field}={_short(reference)}" if has_fields else field)
            if has_fields:
                waiting.append(reference)
        fields[name] = " ".join(words)
    return dict(sorted(fields.items()))


def _references(description: Mapping[str, Any]) -> Iterator[str]:
    """Yield the schema of a field, of its elements or of its values."""
    if "$ref" in description:
        yield description["$ref"].rpartition("/")[2]
    for part in (*description.get("allOf", ()), *description.get("oneOf", ())):
        yield from _references(part)
    for inner in ("items", "additionalProperties"):
        if isinstance(description.get(inner), dict):
            yield from _references(description[inner])


def _short(schema: str) -> str:
    return schema.rpartition(".")[2]


def as_module(fields: Mapping[str, str], version: str) -> str:
    """Return the text of the recorded module."""
    lines = [HEADER.format(version=version)]
    for name, words in fields.items():
        parts = textwrap.wrap(words, 84) or [""]
        texts = [f'"{part} "' for part in parts[:-1]] + [f'"{parts[-1]}"']
        if len(texts) == 1:
            lines.append(f'    "{name}": {texts[0]},\n')
        else:
            body = "".join(f"        {text}\n" for text in texts)
            lines.append(f'    "{name}": (\n{body}    ),\n')
    return "".join([*lines, "}\n"])


def main() -> None:
    """Write the record of a document."""
    document = json.loads(Path(sys.argv[1]).read_bytes())
    version = next((part[12:] for part in Path(sys.argv[1]).parts if "@v" in part), "1.37.1")
    TARGET.write_text(as_module(record_fields(document["components"]["schemas"]), version))


if __name__ == "__main__":
    main()
