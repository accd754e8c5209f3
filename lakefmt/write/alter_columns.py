"""Alter a table's columns: a commit without files (Hudi: ALTER_SCHEMA) that gives every column an id (docs/schema.md)."""

from __future__ import annotations

from lakefmt.filegroups.table_client import TableClient
from lakefmt.values import CommitResult
from lakefmt.write.context import WritePlan, WriteRequest
from lakefmt.write.transaction import WriteTransaction

__all__ = ["plan_alteration", "run_alteration"]


def run_alteration(client: TableClient, request: WriteRequest) -> CommitResult:
    """Commit the alteration of a request.

    Raises:
        CommitConflict: another commit completed meanwhile.
        SchemaMismatch: what the alteration raises.
    """
    transaction = WriteTransaction.begin(client, request)
    with transaction.aborted_on_error():
        return transaction.commit([])


def plan_alteration(client: TableClient, request: WriteRequest) -> WritePlan:
    """Raise what the alteration of a request would raise; change nothing.

    Raises:
        SchemaMismatch: what the alteration raises.
    """
    WriteTransaction.plan_only(client, request)
    return WritePlan(None, operation=request.operation, assignments=(), replaced={}, rows=0)
