"""The memory for caches that the engines of a process share.

    left(engine)       bytes that the others leave, less what those need that began to wait for memory earlier
    use(engine, …)     what an engine uses for a part of its texts: those that it decodes, or those of a crew
    need(engine, n)    what its next text lacks memory for; 0 if nothing

An engine admits texts with the lock held, so that two engines do not give the same memory to theirs. None waits without
end: what an engine needs is kept from those that come later, and a text that needs more than there is was refused.
"""

from collections.abc import Hashable
from threading import RLock
from typing import Protocol


class Holder(Protocol):
    """An engine: it is notified when others have freed memory that it waits for."""

    def notify(self) -> None: ...


class Budget:
    def __init__(self, n_bytes: int) -> None:
        self.bytes, self.lock = n_bytes, RLock()
        self.used: dict[Holder, dict[Hashable, int]] = {}
        self.needs: dict[Holder, int] = {}  # in the order in which they began to wait

    @property
    def is_shared(self) -> bool:
        return len(self.used) > 1

    def join(self, holder: Holder) -> None:
        with self.lock:
            self.used[holder] = {}

    def leave(self, holder: Holder) -> None:
        with self.lock:
            self.used.pop(holder, None)
            self.needs.pop(holder, None)
        self.tell(holder)

    def left(self, holder: Holder) -> int:
        with self.lock:
            taken = sum(sum(parts.values()) for other, parts in self.used.items() if other is not holder)
            for other, need in self.needs.items():
                if other is holder:
                    break
                taken += need
            return self.bytes - taken

    def used_by(self, holder: Holder) -> int:
        with self.lock:
            return sum(self.used.get(holder, {}).values())

    def use(self, holder: Holder, part: Hashable, n_bytes: int) -> None:
        with self.lock:
            if holder in self.used:
                self.used[holder][part] = n_bytes
                if not n_bytes:
                    del self.used[holder][part]

    def need(self, holder: Holder, n_bytes: int) -> None:
        with self.lock:
            if n_bytes and holder in self.used:
                self.needs[holder] = n_bytes
            else:
                self.needs.pop(holder, None)

    def tell(self, holder: Holder) -> None:
        """Notify the others that wait for memory. The caller must not hold a lock of its own."""
        with self.lock:
            others = [other for other in self.needs if other is not holder]
        for other in others:
            other.notify()
