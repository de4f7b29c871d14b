"""The route that Prometheus scrapes. Driver only."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Response

from heliograph.api.state import Looking, State
from heliograph.config.metrics import Compat
from heliograph.metrics.exposition import (
    OPENMETRICS_TYPE,
    TEXT_TYPE,
    accepts_gzip,
    wants_openmetrics,
)

routes: Final = APIRouter()


@routes.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus' text format, or OpenMetrics where that is accepted.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
)
async def metrics(
    state: State,
    caller: Looking,
    lanes: Annotated[
        bool | None,
        Query(description="Whether every lane has series; unset is as `metrics.lanes` says."),
    ] = None,
    compat: Annotated[
        Compat | None,
        Query(description="MirrorMaker 2's names; unset is as `metrics.compat` says."),
    ] = None,
    accept: Annotated[str, Header()] = "",
    accept_encoding: Annotated[str, Header()] = "",
) -> Response:
    """Figures of the flows the caller may look at, at most some seconds old."""
    openmetrics, gzipped = wants_openmetrics(accept), accepts_gzip(accept_encoding)
    body = await state.metrics.exposed(
        state.visible(caller), lanes=lanes, compat=compat, openmetrics=openmetrics, gzipped=gzipped
    )
    headers = {"Vary": "Accept, Accept-Encoding, Authorization"}
    if gzipped:
        headers["Content-Encoding"] = "gzip"
    media_type = OPENMETRICS_TYPE if openmetrics else TEXT_TYPE
    return Response(body, media_type=media_type, headers=headers)
