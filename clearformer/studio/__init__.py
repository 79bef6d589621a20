"""The studio: pages in the browser that use the server's HTTP API like any other client. They compute nothing."""
