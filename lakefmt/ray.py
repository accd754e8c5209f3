"""Datasets of Ray Data, read from tables and written into them (docs/ray.md). Needs ``lakefmt[ray]``."""

from __future__ import annotations

from lakefmt._core.integrations.ray_data import read_ray, write_ray

__all__ = ["read_ray", "write_ray"]
