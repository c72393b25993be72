"""The ResourceQuotas of `drawbridge plan`: the amounts allowed after a wave, and its script's words."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from cli.runbooks.wave_course import step_lines
from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from migration.wave.steps import Step, StepKind
from testing.command import drawbridge
from testing.documents import claim, namespace, node, resource_quota
from testing.migration import GPU, SHARE, device_quota, hami_node, plugin_node, workload
from testing.plan import changes, checks_before, failed_before, held_objects, planned, script

MIG: Final = "nvidia.com/mig-1g.5gb"
_NVIDIA: Final = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
LABEL: Final = "drawbridge.internal/translate"
_HAMI: Final = "hami-core-gpu.project-hami.io.deviceclass.resource.k8s.io/devices"


def _quota() -> dict[str, Any]:
    return resource_quota({f"requests.{GPU}": "8"})


def _wave_of(plan: Mapping[str, Any], namespace: str) -> int:
    return int(next(wave["wave"] for wave in plan["waves"] if namespace in wave["namespaces"]))


def test_claims_of_a_namespace_may_have_no_more_than_its_old_line(tmp_path: Path) -> None:
    nodes = [plugin_node("gpu-0"), hami_node("hami-0"), hami_node("hami-1")]

    plan = planned(tmp_path, [*nodes, _quota(), *workload("web", SHARE, ["hami-0"] * 2)])

    (source,) = read_paths([str(tmp_path / "plan" / "quotas" / "team.gpus.yaml")])
    hard = source.document["spec"]["hard"]
    assert ("3", "5") == (hard[_NVIDIA], hard[_HAMI])
    switch = script(tmp_path, "switch", _wave_of(plan, "team"))
    assert "limits hold for both" not in switch
    assert f"# requests.{GPU}: pods with the key 8, claims 8 (3 of class" in switch
    assert "; together 16, and 8 before" in switch


def _claims(number: int, device_class: str = "hami-core-gpu.project-hami.io") -> list[Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": device_class}}
    return [claim(request, name=f"held-{index}", namespace="team") for index in range(number)]


def test_claims_that_are_there_already_count_in_what_a_namespace_uses(tmp_path: Path) -> None:
    """Pods that had claims counted nowhere: their class got the rest of an equal part."""
    nodes = [plugin_node("gpu-0"), hami_node("hami-0"), hami_node("hami-1")]
    objects = [*nodes, _quota(), *workload("web", SHARE, ["hami-0"]), *_claims(5)]

    plan = planned(tmp_path, objects)

    added = plan["quotaLines"]["team.gpus.yaml"]["added"]
    assert {_NVIDIA: "1", _HAMI: "7"} == added
    assert 1 == len(plan["quotaEffects"]["team.gpus.yaml"])


def test_a_line_below_what_a_namespace_uses_holds_it(tmp_path: Path) -> None:
    """It was noted, and the new pods of the wave waited for their claims."""
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    web = workload("web", SHARE, ["hami-0"], kind="StatefulSet")
    objects = [*nodes, namespace("team"), _quota(), *web, *_claims(9)]

    plan = planned(tmp_path, objects)

    assert {} == plan["quotaLines"]
    told = drawbridge("quota", "convert", "--snapshot", tmp_path / "cluster.yaml").stderr
    effect = (
        f"{_HAMI} now allows 8, and the pods and claims of today use 10: new pods wait for their claims until these "
        "use less, or the amount is raised"
    )
    assert effect in told
    (entry,) = (entry for entry in plan["held"] if entry["object"] == "Namespace//team")
    amounts = "(needed 1, used by others 9, hard 8) for StatefulSet/team/web"
    assert entry["reason"].endswith(f"{_HAMI} of ResourceQuota/team/gpus {amounts}")
    assert f"add {_HAMI} with 10 to ResourceQuota/team/gpus" == entry["fix"]


def _not_moving() -> list[Any]:
    """A namespace that moves, one that is opted out and uses more claims than its quota has keys, and one that is held."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "hami-core-gpu.project-hami.io"}}
    memory = {**_quota()["spec"]["hard"], "limits.nvidia.com/gpumem": "100k"}
    held = {**_quota(), "spec": {"hard": memory}}
    return [
        *(hami_node(f"hami-{number}") for number in range(6)),
        *(namespace("team"), namespace("held"), namespace("out", {LABEL: "false"})),
        *(_quota(), _in("held", held), _in("out", _quota())),
        *workload("web", SHARE, ["hami-1"]),
        *workload("web", SHARE, ["hami-2"], namespace="held"),
        *workload("web", SHARE, ["hami-3"], namespace="out"),
        *(claim(request, name=f"own-{number}", namespace="out") for number in range(9)),
    ]


