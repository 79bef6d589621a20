"""Work is planned in threads, where that of files keeps none of texts waiting."""

import asyncio
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")
from clearformer.serve.asking import A_FILE, LITTLE_TEXT, Chosen, submit
from clearformer.serve.limits import Limits
from clearformer.serve.work import Translate

N = 40  # more than the threads of asyncio


def test_texts_do_not_wait_until_images_are_decoded() -> None:
    is_decoded = Event()

    class Engine:
        """`submit` of work with two texts takes as long as an image to decode."""

        def submit(self, work: Translate, timeout: float) -> str:
            if len(work.texts) == 2:
                assert is_decoded.wait(60)
            return f"ticket of {len(work.texts)}"

    desk = SimpleNamespace(pressure=SimpleNamespace(check=lambda: None), limits=Limits(), store=None)
    request: Any = SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace(desk=desk)))
    opened: Any = SimpleNamespace(engine=Engine())
    chosen = Chosen(opened, None, "any")

    async def ask() -> list[Any]:
        files = [asyncio.create_task(submit(request, chosen, Translate(["a", "b"]), A_FILE)) for _ in range(N)]
        await asyncio.sleep(0)  # they have begun
        try:
            first = await asyncio.wait_for(submit(request, chosen, Translate(["a"]), LITTLE_TEXT + 1), 30)
        finally:
            is_decoded.set()
        return [first, *await asyncio.gather(*files)]

    assert asyncio.run(ask()) == ["ticket of 1", *["ticket of 2"] * N]
