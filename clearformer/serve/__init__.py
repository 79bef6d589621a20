"""The HTTP server: models and runs of this machine, as JSON for any client. The studio is one of its clients."""
