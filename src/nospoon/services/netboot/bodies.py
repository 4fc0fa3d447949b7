"""What probes send: records, of bounded size."""

from __future__ import annotations

from starlette.requests import ClientDisconnect, Request

MAX_REPORT = 256 << 10
TOO_LARGE = 413


async def body_of(request: Request) -> bytes | None:
    """None for one that is larger than any record, b"" for half of one."""
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_REPORT:
                return None
    except ClientDisconnect:
        return b""
    return body
