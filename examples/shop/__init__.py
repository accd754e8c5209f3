"""A small shop in a real MariaDB, followed into three tables by a process that is killed in the middle: `make demo-cdc`."""
