"""For random histories: the operator works, or dies at any step of its work."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule


class OperatorRules(RuleBasedStateMachine):
    """Subclasses say what it works on."""

    def reconcile(self, stop_after: int = 1000) -> object:
        """The operator works until so many steps are done."""
        raise NotImplementedError

    @rule()
    def the_operator_works(self) -> None:
        self.reconcile()

    @rule(steps=st.integers(0, 6))
    def the_operator_dies_in_between(self, steps: int) -> None:
        self.reconcile(stop_after=steps)
