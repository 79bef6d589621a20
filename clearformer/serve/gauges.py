"""The measurements that are read when they are asked for: requests, queues, memory."""

from collections.abc import Callable, Mapping

from clearformer.memory import peak_mb
from clearformer.serve.metrics import Labels, Metrics
from clearformer.serve.pressure import free_memory, resident_memory
from clearformer.serve.store import Opened, Store
from clearformer.serve.trace import Traffic


def add_gauges(metrics: Metrics, store: Store, traffic: Traffic) -> None:
    def of_models(read: Callable[[Opened], float]) -> Callable[[], Mapping[Labels, float]]:
        return lambda: {(("model_name", name),): read(opened) for name, opened in [*store.opened.items()]}

    metrics.add_gauge(
        "num_requests_running", "Texts that are being decoded.", of_models(lambda opened: opened.engine.n_running)
    )
    metrics.add_gauge("num_requests_waiting", "Texts in the queue.", of_models(lambda opened: opened.engine.n_waiting))
    metrics.add_gauge(
        "engine_is_stuck", "1 if work makes no progress.", of_models(lambda opened: float(opened.engine.is_stuck))
    )
    metrics.add_gauge("num_workers", "Processes that decode.", of_models(lambda opened: len(opened.engine.workers)))
    metrics.add_gauge(
        "worker_resident_memory_bytes",
        "Memory of the processes that decode.",
        of_models(lambda opened: sum(map(resident_memory, opened.engine.workers))),
    )
    metrics.add_gauge("http_requests_active", "Requests that are being answered.", lambda: {(): traffic.active})
    metrics.add_gauge("resident_memory_bytes", "Memory of the process.", lambda: {(): resident_memory()})
    metrics.add_gauge("peak_memory_bytes", "Highest memory of the process.", lambda: {(): peak_mb() * 1e6})
    metrics.add_gauge("free_memory_bytes", "Memory that can still be allocated.", lambda: {(): free_memory() or 0})
