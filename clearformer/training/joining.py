"""The processes of one start find each other in a store that still contains the keys of processes that have died.

torchrun keeps one store for all restarts, and does not separate their keys (pytorch issue 135712). Without this file, a
restarted process reads the address of one that was killed, and its connection is refused. The number of restarts cannot
separate them, because each node counts its own. So the first rank draws a name, and gives it to those who ask now:

    rank r    writes asks/r = question, drawn at random; waits for answers/question = name; writes here/name/r
    rank 0    answers each new question, until here/name/r exists for every r

torchrun ends all processes before it starts new ones: keys can be old, but nobody answers for the dead.
"""

import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from clearformer.errors import MachineError

POLLS = 0.02  # seconds between two looks at the store; a signal is answered in between
LONGEST = 300.0  # seconds that processes may start one after the other, for example while a disk is slow


def join_name(store: Any, rank: int, size: int, seconds: float = LONGEST) -> str:
    """Return a name that all processes of this start share, and no process before them. All ranks call this together.

    `store` is a store of torch.distributed that all ranks share.
    """
    return give_name(store, size, seconds) if rank == 0 else ask_name(store, rank, seconds)


def give_name(store: Any, size: int, seconds: float) -> str:
    name, answered = uuid4().hex, dict.fromkeys(range(1, size), "")
    for _ in polls(seconds):
        answered = {r: question for r, question in answered.items() if not store.check([f"here/{name}/{r}"])}
        if not answered:
            break
        for rank in answered:
            if store.check([f"asks/{rank}"]) and (question := store.get(f"asks/{rank}").decode()) != answered[rank]:
                store.set(f"answers/{question}", name)
                answered[rank] = question
    return name


def ask_name(store: Any, rank: int, seconds: float) -> str:
    question = uuid4().hex
    store.set(f"asks/{rank}", question)
    for _ in polls(seconds):
        if store.check([f"answers/{question}"]):
            break
    name: str = store.get(f"answers/{question}").decode()
    store.set(f"here/{name}/{rank}", "here")
    return name


def polls(seconds: float) -> Iterator[None]:
    """Yield every few milliseconds, and raise after this many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(POLLS)
    raise MachineError(
        f"the processes of this run have not all started within {seconds:g} s",
        "start them at the same time; the messages of the others say why they are missing",
    )
