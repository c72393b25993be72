"""The parts of one leadership with the evaluation of rules, apart for those that must not need CEL."""

from clusterstate.evaluator import RuleEvaluator
from controllers.model.parts import Parts


class EvaluatingParts(Parts, frozen=True, kw_only=True):
    """The parts of one leadership, with the evaluation of rules.

    Attributes:
        evaluator: Evaluates rules against the cluster.
        identity: The holder of the Lease, by which writes are fenced.
    """

    evaluator: RuleEvaluator
    identity: str
