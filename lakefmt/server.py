"""A server of HTTP two-phase loads (docs/http-loads.md).

:func:`serve` starts one; ``lakefmt serve`` does on the command line. :class:`LoadService` is the same without HTTP: a function from
:class:`Request` to :class:`Reply`, for programs that have a web server already.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from lakefmt._core.loads.bodies import Request
from lakefmt._core.loads.http import AsgiLoads, HttpLimits, LoadServer, User, Users, hash_password, load_users
from lakefmt._core.loads.protocol import LoadOptions, Reply
from lakefmt._core.loads.service import LoadService

__all__ = [
    "HttpLimits",
    "LoadOptions",
    "LoadServer",
    "LoadService",
    "Reply",
    "Request",
    "User",
    "Users",
    "asgi_app",
    "hash_password",
    "load_users",
    "serve",
]


def asgi_app(
    base_path: str,
    *,
    users: Users | None = None,
    options: LoadOptions | None = None,
    limits: HttpLimits | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> AsgiLoads:
    """Return the same service as an ASGI application, for a server such as uvicorn; its lifespan events have to be on.

    Args:
        base_path: a folder or URL; tables lie at ``<base_path>/<database>/<table>``, what waits for a commit in ``.lakefmt/loads``.
        users: who may load; None: everybody, on a loopback address only.
        options: what the server allows and assumes.
        limits: threads, and the silence of a client; other limits are those of the server.
        storage_options: credentials of the store.

    Raises:
        InvalidInputError: the base path is none.

    Example:
        >>> type(asgi_app("memory://doc-asgi")).__name__
        'AsgiLoads'
    """
    return AsgiLoads(LoadService(base_path, options, storage_options=storage_options), users=users, limits=limits)


def serve(
    base_path: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8030,
    users: Users | None = None,
    tls: ssl.SSLContext | None = None,
    options: LoadOptions | None = None,
    limits: HttpLimits | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> LoadServer:
    r"""Start a server in threads of this process; its ``stop()`` ends it.

    Args:
        base_path: a folder or URL; tables lie at ``<base_path>/<database>/<table>``, what waits for a commit in ``.lakefmt/loads``.
        host: address; other than the loopback address it needs users.
        port: 0: a free one.
        users: who may load; None: everybody who reaches it.
        tls: certificate and key; None: plain HTTP.
        options: what the server allows and assumes.
        limits: what clients may take.
        storage_options: credentials of the store.

    Raises:
        StateError: another server answers for the base path.
        InvalidInputError: others than this machine could load without a password.
        OSError: the port is taken.

    Example:
        >>> import lakefmt, pyarrow as pa, urllib.request
        >>> _ = lakefmt.create_table("memory://doc-serve/shop/items", schema=pa.schema([("id", pa.int64())]), record_key="id")
        >>> server = serve("memory://doc-serve", port=0)
        >>> request = urllib.request.Request(f"{server.url}/api/shop/items/_stream_load", b"1\n2\n", method="PUT")
        >>> b'"Status": "Success"' in urllib.request.urlopen(request).read()
        True
        >>> server.stop()
    """
    service = LoadService(base_path, options, storage_options=storage_options)
    server = LoadServer(service, host, port, users=users, tls=tls, limits=limits)
    try:
        server.start()
    except BaseException:
        server.stop()
        raise
    return server
