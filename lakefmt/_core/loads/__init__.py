"""HTTP two-phase loads: clients send CSV or JSON in requests of a transaction, and commit it at once (docs/http-loads.md).

`protocol` is what headers and replies say and their description as OpenAPI (pure). `csv_rows` and
`json_rows` cut and decode bodies, `bodies` unpacks them, `expressions` and `shape` make rows of the table of them. `journal` has the state machine and
stores transactions and their rows, `commit` puts those into tables. `service` answers requests, `http` brings them and says who may.
`mysql_port` tells Flink's sink what columns there are.
"""
