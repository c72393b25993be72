"""The CSV of pods: the rows that are read, and every fault of the others."""

from typing import NamedTuple

import pytest

from allocator.replay.csv_pods import (
    COLUMNS,
    MAX_FAULTS,
    MAX_FIELD,
    CsvFault,
    read_pods,
)
from allocator.replay.workload import ReplayPod
from kube.quantity import Quantity


def pods_of(text: str) -> list[ReplayPod]:
    """Return the pods of a CSV without faults."""
    pods = [pod for pod in read_pods(text) if isinstance(pod, ReplayPod)]
    assert len(pods) == len(read_pods(text)), read_pods(text)
    return pods


def faults_of(text: str) -> list[str]:
    """Return the faults of a CSV."""
    return [str(fault) for fault in read_pods(text) if isinstance(fault, CsvFault)]


def test_a_row_with_every_column() -> None:
    header = "departure,name,cpu,memory,class,count,capacity,selector,nodeSelector,priority,arrival"
    (pod,) = pods_of(
        f'{header}\n90.5,train,500m,8Gi,gpu,2,milli=500; memory=8Gi,"device.driver == ""a""",'
        "zone=a;disk=,-5,10\n"
    )
    (claim,) = pod.claims
    (request,) = claim.spec.devices.requests or ()
    exactly = request.exactly
    assert exactly is not None
    assert exactly.capacity is not None
    assert (pod.name, pod.arrival, pod.departure, pod.priority) == ("train", 10, 90.5, -5)
    assert (exactly.device_class_name, exactly.count) == ("gpu", 2)
    assert exactly.capacity.requests == {"milli": Quantity(500), "memory": Quantity("8Gi")}
    assert [entry.cel.expression for entry in exactly.selectors or () if entry.cel] == [
        'device.driver == "a"'
    ]
    assert pod.pod.spec.node_selector == {"zone": "a", "disk": ""}
    (container,) = pod.pod.spec.containers or ()
    assert container.requests == {"cpu": Quantity("500m"), "memory": Quantity("8Gi")}


def test_columns_that_are_missing_are_empty() -> None:
    pods = pods_of("\ufeffname,class\r\n a , \r\n\r\nb,gpu\r\nc\r\n")
    assert [(pod.name, len(pod.claims), pod.arrival) for pod in pods] == [
        ("a", 0, None),
        ("b", 1, None),
        ("c", 0, None),
    ]


def test_rows_that_are_alike_share_one_claim_spec() -> None:
    first, second = pods_of("name,class,capacity\na,gpu,milli=1\nb,gpu,milli=1\n")
    assert first.claims[0].spec is second.claims[0].spec
    assert first.claims[0].metadata.name != second.claims[0].metadata.name


class Case(NamedTuple):
    name: str
    want: list[str]
    text: str


UNCOUNTABLE = "is more than kube-scheduler can count"
NO_QUANTITY = "is not a quantity such as 500m, 4 or 16Gi"

CASES = (
    Case(
        "no text",
        [f"the CSV: empty; the first line names the columns, of {', '.join(COLUMNS)}"],
        "",
    ),
    Case(
        "another table",
        [
            f'line 1: "pod" is not a column, of {", ".join(COLUMNS)}',
            "line 1: there is no column name",
        ],
        "pod,cpu\na,1\n",
    ),
    Case("a column twice", ['line 1: the column "cpu" is named twice'], "name,cpu,cpu\n"),
    Case("no name", ["line 2, name: empty"], "name,cpu\n,1\n"),
    Case("a name twice", ['line 4, name: "a" is the pod of line 2'], "name\na\nb\na\n"),
    Case("more fields than columns", ["line 2: 2 fields, and the header names 1"], "name\na,b\n"),
    Case(
        "all faults are returned",
        [
            f'line 2, cpu: "much" {NO_QUANTITY}',
            'line 2, memory: "-1Gi" is negative',
            'line 3, priority: "high" is not a whole number from -1000000000 to 1000000000',
        ],
        "name,cpu,memory,priority\na,much,-1Gi,0\nb,1,1,high\n",
    ),
    Case(
        "devices without a class",
        [
            "line 2, count: a pod without class has no devices",
            "line 2, capacity: a pod without class has no devices",
        ],
        "name,count,capacity\na,1,milli=5\n",
    ),
    Case(
        "numbers in other ways to write them",
        [
            f'line {line}, count: "{word}" is not a whole number from 1 to 32'
            for line, word in enumerate(
                ("0", "33", "1_0", "1.0", "9999999999999", "\u0663"), start=2
            )
        ],
        "name,class,count\na,g,0\nb,g,33\nc,g,1_0\nd,g,1.0\ne,g,9999999999999\nf,g,\u0663\n",
    ),
    Case(
        "capacities that are no pairs",
        [
            'line 2, capacity: "milli" is not a name and a value such as a=b',
            'line 3, capacity: "m" is named twice',
            f'line 4, capacity: "" {NO_QUANTITY}',
        ],
        "name,class,capacity\na,g,milli\nb,g,m=1;m=2\nc,g,m=\n",
    ),
    Case(
        "seconds that are none",
        [
            'line 2, arrival: "nan" is not a number of seconds',
            'line 3, arrival: "-1" is not a number of seconds',
            'line 4, departure: "1e999" is not a number of seconds',
            "line 5, departure: before the arrival",
        ],
        "name,arrival,departure\na,nan,\nb,-1,\nc,1,1e999\nd,5,4\n",
    ),
    Case(
        "amounts that kube-scheduler counts as nothing",
        [
            f'line 3, cpu: "9223372036854776" {UNCOUNTABLE}, 9223372036854775807m',
            f'line 4, cpu: "1e20" {UNCOUNTABLE}, 9223372036854775807m',
            f'line 5, memory: "9223372036854775808" {UNCOUNTABLE}, 9223372036854775807 bytes',
        ],
        "name,cpu,memory\na,9223372036854775,9223372036854775807\nb,9223372036854776,\nc,1e20,\n"
        "d,,9223372036854775808\n",
    ),
    Case("a quote that is open", ["line 2: not CSV: unexpected end of data"], 'name\n"a\n'),
    Case(
        "a field that is too long",
        [f"line 2, selector: more than {MAX_FIELD} characters"],
        f"name,class,selector\na,g,{'x' * (MAX_FIELD + 1)}\n",
    ),
    Case(
        "a value that is long is cut",
        [f'line 2, cpu: "{"9" * 40}..." {NO_QUANTITY}'],
        f"name,cpu\na,{'9' * 500}\n",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_faults(case: Case) -> None:
    assert faults_of(case.text) == case.want


def test_a_selector_that_does_not_compile() -> None:
    (fault,) = faults_of('name,class,selector\na,gpu,device.driver ==\nb,gpu,"true"\n')
    assert fault.startswith("line 2, selector: CEL: ")


def test_a_table_of_another_kind_does_not_return_a_fault_for_every_field() -> None:
    text = "name,cpu\n" + "".join(f"p{number},no\n" for number in range(10 * MAX_FAULTS))
    assert len(faults_of(text)) == MAX_FAULTS


@pytest.mark.parametrize(
    "text", ["\x00", "name\n\x00", "name,cpu\n" + '"' * 1001, "name\n" * 3, ",\n,"]
)
def test_hostile_texts_have_an_answer(text: str) -> None:
    read_pods(text)


def test_a_header_of_many_columns_is_read_at_once() -> None:
    """A file that is no CSV of pods may have any number of commas; the square of this one takes a minute."""
    header = ",".join(f"c{number}" for number in range(100_000))

    assert len(faults_of(f"{header}\n")) == MAX_FAULTS
