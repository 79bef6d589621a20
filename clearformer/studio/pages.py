"""Mount the studio's pages on a server: plain files, which the browser runs as they are."""

from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles

STATIC = Path(str(files("clearformer") / "studio" / "static"))


class FreshFiles(StaticFiles):
    """Files that the browser asks for again whenever a page is opened, so that no old version is run."""

    def file_response(self, *arguments, **options) -> Response:  # type: ignore[no-untyped-def]
        response = super().file_response(*arguments, **options)
        response.headers["cache-control"] = "no-cache"
        return response


def mount_pages(app: FastAPI) -> FastAPI:
    """Serve the studio at `/` and its files below `/static/`."""

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-store"})

    app.mount("/static", FreshFiles(directory=STATIC), name="static")
    return app
