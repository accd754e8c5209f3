"""A destination of dlt: its pipelines load into lakefmt tables (docs/dlt.md). Needs ``lakefmt[dlt]``.

``dlt.pipeline("shop", destination=lakefmt.dlt.destination("/lake"))`` puts each table of the dataset at ``<base_path>/<dataset>/<table>``.
"""

from __future__ import annotations

from lakefmt._core.integrations.dlt_destination import destination, table_hints

__all__ = ["destination", "table_hints"]
