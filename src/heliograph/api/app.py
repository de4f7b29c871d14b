"""The application: every route, one error body, OpenAPI. Driver only."""

from __future__ import annotations

from typing import Any, Final

from fastapi import Depends, FastAPI

from heliograph import __version__
from heliograph.api import asking, deciding, metrics, reading, recovery, remembered, watching
from heliograph.api.page import routes as page
from heliograph.api.problems import ErrorBody, answer_with_problems
from heliograph.api.state import ApiState, only_known_parameters

_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": ErrorBody, "description": description}
    for status, description in (
        (400, "The request is not one of this route."),
        (401, "A token is missing or wrong."),
        (403, "The token does not have the role."),
        (404, "There is no such flow, lane or operation."),
        (409, "Something stands in the way; nothing was changed."),
        (412, "The flow has changed since it was read."),
        (413, "The body is too large."),
        (415, "The body is not JSON."),
        (429, "Too many wrong tokens from this address."),
        ("default", "Any other error has the same body."),
    )
}


def make_app(state: ApiState) -> FastAPI:
    app = FastAPI(
        title="Heliograph",
        summary="A running mirror: what it does, what is decided about it, failover and failback.",
        version=__version__,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        dependencies=[Depends(only_known_parameters)],
        responses=_ERRORS,
    )
    app.state.api = state
    app.state.page = page.page_state(state)
    every = list(app.routes)
    parts = (reading, remembered, asking, watching, deciding, recovery, metrics, page)
    for routes in (part.routes for part in parts):
        app.include_router(routes)
        every += routes.routes
    answer_with_problems(app, every)
    return app
