"""Servers with TLS: a follower trusts the authority that it is told, and never goes on without."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakefmt
from lakefmt.cdc import follow
from lakefmt.errors import InvalidInputError, SourceRefused
from tests.judges.mariadb import READER, READER_PASSWORD, MariaServer, mariadb_server
from tests.judges.postgres import PostgresServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("postgres"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
]
QUICK: dict[str, Any] = {"until_now": True, "settings": {"lakefmt.durability": "none"}}
MADE = ("create table t (id int primary key)", "insert into t values (1), (2)")


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def authority(folder: Path, name: str) -> Path:
    """Make an authority and return the file of its certificate."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    openssl(
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        2,
        "-subj",
        f"/CN={name}",
        "-keyout",
        key,
        "-out",
        certificate,
    )
    return certificate


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An authority, another one, and a server's certificate for 127.0.0.1 by the first."""
    folder = tmp_path_factory.mktemp("authorities")
    trusted, other = authority(folder, "trusted"), authority(folder, "other")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1", "utf-8")
    openssl(
        "req",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=server",
        "-keyout",
        folder / "server.key",
        "-out",
        folder / "server.csr",
    )
    signed = [
        "-CA",
        trusted,
        "-CAkey",
        trusted.with_suffix(".key"),
        "-CAcreateserial",
        "-extfile",
        folder / "names",
        "-days",
        2,
    ]
    openssl("x509", "-req", "-in", folder / "server.csr", *signed, "-out", folder / "server.pem")
    return {"trusted": trusted, "other": other, "server": folder / "server.pem", "key": folder / "server.key"}


@pytest.fixture(scope="module")
def maria_tls(authorities: dict[str, Path]) -> Iterator[MariaServer]:
    with mariadb_server(f"--ssl-cert={authorities['server']}", f"--ssl-key={authorities['key']}") as server:
        server.create_reader()
        server.execute(f"alter user {READER}@'127.0.0.1' require ssl", "create database b", "use b", *MADE)
        yield server


@pytest.fixture
def postgres_tls(postgres: PostgresServer, shop: str, authorities: dict[str, Path]) -> Iterator[PostgresServer]:
    for name in ("server", "key"):
        file = postgres.folder / "data" / f"tls-{name}.pem"
        shutil.copyfile(authorities[name], file)
        file.chmod(0o600)
        if os.geteuid() == 0:
            user = pwd.getpwnam(postgres.user)
            os.chown(file, user.pw_uid, user.pw_gid)
    settings = {"ssl_cert_file": "'tls-server.pem'", "ssl_key_file": "'tls-key.pem'", "ssl": "on"}
    postgres.execute(
        *(f"ALTER SYSTEM SET {name} = {value}" for name, value in settings.items()), "SELECT pg_reload_conf()"
    )
    postgres.execute(*MADE, database=shop)
    yield postgres
    postgres.execute(*(f"ALTER SYSTEM RESET {name}" for name in settings), "SELECT pg_reload_conf()")


def test_mariadb_is_followed_over_tls(maria_tls: MariaServer, authorities: dict[str, Path], tmp_path: Path) -> None:
    url = f"mysql://{READER}@127.0.0.1:{maria_tls.port}/b"
    follow(f"{url}?tls={authorities['trusted']}", str(tmp_path), password=READER_PASSWORD, **QUICK)
    maria_tls.execute("insert into t values (3)", database="b")
    follow(f"{url}?tls={authorities['trusted']}", str(tmp_path), password=READER_PASSWORD, **QUICK)
    assert lakefmt.open_table(tmp_path / "b" / "t").read().num_rows == 3


@pytest.mark.parametrize("tls", ["other", "true", "false"])
def test_mariadb_is_refused_where_it_is_not_trusted(
    maria_tls: MariaServer, authorities: dict[str, Path], tmp_path: Path, tls: str
) -> None:
    url = f"mysql://{READER}@127.0.0.1:{maria_tls.port}/b?tls={authorities.get(tls, tls)}"
    with pytest.raises(SourceRefused, match="Access denied" if tls == "false" else "is not trusted"):
        follow(url, str(tmp_path), password=READER_PASSWORD, **QUICK)
    assert not (tmp_path / "b").exists()


def test_a_server_of_mariadb_without_tls_is_refused(
    mariadb: MariaServer, authorities: dict[str, Path], tmp_path: Path
) -> None:
    mariadb.create_reader()  # Debian's 10.11 has no TLS unless it is given a certificate
    url = f"mysql://{READER}@127.0.0.1:{mariadb.port}/b?tls={authorities['trusted']}"
    with pytest.raises(SourceRefused, match="is not trusted"):
        follow(url, str(tmp_path), password=READER_PASSWORD, **QUICK)


@pytest.mark.parametrize("query", ["ssl-mode=REQUIRED", "tls=", "server_id=x", "sslmode=require"])
def test_what_an_address_of_mariadb_does_not_know_is_refused(query: str) -> None:
    with pytest.raises(InvalidInputError, match="the address of a source has"):
        follow(f"mysql://{READER}@127.0.0.1:1/b?{query}", "memory://tls", **QUICK)


def test_postgres_is_followed_over_tls(
    postgres_tls: PostgresServer, shop: str, authorities: dict[str, Path], tmp_path: Path
) -> None:
    url = f"postgresql://postgres@127.0.0.1:{postgres_tls.port}/{shop}?sslmode=verify-full&sslrootcert={authorities['trusted']}"
    used = "SELECT bool_and(s.ssl), count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.application_name = 'lakefmt'"
    seen: list[tuple[Any, ...]] = []
    follow(url, str(tmp_path), on_commit=lambda _: seen.extend(postgres_tls.rows(used, shop)), **QUICK)
    assert lakefmt.open_table(tmp_path / "public" / "t").read().num_rows == 2
    assert seen
    assert all(encrypted and count for encrypted, count in seen)


def test_postgres_is_refused_where_it_is_not_trusted(
    postgres_tls: PostgresServer, shop: str, authorities: dict[str, Path], tmp_path: Path
) -> None:
    url = f"postgresql://postgres@127.0.0.1:{postgres_tls.port}/{shop}?sslmode=verify-full&sslrootcert={authorities['other']}"
    with pytest.raises(SourceRefused, match="certificate verify failed"):
        follow(url, str(tmp_path), **QUICK)


def test_a_postgres_without_tls_is_refused(postgres: PostgresServer, shop: str, tmp_path: Path) -> None:
    url = f"postgresql://postgres@127.0.0.1:{postgres.port}/{shop}?sslmode=require"
    with pytest.raises(SourceRefused, match="does not support SSL"):
        follow(url, str(tmp_path), **QUICK)
