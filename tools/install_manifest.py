"""Write the manifest of a first installation to one file: `python -m tools.install_manifest [FILE]`.

It is what `kubectl apply -k manifests/overlays/opt-in` applies, for people without a checkout. A release
has the file beside its image, whose name is an argument.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
OVERLAY: Final = ROOT / "manifests" / "overlays" / "opt-in"
OUT: Final = ROOT / "build" / "install.yaml"
IMAGE: Final = "drawbridge-dra:0.1.0"
"""The image in the manifests."""


def install_manifest(kubectl: str | Path, image: str = IMAGE) -> str:
    """Return the manifest.

    Args:
        image: The image in place of that of the manifests.
    """
    command = [kubectl, "kustomize", OVERLAY]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return text.replace(f"image: {IMAGE}\n", f"image: {image}\n")


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.install_manifest", description=__doc__)
    parser.add_argument("--image", default=IMAGE, help="with registry and digest")
    parser.add_argument("file", nargs="?", type=Path, default=OUT)
    options = parser.parse_args()
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        print("install.yaml needs kubectl, which renders kustomizations", file=sys.stderr)
        return 1
    options.file.parent.mkdir(parents=True, exist_ok=True)
    options.file.write_text(install_manifest(kubectl, options.image))
    print(options.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
