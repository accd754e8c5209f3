"""HFile, the file format of Hudi's metadata table: sorted keys with a value each, in compressed blocks. Pure.

:mod:`~lakefmt._core.formats.hfile.reader` reads files of every Hudi release, :mod:`~lakefmt._core.formats.hfile.writer` makes files
that every release reads.
"""
