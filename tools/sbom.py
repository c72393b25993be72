"""Write the list of the image's Python packages: `python -m tools.sbom [FILE]`.

CycloneDX 1.6 as JSON, made of two things that are here anyway: the locked requirements, which are
what the image installs, with the hashes that pip checks; and the installed packages' own metadata,
for licences and for who needs whom. A library for it would bring more packages than it describes.
The same input gives the same bytes. What the base image brings is not in it.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
LOCKED: Final = ROOT / "requirements" / "base.txt"
OUT: Final = ROOT / "build" / "sbom.cdx.json"
PRODUCT: Final = "drawbridge-dra"

_PINNED: Final = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_NEEDED: Final = re.compile(r"^[A-Za-z0-9._-]+")


class Package(NamedTuple):
    """One locked package; a hash per file that may be installed."""

    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def purl(self) -> str:
        """The package URL."""
        return f"pkg:pypi/{self.name}@{self.version}"


def locked_packages(text: str) -> Iterator[Package]:
    """Yield the packages of a hashed requirements file."""
    for lines in text.replace("\\\n", " ").splitlines():
        if pin := _PINNED.match(lines):
            name = normalize_name(pin["name"])
            yield Package(name, pin["version"], tuple(_HASH.findall(lines)))


def normalize_name(name: str) -> str:
    """Return a project's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def bill(packages: Mapping[str, Package], version: str) -> Mapping[str, Any]:
    """Return the bill of materials.

    Args:
        packages: The packages by normalized name.
        version: The version of this project.
    """
    product = f"pkg:pypi/{PRODUCT}@{version}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": product,
                "name": PRODUCT,
                "version": version,
                "purl": product,
            }
        },
        "components": [component(package) for package in packages.values()],
        "dependencies": [
            {"ref": product, "dependsOn": dependencies_of(PRODUCT, packages)},
            *(
                {"ref": package.purl, "dependsOn": dependencies_of(package.name, packages)}
                for package in packages.values()
            ),
        ],
    }


def component(package: Package) -> Mapping[str, Any]:
    """Return the component of one package."""
    expression = licence(package.name)
    return {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in package.hashes],
        **({"licenses": [{"license": {"name": expression}}]} if expression else {}),
    }


def licence(name: str) -> str:
    """Return the licence that a package claims, in the shortest of its ways; empty if none."""
    try:
        package_metadata = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""
    classifiers = [
        classifier.rpartition(" :: ")[2]
        for classifier in package_metadata.get_all("Classifier", [])
        if classifier.startswith("License :: ")
    ]
    (expression, *_) = (*package_metadata.get_all("License-Expression", []), "")
    (text, *_) = (*package_metadata.get_all("License", []), "")
    return str(expression) or " AND ".join(classifiers) or str(text).partition("\n")[0]


def dependencies_of(name: str, packages: Mapping[str, Package]) -> list[str]:
    """Return the locked packages that a package asks for; extras that are not locked fall away."""
    try:
        requirements = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []
    names = {
        normalize_name(name_match[0])
        for requirement in requirements
        if (name_match := _NEEDED.match(requirement))
    }
    return [packages[dependency].purl for dependency in sorted(names & packages.keys())]


def main() -> int:
    """Return the exit status."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    packages = {package.name: package for package in locked_packages(LOCKED.read_text())}
    out.parent.mkdir(parents=True, exist_ok=True)
    document = bill(packages, metadata.version(PRODUCT))
    out.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    print(f"{out}: {len(packages)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
