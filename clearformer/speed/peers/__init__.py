"""Other libraries on the same work. Each function runs in a separate process, by `worker.py`."""
