"""What is said of foreign text fits a message."""

from webhook.findings import MAX_KEY_LENGTH, amount_path


def test_a_key_that_is_no_resource_name_does_not_fill_the_message() -> None:
    path = amount_path("spec.containers[0]", "limits", "nvidia.com/mig-" + "\n" * 10_000)

    assert path.isprintable()
    assert len(path) < 3 * MAX_KEY_LENGTH


def test_the_longest_resource_name_stands_whole() -> None:
    longest = f"{'d' * 253}/{'n' * 63}"

    assert amount_path("a", "limits", longest) == f"a.resources.limits[{longest}]"
