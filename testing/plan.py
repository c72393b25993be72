"""Plans of migrations, as `drawbridge plan` writes them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from click.testing import Result

from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from testing.command import drawbridge

Objects = Sequence[Mapping[str, Any]]


def call(tmp_path: Path, objects: Objects, *options: object, folder: str = "plan") -> Result:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    return drawbridge("plan", "--snapshot", file, "-o", tmp_path / folder, *options)


def document(tmp_path: Path, folder: str = "plan") -> dict[str, Any]:
    (source,) = read_paths([str(tmp_path / folder / "plan.yaml")])
    return source.document


def planned(tmp_path: Path, objects: Objects, *options: object) -> dict[str, Any]:
    result = call(tmp_path, objects, *options)
    assert result.exit_code in (0, 1), result.stderr
    return document(tmp_path)


def waves(plan: Mapping[str, Any]) -> list[tuple[list[str], list[str]]]:
    return [
        ([node["name"] for node in wave["nodes"]], wave["namespaces"]) for wave in plan["waves"]
    ]


def held_objects(plan: Mapping[str, Any]) -> dict[str, str]:
    return {entry["object"]: entry["reason"] for entry in plan["held"]}


def script(tmp_path: Path, phase: str, wave: int = 1, folder: str = "plan") -> str:
    return (tmp_path / folder / f"wave-{wave}" / f"{phase}.sh").read_text()
