"""CDI specs of other vendors, with anything in their folder."""

from pathlib import Path

import pytest

from driver.node.vendor_specs import vendor_devices

KIND = "vendor.example.com/gpu"
SPEC = f"kind: {KIND}\ndevices: [{{name: gpu-0}}]\n"


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        "!!bool x",
        "!!timestamp x",
        "a: 2001-99-99",
        "9" * 5000,
        "devices: 1",
        "\x1b[2J",
        '{"kind": "\udcff"}',
    ],
    ids=[
        "depth",
        "a bool",
        "a time",
        "a date",
        "a number",
        "no list",
        "a control character",
        "no UTF-8",
    ],
)
def test_a_spec_that_cannot_be_read_hides_no_other(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(text.encode(errors="surrogateescape"))
    (tmp_path / "b.yaml").write_text(SPEC)

    assert vendor_devices([tmp_path], KIND) == {f"{KIND}=gpu-0"}


def test_json_and_yaml_are_read_whatever_the_name_says(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(SPEC)
    (tmp_path / "b.yaml").write_text(f'{{"kind": "{KIND}", "devices": [{{"name": "gpu-1"}}]}}')

    assert vendor_devices([tmp_path], KIND) == {f"{KIND}=gpu-0", f"{KIND}=gpu-1"}
