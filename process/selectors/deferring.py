"""The engine of one attempt: it reads cached answers, and collects the questions without one."""

from collections.abc import Sequence
from typing import Final

from kube.cel.compile import COST_PER_STEP
from kube.cel.device import NamedDevice
from kube.cel.engine import Names
from kube.cel.library import Environment
from kube.cel.projection import encode_projection
from kube.cel.scope import AnswersPending, BudgetSpent, current_scope
from kube.errors import CelError, SelectorTooCostly
from process.selectors.answers import AnswerStore, ExpressionAnswers, digest
from process.selectors.protocol import MAX_PROJECTION_BYTES, Fault

MAX_NAMED_BYTES: Final = 4 * MAX_PROJECTION_BYTES
"""Projections about which one attempt asks at once; more come with the next one."""
QUESTION_BYTES: Final = 1024
"""Memory of an expression that is asked about, roughly."""
PROJECTION_BYTES: Final = 50
"""Memory of a projection beside its bytes, roughly."""
STEPS_PER_READ: Final = 2
"""Steps to look up a verdict that is kept here."""
STEPS_PER_CALL: Final = 30
"""Steps to have the worker asked, whatever it takes itself."""


class Demand:
    """The questions that the worker must answer before an attempt can be decided.

    Attributes:
        questions: Expression and environment to the projections of devices; none to compile it only.
    """

    def __init__(self) -> None:
        """Begin without a question."""
        self.questions: dict[tuple[str, Environment], dict[bytes, None]] = {}
        self._bytes = 0

    @property
    def has_room(self) -> bool:
        """True if it takes further projections."""
        return self._bytes < MAX_NAMED_BYTES

    @property
    def size(self) -> int:
        """The bytes that it takes while it waits, roughly."""
        count = sum(map(len, self.questions.values()))
        return self._bytes + PROJECTION_BYTES * count + QUESTION_BYTES * len(self.questions)

    def add(
        self, expression: str, environment: Environment, projections: Sequence[bytes] = ()
    ) -> None:
        """Add an expression, or devices for it, as far as there is room."""
        known_projections = self.questions.setdefault((expression, environment), {})
        for projection in projections:
            if not self.has_room:
                return
            if projection not in known_projections:
                known_projections[projection] = None
                self._bytes += len(projection)


class DeferringEngine:
    """A `SelectorEngine` for one attempt that collects the questions without a cached answer.

    Attributes:
        demand: The questions to answer before the attempt is made again.
    """

    def __init__(self, store: AnswerStore, *, charges_demand: bool = False) -> None:
        """Begin without a demand; `WorkerEngine.deferring` is the public way.

        Args:
            charges_demand: The meter in force bounds what is asked of the worker, too.
        """
        self._store = store
        self._charges_demand = charges_demand
        self.demand = Demand()

    def compile(self, expression: str, environment: Environment) -> Names:
        """Return the names that a selector reads; see `SelectorEngine`."""
        answers = self._find(expression, environment)
        if isinstance(answers.names, Fault):
            raise answers.names.error()
        return answers.names

    def verdicts(
        self, expression: str, environment: Environment, devices: Sequence[NamedDevice]
    ) -> list[bool | CelError]:
        """Return the verdicts that are known; see `SelectorEngine`."""
        try:
            answers = self._find(expression, environment)
        except SelectorTooCostly as stop_reason:
            return [stop_reason.with_traceback(None)] * len(devices)
        current_scope().meter.charge(1 + STEPS_PER_READ * len(devices))
        projections = [
            encode_projection(device.driver, device.device, answers.attributes, answers.capacities)
            for device in devices
        ]
        verdicts: list[bool | CelError] = []
        missing: list[bytes] = []
        for projection in projections:
            verdict = answers.verdicts.get(projection)
            if verdict is None:
                missing.append(projection)
            else:
                verdicts.append(verdict.error() if isinstance(verdict, Fault) else verdict)
        if missing:
            self._charge(answers.names, len(missing))
            raise self._pending(expression, environment, missing)
        return verdicts

    def _charge(self, names: Names | Fault, count: int) -> None:
        """Charge evaluations that are asked for.

        Raises:
            BudgetSpent: They are more than the budget has left.
        """
        if self._charges_demand and isinstance(names, Names):
            meter, steps = current_scope().meter, count * (1 + names.charge // COST_PER_STEP)
            if steps > meter.left:
                raise BudgetSpent("the evaluation of selectors takes more than the answer may")
            meter.charge(STEPS_PER_CALL + steps)

    def _find(self, expression: str, environment: Environment) -> ExpressionAnswers:
        """Return the answers about an expression.

        Raises:
            SelectorTooCostly: It was stopped.
            AnswersPending: Nothing is known.
        """
        key = digest(expression, environment)
        stop_reason = self._store.stop_reason(key)
        if stop_reason is not None:
            raise stop_reason
        scope = current_scope()
        answers = self._store.find(key, scope.tenant, scope.question)
        if answers is None:
            raise self._pending(expression, environment)
        return answers

    def _pending(
        self, expression: str, environment: Environment, missing: Sequence[bytes] = ()
    ) -> AnswersPending:
        self.demand.add(expression, environment, missing)
        return AnswersPending(has_room=self.demand.has_room)
