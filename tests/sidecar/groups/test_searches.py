"""The searches of groups that are kept, of each namespace some."""

from allocator.cluster.cluster import Cluster
from allocator.groups.decide import GroupSearch
from allocator.groups.model import GroupQuestion
from allocator.model.plan import Budget
from allocator.search.attempt import AllocatorOptions
from sidecar.groups.searches import MAX_SEARCHES, GroupSearches, SearchKey
from sidecar.model.protocol import GroupReference

EMPTY = Cluster(slices=(), nodes=(), claims=(), classes={}, options=AllocatorOptions())
KEY = SearchKey(1, GroupQuestion(members=(), min_count=0), ((), ()))


def kept(searches: GroupSearches, cluster: Cluster, uid: str, namespace: str) -> GroupSearch:
    search = GroupSearch(cluster, KEY.question)
    searches.keep(GroupReference(uid=uid, namespace=namespace), cluster, KEY, search)
    return search


def test_undecided_groups_of_one_namespace_leave_the_search_of_another() -> None:
    searches, cluster = GroupSearches(), EMPTY
    honest = kept(searches, cluster, "honest", "team")
    others = [kept(searches, cluster, f"other-{n}", "others") for n in range(MAX_SEARCHES)]

    assert searches.take("honest", cluster, KEY) is honest
    assert searches.take("other-0", cluster, KEY) is not others[0]
    assert searches.take("other-1", cluster, KEY) is others[1]


def test_groups_that_take_long_of_one_namespace_leave_the_budget_of_another() -> None:
    searches, budget = GroupSearches(), Budget(steps=1000)
    searches.shorten(GroupReference(uid="honest", namespace="team"), budget)
    for number in range(MAX_SEARCHES):
        searches.shorten(GroupReference(uid=f"other-{number}", namespace="others"), budget)

    assert searches.budget("honest", budget) == Budget(steps=500)
    assert searches.budget("other-0", budget) == budget
