"""Old place of lakefmt.filegroups.services; goes when nobody imports it."""

from lakefmt.filegroups.services import TableServices as WriteServices
from lakefmt.filegroups.services import drop_metadata_table, open_services, services_of

__all__ = ["WriteServices", "drop_metadata_table", "open_services", "services_of"]
