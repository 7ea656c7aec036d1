"""Where the training is: phases and steps from the boundaries that were seen. Knows no torch."""

from __future__ import annotations

from collections import deque
from typing import Optional

#: The phase that begins at each boundary. A forward ends where the next boundary is: nothing is hooked at its end.
BEGINS = {
    "forward_start": "forward",
    "evaluation_start": "evaluation",
    "backward_start": "backward",
    "backward_end": "between",
    "optimizer_start": "optimizer",
    "optimizer_end": "between",
}
#: Optimizer steps over which the members of a cycle are learned.
_CYCLE_WINDOW = 16
_BACKWARDS_WITHOUT_OPTIMIZER = 64
#: So many forwards with gradients may come before the first backward pass: of several roots, or of one that is called
#: several times in a step. Only a program that has made more does not train.
_FORWARDS_WITHOUT_BACKWARD = 16


class Phases:
    """Turns boundaries into a phase and a step count.

    A step ends with the optimizer's; with the last one of a cycle where several alternate; with the backward pass
    where optimizers step inside it or there is none; with the next root forward where nothing is ever optimised;
    and only where the program says so once it has (`explicit_step`).

    In a program that trains, a root's forward without gradients is evaluation, and no part of the step's count. Only
    where backward runs it again, with gradients (reentrant activation checkpointing of a root), it is a forward.
    """

    def __init__(self, now_ns: int) -> None:
        self.phase = "startup"
        self.since_ns = now_ns
        self.step = 0
        self.step_since_ns: Optional[int] = None
        self.last_step_ns: Optional[int] = None
        self.ended = "startup"  # the phase that ended at the latest boundary
        self.begun_by = ""  # the latest boundary
        self.depth = 0  # of backward passes within backward passes
        self._stepped_inside = False
        self._evaluating = False  # an optimizer's step has begun, which may evaluate the model (a closure)
        self._recent: deque[int] = deque(maxlen=_CYCLE_WINDOW)
        self._stepped: set[int] = set()
        self._only: Optional[int] = None  # the one optimizer of the whole window
        self._explicit = False
        self.trains = False  # whether a backward pass was ever seen
        self._optimizes = False
        self._forward_seen = False
        self._untold = 0  # forwards with gradients that were no steps so far
        self._untold_since_ns: Optional[int] = None  # the latest of them
        self._builds = False  # the latest forward had gradients
        #: Since the latest backward pass: whether a root's forward had gradients, None where there was none at all.
        self._graph: Optional[bool] = None
        self._unseen = False  # the backward pass under way goes through forwards that ran without gradients
        self._recomputes = False  # such forwards are the training's own, run again inside backward
        self._backwards = 0
        self._rules = {kind: getattr(self, f"_{kind}") for kind in BEGINS}

    def boundary(self, kind: str, now_ns: int, optimizer: int = 0) -> Optional[bool]:
        """Notes a boundary; True where a step has just ended, None where it is inside another pass and no boundary.

        `optimizer` tells optimizers apart.
        """
        self._builds = kind == "forward_start"
        if kind == "forward_start":
            self._graph = self._graph if self.depth else True
        elif kind == "evaluation_start":
            self._graph = self._graph if self.depth else bool(self._graph)
            if self._recomputes or not self.trains:
                kind = "forward_start"
        ended = self.phase
        finished: Optional[bool] = self._rules[kind](now_ns, optimizer)
        if finished is None:
            return None
        self.ended, self.begun_by = ended, kind
        self.phase, self.since_ns = self.after_backward if kind == "backward_end" else BEGINS[kind], now_ns
        finished = finished and not self._explicit
        if finished:
            self._finish(now_ns)
        return finished

    def _forward_start(self, now_ns: int, _optimizer: int) -> Optional[bool]:
        if self.depth:  # recomputation inside backward
            self._recomputes = self._recomputes or self._unseen
            return None
        if self.phase == "forward" and self.trains:  # the next root of several, or torch asking twice
            return None
        again, self._forward_seen = self._forward_seen, True
        if self.step_since_ns is None:
            self.step_since_ns = now_ns
        if self.trains or not again:
            return False
        if self._untold >= _FORWARDS_WITHOUT_BACKWARD or not self._builds:
            return True
        self._untold += 1
        if self._untold == _FORWARDS_WITHOUT_BACKWARD:
            # They were steps after all, and this is the last of them.
            self.step, self.step_since_ns = self.step + self._untold - 1, self._untold_since_ns
            return True
        self._untold_since_ns = now_ns
        return False

    def _evaluation_start(self, _now_ns: int, _optimizer: int) -> Optional[bool]:
        # Whatever step is under way goes on after it.
        return None if self.depth or self.phase == "evaluation" else False

    def _backward_start(self, _now_ns: int, _optimizer: int) -> Optional[bool]:
        if not self.trains:
            # What was counted before were forwards of a program that did not seem to train.
            self.trains, self.step = True, 0
        self.depth += 1
        if self.depth > 1:
            return None
        self._unseen, self._graph = self._graph is False, None
        return False

    def _backward_end(self, _now_ns: int, _optimizer: int) -> Optional[bool]:
        self.depth = max(0, self.depth - 1)
        if self.depth:
            return None
        inside, self._stepped_inside = self._stepped_inside, False
        if self._optimizes and not inside:
            return False
        # The first backward passes of a program come before its first optimizer step, several of them where
        # gradients are accumulated: only a program that has made many without one has none.
        self._backwards += 1
        return inside or self._backwards > _BACKWARDS_WITHOUT_OPTIMIZER

    @property
    def after_backward(self) -> str:
        """The phase that begins where the backward pass ends that is under way, or was last."""
        return "optimizer" if self._evaluating else "between"

    def _optimizer_start(self, _now_ns: int, _optimizer: int) -> Optional[bool]:
        self._evaluating = self._evaluating or not self.depth
        return None if self.depth else False

    def _optimizer_end(self, _now_ns: int, optimizer: int) -> Optional[bool]:
        self.trains = self._optimizes = True
        if self.depth:
            self._stepped_inside = True
            return None
        self._evaluating = False
        self._recent.append(optimizer)
        self._stepped.add(optimizer)
        alone = len(self._recent) == _CYCLE_WINDOW and len(set(self._recent)) == 1
        self._only = optimizer if alone else None
        if not self._stepped.issuperset(self._recent):
            return False
        self._stepped.clear()
        return True

    def regular(self) -> tuple[object, ...]:
        """All that decides what the next boundary means; where it is the same after a step, the step was regular."""
        recent, stepped = tuple(self._recent), frozenset(self._stepped)
        flags = (
            *(self._explicit, self.trains, self._optimizes, self._forward_seen, self._stepped_inside),
            *(self._graph, self._unseen, self._recomputes, self._evaluating, self._untold),
        )
        return self.phase, self.ended, self.begun_by, self.depth, recent, stepped, flags, self._backwards

    def repeat(self, count: int, last_but_one_ns: Optional[int], last_ns: int) -> None:
        """`count` more steps like the last regular one have ended, the last two at these instants."""
        self.step += count - 1
        self.step_since_ns = last_but_one_ns
        self._finish(last_ns)
        self.since_ns = last_ns

    def lose_sight(self) -> None:
        """Boundaries may have gone unseen since the latest one: the phase is unknown until the next."""
        self.phase = ""

    @property
    def forward_seen(self) -> bool:
        """Whether a forward was ever seen that was no evaluation."""
        return self._forward_seen

    @property
    def optimizes(self) -> bool:
        """Whether an optimizer was ever seen to step."""
        return self._optimizes

    def follow_another(self) -> None:
        """What comes next is of another thread than before."""
        self.depth = 0
        self.lose_sight()

    @property
    def only(self) -> Optional[int]:
        """The optimizer that has made the latest steps; None where there were several."""
        return self._only

    @property
    def explicit(self) -> bool:
        """Whether steps end where the program says so, and nowhere else."""
        return self._explicit

    def explicit_step(self, now_ns: int) -> None:
        """The program says that a step has ended; from now on only that counts."""
        self._explicit = True
        self._finish(now_ns)

    def _finish(self, now_ns: int) -> None:
        self.step += 1
        if self.step_since_ns is not None:
            self.last_step_ns = now_ns - self.step_since_ns
        self.step_since_ns = now_ns
