"""The state of an example's folder in the local cluster of `make up EXAMPLES=...`."""

from e2e.fleet import example_state


def test_nodes_have_the_taints_and_amounts_of_the_example() -> None:
    busy = {node["metadata"]["name"]: node for node in example_state("busy").nodes}
    nics = {node["metadata"]["name"]: node for node in example_state("nics").nodes}

    assert busy["west-1"]["spec"]["taints"] == [{"key": "maintenance", "effect": "NoSchedule"}]
    assert "spec" not in busy["east-1"]
    allocatable = nics["efa-0"]["status"]["allocatable"]
    assert allocatable.keys() >= {"cpu", "hugepages-2Mi"}
    assert nics["efa-0"]["status"]["capacity"] == allocatable


def test_quotas_and_labels_of_namespaces_are_those_of_the_example() -> None:
    state = example_state("quota")

    quotas = [entry for entry in state.objects if entry["kind"] == "DeviceQuota"]
    assert ["vision"] == [quota["metadata"]["name"] for quota in quotas]
    assert "vision" == state.namespaces["vision-lab"]["team"]
