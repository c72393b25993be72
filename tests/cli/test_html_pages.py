"""`assess -o html` and `inventory -o html`: one file, nothing fetched, nothing of a cluster is markup."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from cli.html.elements import element, join, raw_text_element
from cli.html.page import with_code
from findings.text import printable
from kube.manifests.dump import dump_yaml
from testing.command import EXAMPLES, drawbridge
from testing.documents import api_object
from testing.html_pages import HIDDEN, HOSTILE, Outline, cluster
from testing.simulated_cluster import holding, node, slice_of

COMMANDS = ("assess", "inventory", "plan")


def page(command: str, tmp_path: Path, text: str = "plain") -> str:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*cluster(text)]}))
    if command == "plan":
        result = drawbridge("plan", "--snapshot", file, "--page", tmp_path / "plan.html")
        assert result.exit_code in {0, 1}, result.stderr
        return (tmp_path / "plan.html").read_text()
    result = drawbridge(command, "--snapshot", file, "-o", "html")
    assert result.exit_code in {0, 1}, result.stderr
    return result.stdout


# --- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_changes_the_elements_of_a_page(command: str, text: str, tmp_path: Path) -> None:
    plain, hostile = (Outline(page(command, tmp_path, name)) for name in ("plain", text))

    assert plain.elements == hostile.elements
    assert any(printable(text) in shown for shown in hostile.texts)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_page_has_characters_that_hide_or_turn_others(command: str, tmp_path: Path) -> None:
    text = page(command, tmp_path, HIDDEN)

    assert [line for line in text.split("\n") if not line.isprintable()] == []
    assert printable(HIDDEN) in text


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_runs_and_fetches_nothing_but_itself(command: str, tmp_path: Path) -> None:
    outline = Outline(page(command, tmp_path, HOSTILE[0]))
    names = {name for name, _ in outline.attributes}
    links = [value for name, value in outline.attributes if name == "href"]

    assert [tag for tag, _ in outline.elements].count("script") == 1
    assert not {name for name in names if name.startswith("on")}
    assert not names & {"src", "style", "srcset", "action", "formaction"}
    assert all(value is not None and value.startswith(("#node-", "#wave-")) for value in links)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_policy_allows_the_style_and_the_script_of_the_page_alone(
    command: str, tmp_path: Path
) -> None:
    text = page(command, tmp_path)
    (policy,) = [value for _, value in Outline(text).attributes if "default-src" in (value or "")]

    directives = dict(part.split(maxsplit=1) for part in (policy or "").split("; "))
    assert {key: value for key, value in directives.items() if not value.startswith("'sha")} == {
        "default-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    for name in ("style", "script"):
        (content,) = re.findall(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert directives[f"{name}-src"] == f"'sha256-{digest}'"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_link_leads_to_a_part_of_the_page(command: str, tmp_path: Path) -> None:
    attributes = Outline(page(command, tmp_path)).attributes
    ids = [value for name, value in attributes if name == "id"]

    assert len(ids) == len(set(ids))
    assert {value for name, value in attributes if name == "href"} <= {f"#{id_}" for id_ in ids}


# --- the builder ----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_text_and_attributes_are_escaped(text: str) -> None:
    outline = Outline(element("td", text, [text], title=text).html)

    assert outline.elements == [("td", ("title",)), ("/td", ())]
    assert outline.attributes == [("title", printable(text))]
    assert outline.texts == [printable(text) * 2]


@pytest.mark.parametrize(
    "attributes",
    [{"onclick": "a"}, {"style": "a"}, {"src": "a"}, {"href": "javascript:a"}, {"href": "/a"}],
)
def test_attributes_that_run_or_fetch_something_are_not_made(attributes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"no attribute|only to its own parts"):
        element("a", **attributes)


@pytest.mark.parametrize("name", ["script", "style", "a b", "A", ""])
def test_elements_that_hold_code_are_made_of_our_own_text_alone(name: str) -> None:
    with pytest.raises(ValueError, match="no element"):
        element(name, "a")


def test_a_script_that_would_end_itself_is_not_made() -> None:
    with pytest.raises(ValueError, match="no script"):
        raw_text_element("script", "a</script>")


def test_children_are_joined_in_order() -> None:
    assert join("a<", None, [element("br"), 1], element("b", "c")).html == "a&lt;<br>1<b>c</b>"


# --- content --------------------------------------------------------------------------------------


def rows(text: str) -> list[list[str]]:
    """The cells of all rows, as their text without elements."""
    return [
        [" ".join(Outline(cell).texts) for cell in re.split(r"(?=<t[dh][ >])", line)[1:]]
        for line in re.findall(r"<tr[^>]*>(.*?)</tr>", text)
    ]


def test_a_workload_has_what_it_requests_what_becomes_of_it_and_where_it_goes() -> None:
    result = drawbridge(
        "assess", "--snapshot", EXAMPLES / "migration" / "cluster.yaml", "-o", "html"
    )
    by_name = {cells[0]: cells for cells in rows(result.stdout)}

    assert result.exit_code == 1
    name, pods, outcome, today, becomes, lost, place = by_name["Deployment/team-a/notebooks"]
    assert (name, pods, outcome) == ("Deployment/team-a/notebooks", "2", "lossy")
    assert "nvidia.com/gpumem 4000" in today
    assert "memory 4000Mi" in becomes
    assert "[policyDropped]" in lost
    assert place.startswith("hami-0 on  hami-0 :")
    assert "plugin-0" in place
    assert "[selector]" in place
    assert by_name["gpuDriverTooOld"][3] == "Node/hami-0"


def test_nodes_are_drawn_with_the_shares_of_workloads() -> None:
    result = drawbridge(
        "assess", "--snapshot", EXAMPLES / "migration" / "cluster.yaml", "-o", "html"
    )
    cards = re.findall(r'<li class="card entry".*?</ul></li>', result.stdout)

    text = " ".join(Outline(cards[0]).texts)
    assert "hami: 2 devices" in text
    assert "Deployment/team-a/inference : cores 30" in text.replace("inference:", "inference :")
    # Two devices, with three shares of one workload and two of another on the first.
    assert cards[0].count('class="device"') == 2
    assert re.findall(r'<rect class="(o\d)"', cards[0]) == ["o0", "o0", "o0", "o1", "o1"]
    assert 'width="7.2"' in cards[0]


def test_placing_pods_for_the_page_changes_no_answer() -> None:
    file = EXAMPLES / "migration" / "cluster.yaml"
    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)
    html = drawbridge("assess", "--snapshot", file, "-o", "html").stdout

    capacity = answer["capacity"]
    assert f"<dd>{capacity['placed']} of {capacity['pods']}</dd>" in html
    assert all(workload["object"] in html for workload in answer["workloads"])


def test_residue_is_part_of_the_page() -> None:
    file = EXAMPLES / "migration" / "cluster.yaml"
    result = drawbridge("assess", "--snapshot", file, "--residue", "-o", "html")

    assert result.exit_code == 1
    assert "Left of legacy systems" in result.stdout
    assert "devicePluginLeft" in result.stdout


def test_an_inventory_has_devices_with_their_users(tmp_path: Path) -> None:
    by_name = {cells[0]: cells for cells in rows(page("inventory", tmp_path))}

    assert by_name["gpu.example.com/nplain/plain0"][1:3] == ["nplain", "allocated"]
    assert by_name["gpu.example.com/nplain/plain1"][-1] == "memory 40Gi"
    assert by_name["classplain"][1:3] == ["2", "1"]


def test_nodes_of_an_inventory_are_idle_or_in_use(tmp_path: Path) -> None:
    cards = re.findall(r'<li class="card entry"[^>]*>', page("inventory", tmp_path))

    assert [card.partition('data-value="')[2] for card in cards] == ['in use">']


def test_idle_nodes_that_look_the_same_are_drawn_once(tmp_path: Path) -> None:
    """Of 5,000 nodes the page had 370 screens."""
    documents = [
        document
        for number in range(40)
        for document in (node(f"n{number:02}"), slice_of(f"n{number:02}", {"name": "gpu-0"}))
    ]
    other = slice_of("zz", {"name": "gpu-0", "capacity": {"memory": {"value": "80Gi"}}})
    documents += [node("zz"), other, holding("held", "gpu-0", "n07")]
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(documents))

    text = drawbridge("inventory", "--snapshot", file, "-o", "html").stdout

    heads = re.findall(r'<li class="card entry"[^>]*><h3>([^<]*)</h3>', text)
    assert heads == ["n00 and 38 more", "n07", "zz"]
    assert "38 more nodes like it</summary><p>n01, n02," in text


def test_an_empty_cluster_has_pages_as_well(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("apiVersion: v1\nkind: Node\nmetadata: {name: a}\n")

    for command, text in (("assess", "No workload"), ("inventory", "No devices are published.")):
        assert text in drawbridge(command, "--snapshot", file, "-o", "html").stdout


def test_devices_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    devices = [{"name": f"gpu-{number}"} for number in range(12)]
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 1}
    published = api_object(
        "ResourceSlice",
        "a",
        spec={"driver": "gpu.example.com", "nodeName": "a", "pool": pool, "devices": devices},
    )
    node = api_object("Node", "a")
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, published]}))

    result = drawbridge("inventory", "--snapshot", file, "-o", "html")

    assert "gpu-0 to gpu-11, 12 devices" in result.stdout


def test_an_assessment_begins_with_its_cluster_and_the_outcomes_of_namespaces(
    tmp_path: Path,
) -> None:
    origin = api_object(
        "Snapshot",
        "cluster",
        kubernetesVersion="v1.37.1",
        takenAt="2026-11-23T10:00:00Z",
        context="production<b>",
    )
    file = tmp_path / "origin.yaml"
    file.write_text(json.dumps(origin))
    cluster = EXAMPLES / "migration" / "cluster.yaml"

    html = drawbridge("assess", "--snapshot", file, "--snapshot", cluster, "-o", "html").stdout
    headings = re.findall("<h2>(.*?)</h2>", html)
    by_name = {cells[0]: cells for cells in rows(html)}

    assert "context production&lt;b&gt;, Kubernetes v1.37.1, as of 2026-11-23T10:00:00Z" in html
    assert headings.index("Namespaces") == 0
    assert headings.index("Fixes") < headings.index("Workloads")
    assert by_name["team-a"] == ["team-a", "5", "-", "1", "1"]
    assert by_name["team-b"] == ["team-b", "2", "1", "-", "-"]


def test_a_fix_stands_once_with_its_workloads(tmp_path: Path) -> None:
    pods = [
        api_object(
            "Pod",
            f"p{number}",
            "team",
            spec={
                "containers": [
                    {"name": "c", "image": "a", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
                ]
            },
        )
        for number in range(3)
    ]
    file = tmp_path / "cluster.yaml"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))

    html = drawbridge("assess", "--snapshot", file, "-o", "html").stdout

    fix = "add extendedResourceName: nvidia.com/gpu to DeviceClass gpu.nvidia.com"
    assert html.count(fix) == 1
    (cells,) = (cells for cells in rows(html) if cells[0] == fix)
    assert cells[1] == "3"


def test_commands_between_backticks_are_code() -> None:
    assert with_code("run `a b`, then `c").html == "run <code>a b</code>, then c"
