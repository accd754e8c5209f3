"""The shop: its tables, what is in them at first, and what its customers do meanwhile."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

__all__ = ["TABLES", "Workload", "open_shop"]

TABLES = ("customers", "orders", "items")

_SHOP = (
    "create database shop character set utf8mb4",
    "use shop",
    "create table customers (id int primary key, name varchar(60) not null, city varchar(40), since datetime(6) not null)",
    "create table orders (id int primary key, customer int not null, state enum('new','paid','sent') not null, total decimal(10,2), "
    "changed timestamp(3) not null default current_timestamp(3) on update current_timestamp(3))",
    "create table items (order_id int, line tinyint unsigned, product varchar(40) not null, price decimal(8,2), count int unsigned, "
    "primary key (order_id, line))",
    "insert into customers select seq, concat('customer ', seq), elt(1 + seq % 4, 'Zürich', 'Lyon', 'Kraków', 'Oslo'), "
    "'2026-01-01' + interval seq minute from seq_1_to_2000",
    "insert into orders (id, customer, state, total) select seq, 1 + seq % 2000, 'sent', seq % 1000 + 0.99 from seq_1_to_10000",
    "insert into items select 1 + seq div 3, 1 + seq % 3, concat('product ', seq % 97), seq % 50 + 0.5, 1 + seq % 4 from seq_0_to_29999",
)


def open_shop(connection: Any) -> None:
    """Make the tables of the shop and fill them."""
    with connection.cursor() as cursor:
        for statement in _SHOP:
            cursor.execute(statement)


class Workload:
    """Transactions of customers, in a thread of their own, until :meth:`stop`.

    Args:
        connection: of the database, without autocommit.
        seed: of what they do.
    """

    def __init__(self, connection: Any, seed: int = 1) -> None:
        self._connection, self._random = connection, random.Random(seed)  # noqa: S311  (no secret)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shop")
        self.transactions = 0
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the transaction that runs now; raise what the thread failed with."""
        self._ended.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            with self._connection.cursor() as cursor:
                next_order = 20_000
                while not self._ended.is_set():
                    next_order += 1
                    self._transaction(cursor, next_order)
                    self._connection.commit()
                    self.transactions += 1
                    time.sleep(0.002)
        except Exception as error:  # noqa: BLE001  (told by stop)
            self.failure = error

    def _transaction(self, cursor: Any, order: int) -> None:
        customer, choice = self._random.randint(1, 2000), self._random.random()
        if choice < 0.5:
            cursor.execute(
                "insert into orders (id, customer, state, total) values (%s, %s, 'new', 0)", (order, customer)
            )
            for line in range(1, self._random.randint(2, 5)):
                price = self._random.randint(1, 9999) / 100
                cursor.execute("insert into items values (%s, %s, %s, %s, 1)", (order, line, f"product {line}", price))
            cursor.execute(
                "update orders set total = (select sum(price * count) from items where order_id = %s) where id = %s",
                (order, order),
            )
        elif choice < 0.8:
            cursor.execute("update orders set state = 'paid' where customer = %s and state = 'new'", (customer,))
        elif choice < 0.9:
            cursor.execute("delete from items where order_id = %s", (self._random.randint(1, 10_000),))
        else:
            cursor.execute("update customers set city = 'Riga', name = concat(name, ' *') where id = %s", (customer,))

    def alter(self, connection: Any) -> None:
        """Add a column, change a key, and delete a customer, while the others go on."""
        with connection.cursor() as cursor:
            cursor.execute("alter table customers add column email varchar(80)")
            cursor.execute("update customers set email = concat('c', id, '@example.org') where id <= 500")
            cursor.execute("update customers set id = 900001 where id = 7")
            cursor.execute("delete from customers where id = 8")
