"""One task in the window."""

from __future__ import annotations

from dataclasses import dataclass

from services.inference_adapter.core.fairness import Waiting
from services.inference_adapter.core.window_events import Late, Stage, Taken


@dataclass(slots=True)
class Seat:
    """Where a task stands; times are monotonic seconds."""

    task: Taken
    place: Waiting
    taken_at: float
    stage: Stage = "waiting"

    @property
    def by_priority(self) -> tuple[int, int, str]:
        """Place among all that wait."""
        return (*self.place.order, self.task.id)

    def late(self, now: float) -> Late | None:
        """Why it must leave, if it must."""
        if now >= self.task.deadline_at:
            return "deadline"
        if self.stage == "waiting" and now >= self.task.expires_at:
            return "queue_timeout"
        return None

    def may_go_back(self, now: float, urgent_from: int, degrade_s: float | None) -> bool:
        """It has waited so long that any worker of its model may take it."""
        return (
            degrade_s is not None
            and self.stage == "waiting"
            and self.task.movable
            and self.task.priority < urgent_from
            and now - self.taken_at >= degrade_s
        )

    def too_late_to_start(self, now: float) -> Late | None:
        """The same for one whose turn it is: its first token must come in time."""
        late = self.late(now)
        if late is None and now + self.task.first_token_s >= self.task.deadline_at:
            return "deadline"
        return late
