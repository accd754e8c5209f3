"""HFiles that Apache Hudi wrote, by HBase's writer and by its own."""

from __future__ import annotations

import zipfile

import pyarrow as pa
import pytest

from lakefmt._core.formats.hfile_container import HFileOptions, HFileReader, encode_hfile
from tests.compat.fixture_tables import SHARED
from tests.formats.hfile.hfile_parts import DATA, REAL, log_contents

LOG = DATA.parent / "formats" / "log" / "v8-1.2.0-metadata-hfile.log"


def check_reader(data: bytes, what: str) -> int:
    """Read an HFile in every way and write it again; return how many records it holds."""
    reader = HFileReader.from_bytes(data, what)
    table = reader.read()
    keys = table["key"].combine_chunks()
    assert table.num_rows == reader.entry_count
    assert reader.lookup(keys).equals(table)
    assert reader.lookup_prefixes(keys).equals(table)
    assert reader.lookup_prefixes(pa.array([b""])).equals(table)
    assert reader.schema is not None
    assert '"HoodieMetadataRecord"' in reader.schema
    rewritten = encode_hfile(keys, table["value"], HFileOptions(schema=reader.schema))
    assert HFileReader.from_bytes(rewritten, what).read().equals(table)
    return table.num_rows


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_a_real_file(path):
    count = check_reader(path.read_bytes(), path.name)
    assert (count == 0) == path.stem.endswith("empty")
    reader = HFileReader.from_bytes(path.read_bytes(), path.name)
    assert reader.meta_block("bloomFilter") is not None
    assert reader.meta_block("other") is None
    keys = reader.read()["key"].to_pylist()
    assert (reader.info["minRecordKey"], reader.info["maxRecordKey"]) == ((keys[0], keys[-1]) if keys else (b"", b""))


def test_the_keys_of_a_real_file():
    reader = HFileReader.from_bytes((DATA / "v8-1.2.0-files.hfile").read_bytes(), "f.hfile")
    keys = reader.read()["key"].to_pylist()
    assert keys[0] == b"__all_partitions__"
    assert keys == sorted(keys)
    assert {key.decode() for key in keys} > {"__all_partitions__"}


def test_a_real_log_block():
    ((_, content),) = log_contents(LOG.read_bytes())
    assert check_reader(content, LOG.name) > 0


def test_a_changed_byte_of_a_real_file_changes_a_record():
    """The check above compares: a record that is not the same is seen."""
    data = (DATA / "v8-1.2.0-files.hfile").read_bytes()
    table = HFileReader.from_bytes(data, "f.hfile").read()
    values = table["value"].to_pylist()
    values[0] = values[0][:-1] + bytes([values[0][-1] ^ 1])
    changed = encode_hfile(table["key"], pa.array(values))
    assert not HFileReader.from_bytes(changed, "f.hfile").read().equals(table)


@pytest.mark.slow
@pytest.mark.skipif(
    not SHARED.is_dir(), reason="the folder of all real tables is not there: LAKEFMT_REAL_TABLES names it"
)
def test_every_hfile_of_the_shared_tables():
    files = blocks = records = 0
    for packed in sorted(SHARED.glob("*/*.zip")):
        with zipfile.ZipFile(packed) as archive:
            for name in archive.namelist():
                if "__MACOSX" in name or "/.hoodie/metadata/" not in name:
                    continue
                if name.endswith(".hfile"):
                    records += check_reader(archive.read(name), name)
                    files += 1
                elif ".log." in name and not name.endswith(".crc"):
                    for _, content in log_contents(archive.read(name)):
                        records += check_reader(content, name)
                        blocks += 1
    assert files > 150
    assert blocks > 400
    assert records > 4_000
