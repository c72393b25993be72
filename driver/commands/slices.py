"""`python -m driver slices FILE`: checks a declared inventory and prints the resulting slices.

Works without a cluster; the output is what `drawbridge simulate --snapshot` takes.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from driver.discovery.declared_file import read_file
from driver.model.settings import DRIVER_NAME
from driver.plan.slices import Publication, plan_pools, plan_writes, slice_document
from kube.errors import ConfigError
from kube.manifests.dump import dump_yaml


def print_slices(arguments: Sequence[str]) -> int:
    """Print the ResourceSlices of an inventory and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m driver slices", description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE", help="a declared inventory")
    parser.add_argument("--node", default="node-a", metavar="NAME", help="default: node-a")
    parser.add_argument("--name", default=DRIVER_NAME, metavar="DRIVER", help=DRIVER_NAME)
    parser.add_argument(
        "--compatibility-groups", action="store_true", help="as DRADeviceCompatibilityGroups"
    )
    options = parser.parse_args(arguments)
    try:
        inventory = read_file(options.file)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    publication = Publication(
        driver=options.name, node=options.node, node_uid="", groups=options.compatibility_groups
    )
    slices = plan_writes(plan_pools(publication, inventory), ()).to_apply
    sys.stdout.write(dump_yaml([slice_document(slice_) for slice_ in slices]))
    return 0
