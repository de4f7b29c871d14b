"""Answers as JSON with their version. Runs anywhere."""

from __future__ import annotations

from typing import Final

from fastapi import Response
from pydantic import BaseModel

from heliograph.api.etags import etag_of_bytes

ETAG: Final = {"headers": {"ETag": {"schema": {"type": "string"}, "description": "For If-Match."}}}
LOCATION: Final = {
    "headers": {"Location": {"schema": {"type": "string"}, "description": "Where it is seen."}}
}
"""Of responses, for their description."""


def json_of(body: BaseModel, tag: str | None = None) -> Response:
    """May be called on a thread."""
    return json_of_bytes(body.model_dump_json().encode(), tag)


def json_of_bytes(body: bytes, tag: str | None = None) -> Response:
    headers = {"ETag": tag or etag_of_bytes(body)}
    return Response(body, media_type="application/json", headers=headers)
