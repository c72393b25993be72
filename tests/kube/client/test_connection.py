"""The official client's package is imported without its synchronous client."""

import subprocess
import sys

PROGRAM = """
import sys
import kube.client.connection, kubernetes

print("kubernetes.client" in sys.modules)
try:
    kubernetes.client
except AttributeError as error:
    print(error)
from kubernetes import client
print(client.V1Pod.__name__)
"""


def test_the_synchronous_client_is_imported_on_demand_only() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, check=True
    )

    assert [
        "False",
        "module 'kubernetes' has no attribute 'client'",
        "V1Pod",
    ] == done.stdout.splitlines()
