"""Which texts leave the queue of an engine: those for which there is room, here or in a worker process.

The engines of a server share their memory (budget.py). Each reports to the others the most that its texts may need.
"""

from collections.abc import Iterable, Iterator

from clearformer.serve.budget import Budget, Holder
from clearformer.serve.crews import Crews
from clearformer.serve.scheduler import Load, Scheduler
from clearformer.serve.texts import Text
from clearformer.serve.waiting import Waiting


class Admission:
    """`holder` is the engine, as the other engines of the budget know it."""

    def __init__(self, holder: Holder, budget: Budget, waiting: Waiting, scheduler: Scheduler, crews: Crews) -> None:
        self.holder, self.budget, self.waiting, self.scheduler, self.crews = holder, budget, waiting, scheduler, crews

    def admit(self, now: float) -> Iterator[Text]:
        """Remove the texts from the queue for which there is room, in turn: here, or in a worker process.

        The scheduler is asked once per turn, since it counts the texts that it admits only when they have joined.
        """
        new: list[Text] | None = None
        self.account(self.scheduler)
        while (text := self.waiting.first()) is not None:
            left = self.left if self.budget.is_shared else None
            if text.is_for_crew:
                if (left is not None and text.n_bytes > left) or not text.crew.take(text):
                    break
                self.waiting.pop()
                text.ticket.started = text.ticket.started or now
                self.account()
            elif new is not None:
                break
            else:
                here = None if left is None else left + self.budget.used[self.holder].get("here", 0)
                new = list(self.scheduler.admit(self.waiting, here))
                self.account([*self.scheduler, *(text for text in new if text.joins)])
                yield from new
        lacks = text is not None and text.n_bytes > self.left
        self.budget.need(self.holder, text.n_bytes if text is not None and lacks else 0)

    @property
    def left(self) -> int:
        """Bytes of the budget that nobody uses or waits for."""
        return self.budget.left(self.holder) - self.budget.used_by(self.holder)

    def account(self, here: Iterable[Text] | None = None) -> None:
        """Report how much memory the texts of the crews take, and those `here` if they are given.

        A report is taken back even if there is no other engine any more: one may come.
        """
        if self.budget.is_shared or self.budget.used_by(self.holder):
            with self.budget.lock:
                for crew in self.crews:
                    self.budget.use(self.holder, crew, crew.n_bytes)
                if here is not None:
                    self.budget.use(self.holder, "here", Load(self.scheduler.room, here).n_bytes)

    def tell(self) -> None:
        """Notify the engines that wait for memory. The caller must not hold a lock of its own."""
        self.budget.tell(self.holder)