def _in(namespace: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    return {**entry, "metadata": {**entry["metadata"], "namespace": namespace}}


@pytest.mark.parametrize("form", ["scripts", "kustomize"])
def test_quotas_of_namespaces_that_no_wave_opts_in_stay_as_they_are(
    tmp_path: Path, form: str
) -> None:
    """The first commit gave them lines, and the next claims of pods that nobody moves were rejected."""
    plan = planned(tmp_path, _not_moving(), "--wave-nodes", 1, "--format", form)

    assert ["team"] == [name for wave in plan["waves"] for name in wave["namespaces"]]
    assert {"team": ["team.gpus.yaml"]} == plan["quotas"]
    assert ["team.gpus.yaml"] == [*plan["quotaLines"]] == [*plan["quotaEffects"]]
    assert ["team.gpus.yaml"] == [path.name for path in (tmp_path / "plan" / "quotas").iterdir()]
    patches = [path.name for path in (tmp_path / "plan").glob("kustomize/prepare/resourcequota.*")]
    assert (["resourcequota.team.gpus.yaml"] if form == "kustomize" else []) == patches


def test_the_sum_is_reported_before_the_wave(tmp_path: Path) -> None:
    objects = [
        hami_node("hami-0"),
        hami_node("hami-1"),
        namespace("team"),
        _quota(),
        *workload("web", SHARE, ["hami-0"]),
    ]
    plan = planned(tmp_path, objects)

    checks = checks_before(tmp_path, objects, _wave_of(plan, "team"))

    (message,) = (
        check["message"] for check in checks if check["object"] == "ResourceQuota/team/gpus"
    )
    assert message.startswith(f"with this wave requests.{GPU}: pods with the key 8, claims 8")
    assert message.endswith("together 16, and 8 before")


@pytest.mark.parametrize("options", [(), ("--format", "kustomize")])
def test_the_old_line_is_lowered_once_its_namespace_has_moved(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    nodes = [hami_node("hami-0"), hami_node("hami-1")]

    plan = planned(tmp_path, [*nodes, _quota(), *workload("web", SHARE, ["hami-0"])], *options)

    moving = _wave_of(plan, "team")
    patch = f'{{"spec": {{"hard": {{"requests.{GPU}": "AMOUNT"}}}}}}'
    command = f"kubectl patch resourcequota gpus --namespace=team --type=merge '--patch={patch}'"
    readme = (tmp_path / "plan" / "README.md").read_text()
    note, line = (line for line in readme.splitlines() if "still counts in it" in line)
    assert note.startswith(f"- wave {moving}: ResourceQuota/team/gpus gets lines for claims, so ")
    assert "together 16, and 8 before. After wave " in note
    assert f"- after wave {moving}: ResourceQuota/team/gpus: " in line
    assert f"so lower requests.{GPU} to what" in line
    assert "; together 16, and 8 before. The added lines count these claims" in line
    assert (f"with {command}" in line, "in the repository" in line) == (not options, bool(options))
    for wave in plan["waves"]:
        is_told = "echo 'by hand: ResourceQuota/team/gpus" in script(
            tmp_path, "verify", wave["wave"]
        )
        assert is_told is (wave["wave"] == moving)


def test_a_line_that_allows_no_more_than_before_is_not_to_be_lowered(tmp_path: Path) -> None:
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    quota = resource_quota({f"requests.{GPU}": "0"})

    planned(tmp_path, [*nodes, namespace("team"), quota, *workload("web", SHARE, ["hami-0"])])

    assert "allow more than before" not in (tmp_path / "plan" / "README.md").read_text()


def test_a_class_that_the_plan_maps_gets_no_line(tmp_path: Path) -> None:
    """Pods with the key would have been limited twice: by its line, and by a smaller one of the class."""
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1"), hami_node("hami-0"), hami_node("hami-1")]
    whole = workload("train", {GPU: "1"}, ["gpu-0"])
    share = workload("web", SHARE, ["hami-0"])

    plan = planned(tmp_path, [*nodes, namespace("team"), _quota(), *whole, *share])

    assert {GPU: "gpu.nvidia.com"} == plan["mappedClasses"]
    (source,) = read_paths([str(tmp_path / "plan" / "quotas" / "team.gpus.yaml")])
    assert {f"requests.{GPU}", _HAMI} == set(source.document["spec"]["hard"])


def _scoped_quota() -> dict[str, Any]:
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    quota = _quota()
    quota["metadata"]["name"] = "high"
    quota["spec"]["scopeSelector"] = {"matchExpressions": [expression]}
    return quota


def test_a_quota_that_stops_counting_with_a_wave_is_reported_where_its_namespace_moves(
    tmp_path: Path,
) -> None:
    """A quota with scopes counts no claims, so nothing limited these pods any more, without a word."""
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    objects = [*nodes, _quota(), _scoped_quota(), *workload("web", SHARE, ["hami-0"])]

    plan = planned(tmp_path, objects)

    number = _wave_of(plan, "team")
    (note,) = (note for note in plan["waves"][number - 1]["notes"] if "team/high" in note)
    assert f"requests.{GPU} does not count the pods that get claims with this wave" in note
    assert note.endswith("a quota with scopes counts no claims")
    assert f"- wave {number}: {note}" in (tmp_path / "plan" / "README.md").read_text()
    assert f"echo 'note: {note}'" in script(tmp_path, "preflight", number)
    assert not any(
        "team/high" in note
        for wave in plan["waves"]
        if wave["wave"] != number
        for note in wave["notes"]
    )


def test_a_quota_of_pods_that_keep_their_key_goes_on_counting(tmp_path: Path) -> None:
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]
    objects = [*nodes, _scoped_quota(), *workload("train", {GPU: "1"}, ["gpu-0"])]

    plan = planned(tmp_path, objects)

    assert plan["waves"]
    assert not any("team/high" in note for wave in plan["waves"] for note in wave["notes"])


# --- DeviceQuotas that count pods with keys, too --------------------------------------------------

SHARE_KEYS: Final = ("nvidia.com/gpumem", "nvidia.com/gpucores")


def _switch_with(tmp_path: Path, *quotas: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    others = workload("web", SHARE, ["hami-0"] * 2)
    plan = planned(tmp_path, [*nodes, namespace("team"), _quota(), *quotas, *others])
    return plan, script(tmp_path, "switch", _wave_of(plan, "team"))


def test_an_old_line_goes_once_a_quota_of_both_sides_is_enforced(tmp_path: Path) -> None:
    """The budget doubled while the old line and lines for claims both held in full."""
    plan, switch = _switch_with(tmp_path, device_quota({"name": GPU}))

    assert plan["replacedLines"] == [
        {
            "namespace": "team",
            "name": "gpus",
            "lines": [f"requests.{GPU}"],
            "amounts": {f"requests.{GPU}": "8"},
            "deviceQuotas": ["team"],
        }
    ]
    lines = [line.strip() for line in switch.splitlines()]
    wait = lines.index(
        "kubectl wait devicequotas.drawbridge.internal/team --for=condition=Enforced --timeout=2m"
    )
    (removal,) = (line for line in lines if "change_object resourcequota/gpus team" in line)
    (label,) = (line for line in lines if line.startswith("change_object namespace/team"))
    assert wait < lines.index(removal) < lines.index(label)
    assert [("team/resourcequota/gpus", {f"requests.{GPU}": ("8", None)})] == changes(removal)
    # A rollback gives the amount back, before any pod has its keys again.
    rollback = script(tmp_path, "rollback", _wave_of(plan, "team"))
    restored = ("team/resourcequota/gpus", {f"requests.{GPU}": (None, "8")})
    assert restored == changes(rollback)[0]
    # It is a step of its own, so that it does not depend on the labels of namespaces.
    begin = Step(script="", kind=StepKind.BEGIN)
    assert restored in changes("\n".join(step_lines(rollback, begin) or ()))
    # No lines for claims are added to what is replaced.
    assert plan["quotas"] == {}


@pytest.mark.parametrize(
    "quotas",
    [
        [device_quota()],
        [device_quota({"name": "nvidia.com/gpumem"})],
        [device_quota({"name": GPU}, enforcement="Audit")],
        [device_quota({"name": GPU, "onlyWith": ["nvidia.com/gpumem"]})],
        [device_quota({"name": GPU, "without": ["nvidia.com/gpumem"]})],
        [device_quota({"name": GPU}, namespaceSelector={"matchLabels": {"team": "other"}})],
    ],
)
def test_an_old_line_stays_where_some_pods_with_its_key_count_in_no_other(
    quotas: list[Mapping[str, Any]], tmp_path: Path
) -> None:
    plan, switch = _switch_with(tmp_path, *quotas)

    assert plan["replacedLines"] == []
    assert plan["quotas"] == {"team": ["team.gpus.yaml"]}
    added = plan["quotaLines"]["team.gpus.yaml"]["added"]
    assert added
    kept = {f"requests.{GPU}": ("8", "8")}
    lines = {line: (None, amount) for line, amount in added.items()}
    assert ("team/resourcequota/gpus", {**kept, **lines}) in changes(switch)


def test_two_limits_may_count_the_pods_of_a_line_between_them(tmp_path: Path) -> None:
    quota = device_quota({"name": GPU, "without": ["nvidia.com/gpumem"]})
    other = {**quota["spec"]["limits"][0], "name": "shares"}
    other["legacyKeys"] = [{"name": GPU, "onlyWith": [*SHARE_KEYS]}]
    quota["spec"]["limits"].append(other)

    plan, _ = _switch_with(tmp_path, quota)

    assert [entry["lines"] for entry in plan["replacedLines"]] == [[f"requests.{GPU}"]]


def test_a_line_with_a_claims_quota_converted_by_us_is_replaced(tmp_path: Path) -> None:
    """The output of `quota convert` is known to the plan."""
    file = tmp_path / "quota.yaml"
    file.write_text(dump_yaml([_quota()]))
    result = drawbridge("quota", "convert", "--snapshot", file, "--to", "device", "-o", "json")
    (conversion,) = json.loads(result.stdout)["conversions"]
    assert conversion["replaced"] == [f"requests.{GPU}"]

    plan, _ = _switch_with(tmp_path, *conversion["documents"])

    assert [entry["lines"] for entry in plan["replacedLines"]] == [[f"requests.{GPU}"]]


def test_a_namespace_whose_memory_a_quota_of_both_sides_limits_is_moved(tmp_path: Path) -> None:
    """It was held: no ResourceQuota counts memory of claims, and nobody looked for a quota that does."""
    memory = _quota()
    memory["spec"]["hard"] = {"requests.nvidia.com/gpumem": "64000"}
    file = tmp_path / "quota.yaml"
    file.write_text(dump_yaml([memory]))
    result = drawbridge("quota", "convert", "--snapshot", file, "--to", "device", "-o", "json")
    (conversion,) = json.loads(result.stdout)["conversions"]
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    web = workload("web", SHARE, ["hami-0"])

    plan = planned(tmp_path, [*nodes, namespace("team"), memory, *conversion["documents"], *web])

    assert plan["held"] == []
    (lines,) = plan["replacedLines"]
    # As the API server has it: the scripts stopped at an amount that is written in another way.
    assert lines["amounts"] == {"requests.nvidia.com/gpumem": "64k"}
    assert _wave_of(plan, "team")


@pytest.mark.parametrize(
    ("pods", "strategy", "is_told"),
    [
        (2, {}, True),
        (4, {}, False),
        (4, {"rollingUpdate": {"maxUnavailable": 0}}, True),
        (2, {"rollingUpdate": {"maxUnavailable": 1}}, False),
        (2, {"rollingUpdate": {"maxUnavailable": "0%", "maxSurge": 0}}, False),
        (2, {"type": "Recreate"}, False),
    ],
)
def test_a_rollout_that_needs_more_than_the_budget_is_reported(
    pods: int, strategy: Mapping[str, Any], is_told: bool, tmp_path: Path
) -> None:
    """Its new pod waited for the budget of the old ones, and they for its readiness, without a word before."""
    web, *others = workload("web", SHARE, ["hami-0"] * pods)
    web["spec"] = {**web["spec"], "replicas": pods, "strategy": strategy}
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    objects = [*nodes, namespace("team"), _quota(), device_quota({"name": GPU}), web, *others]

    plan = planned(tmp_path, objects)

    notes = plan["waves"][_wave_of(plan, "team") - 1]["notes"]
    told = [note for note in notes if "both count in DeviceQuota team" in note]
    assert bool(told) == is_told
    assert all(note.startswith("rollouts of Deployment/team/web start") for note in told)


def test_many_rollouts_of_one_quota_are_one_note(tmp_path: Path) -> None:
    """They were a note each, eighty in a rehearsal."""
    objects = [hami_node("hami-0"), hami_node("hami-1"), namespace("team"), _quota()]
    for number in range(5):
        objects += workload(f"web-{number}", SHARE, ["hami-0"])

    plan = planned(tmp_path, [*objects, device_quota({"name": GPU})])

    notes = plan["waves"][_wave_of(plan, "team") - 1]["notes"]
    (note,) = [note for note in notes if "both count in DeviceQuota team" in note]
    assert "Deployment/team/web-2 and 2 more start a pod" in note


def test_a_rollout_of_pods_without_the_key_of_the_line_needs_no_budget(tmp_path: Path) -> None:
    """Pods of MIG devices have no memory by a key."""
    memory = _quota()
    memory["spec"]["hard"] = {"requests.nvidia.com/gpumem": "64000"}
    quota = device_quota({"name": "nvidia.com/gpumem", "perUnit": "1Mi", "multipliedBy": GPU})
    quota["spec"]["limits"][0] |= {"capacity": "memory", "max": "64000Mi"}
    quota["spec"]["limits"][0].pop("devices", None)
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.count": "1"}
    mig_nodes = [node(name, {"cpu": "8", MIG: "7"}, labels, {}) for name in ("mig-0", "mig-1")]
    nodes = [hami_node("hami-0"), hami_node("hami-1"), *mig_nodes]
    share, mig = workload("share", SHARE, ["hami-0"]), workload("mig", {MIG: "1"}, ["mig-0"])

    plan = planned(tmp_path, [*nodes, namespace("team"), memory, quota, *share, *mig])

    assert [entry["lines"] for entry in plan["replacedLines"]] == [["requests.nvidia.com/gpumem"]]
    notes = [note for wave in plan["waves"] for note in wave["notes"]]
    (told,) = [note for note in notes if "both count in DeviceQuota team" in note]
    assert told.startswith("rollouts of Deployment/team/share start a pod")


def test_a_budget_that_counts_more_of_claims_than_of_keys_holds_the_namespace(
    tmp_path: Path,
) -> None:
    """Pods with a percentage of memory are free as keys: a wave opted them in, and they waited."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "25"}
    limit = {
        "name": "memory",
        "driver": "hami-core-gpu.project-hami.io",
        "deviceClassNames": ["hami-core-gpu.project-hami.io"],
        "capacity": "memory",
        "legacyKeys": [
            {"name": "nvidia.com/gpumem", "perUnit": "1Mi", "multipliedBy": "nvidia.com/gpu"}
        ],
    }
    own = namespace("team", {"kubernetes.io/metadata.name": "team"})
    pods = workload("web", limits, ["hami-0", "hami-1"])
    objects = [hami_node("hami-0"), hami_node("hami-1"), own, *pods]
    low = device_quota(limits=[{**limit, "max": "15000Mi"}])

    held = held_objects(planned(tmp_path, [*objects, low]))
    enough = held_objects(
        planned(tmp_path, [*objects, device_quota(limits=[{**limit, "max": "30000Mi"}])])
    )

    text = (
        "pods of Deployment/team/web would be stopped once it is opted in: a DeviceQuota does not let 1 pod through yet: "
        "DeviceQuota team, limit memory: "
    )
    amounts = "10Gi of memory needed, 4760Mi of 15000Mi of memory left; where the quota is enforced, the pod waits"
    assert held["Namespace//team"] == f"{text}{amounts}"
    assert "Namespace//team" not in enough
    assert failed_before(tmp_path, [*objects, low])["Namespace//team"].startswith(text)


@pytest.mark.parametrize(
    ("most", "spec", "word"),
    [
        ("4", {}, "less"),
        ("8", {}, ""),
        ("12", {}, ""),
        ("12", {"budget": "PerNamespace"}, "more"),
        ("4", {"budget": "PerNamespace"}, "less"),
    ],
)
def test_a_quota_in_the_place_of_a_line_with_another_amount_is_noted(
    tmp_path: Path, most: str, spec: Mapping[str, Any], word: str
) -> None:
    """The budget halved, or doubled, with the wave that removed the line, and nothing said so."""
    quota = device_quota({"name": GPU}, **spec)
    quota["spec"]["limits"][0]["max"] = most

    plan, _ = _switch_with(tmp_path, quota)

    text = (
        f"requests.{GPU} of ResourceQuota/team/gpus allows 8, and limit devices of DeviceQuota/team in its place {most}, "
        f"which is {word}: change the limit if that is not meant"
    )
    notes = plan["waves"][_wave_of(plan, "team") - 1]["notes"]
    assert [text] * bool(word) == [note for note in notes if "in its place" in note]
    file = tmp_path / "quotas.yaml"
    file.write_text(dump_yaml([namespace("team"), _quota(), quota]))
    converted = drawbridge("quota", "convert", "--snapshot", file)
    assert bool(word) is (f"note: {text}\n" in converted.stderr), converted.stderr
