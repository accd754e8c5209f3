"""A random workload of transactions on two tables of PostgreSQL, drawn from a seed."""

from __future__ import annotations

import random
from typing import Any

#: Larger than what a row holds in its page: the value lies apart, and an update that leaves it alone does not send it.
LARGE = 9_000
TABLES = ("orders", "lines")


class Workload:
    """Statements that PostgreSQL accepts, whatever they were drawn from."""

    def __init__(self, seed: int, connection: Any, *, full_identity: bool, alters: bool = True) -> None:
        self.random = random.Random(seed)
        self.connection = connection
        self.connection.autocommit = False
        self.full_identity = full_identity
        self.alters = alters
        self.added = 0

    def create(self) -> None:
        """Make the tables, with some rows."""
        for table in TABLES:
            self.run(
                f"CREATE TABLE {table} (id int PRIMARY KEY, note text, big text, price numeric(12,2)) WITH (fillfactor = 10)"
            )
            self.run(f"ALTER TABLE {table} ALTER big SET STORAGE EXTERNAL")
            if self.full_identity:
                self.run(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
        for _ in range(self.random.randrange(120)):
            self.insert(self.random.choice(TABLES))
        self.connection.commit()

    def run(self, statement: str, *values: object) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, values or None)

    def transaction(self) -> None:
        """Commit some statements, or take them back."""
        for _ in range(self.random.choice((1, 1, 2, 5, 20))):
            self.statement()
        if self.random.random() < 0.1:
            self.connection.rollback()
        else:
            self.connection.commit()

    def statement(self) -> None:
        table = self.random.choice(TABLES)
        chosen = self.random.random()
        if chosen < 0.3:
            self.insert(table)
        elif chosen < 0.5:
            self.run(f"UPDATE {table} SET note = %s WHERE id = %s", self.text(), self.key())
        elif chosen < 0.6:
            self.run(f"UPDATE {table} SET big = %s, price = price + 1 WHERE id = %s", self.large(), self.key())
        elif chosen < 0.75:
            self.run(
                f"UPDATE {table} SET id = %s WHERE id = %s AND NOT EXISTS (SELECT 1 FROM {table} WHERE id = %s)",
                *(new := self.key(), self.key(), new),
            )
        elif chosen < 0.9:
            self.run(f"DELETE FROM {table} WHERE id = %s", self.key())
        elif chosen < 0.96:
            self.taken_back(table)
        elif self.alters and chosen > 0.985:
            self.alter(table)
        else:
            self.run(f"UPDATE {table} SET price = price / 2 + 3 WHERE id %% 5 = %s", self.random.randrange(5))

    def insert(self, table: str) -> None:
        self.run(
            f"INSERT INTO {table} (id, note, big, price) VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET note = EXCLUDED.note",
            *(self.key(), self.text(), self.large(), self.random.randrange(10_000) / 100),
        )

    def taken_back(self, table: str) -> None:
        self.run("SAVEPOINT here")
        self.insert(table)
        self.run(f"DELETE FROM {table} WHERE id = %s", self.key())
        self.run("ROLLBACK TO SAVEPOINT here" if self.random.random() < 0.5 else "RELEASE SAVEPOINT here")

    def alter(self, table: str) -> None:
        self.added += 1
        if self.random.random() < 0.5:
            default = self.random.choice(("int DEFAULT 7", "text NOT NULL DEFAULT 'größe'", "numeric(9,2) DEFAULT 1.5"))
            self.run(f"ALTER TABLE {table} ADD COLUMN more{self.added} {default}")
            self.run(f"UPDATE {table} SET note = 'after' WHERE id = %s", self.key())
            return
        self.run(f"ALTER TABLE {table} ADD COLUMN more{self.added} int")
        self.run(
            f"UPDATE {table} SET more{self.added} = id + %s", self.added
        )  # all rows have the new column from the log

    def key(self) -> int:
        return self.random.randrange(60)

    def text(self) -> str | None:
        return self.random.choice((None, "", "plain", "quoted \" and ' and ,", "lines\r\nof\ttext", "größe 🦀", "\\N"))

    def large(self) -> str:
        return self.random.choice("abcdef") * self.random.choice((1, LARGE))
