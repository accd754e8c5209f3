"""HFile, the file format of Hudi's metadata table: sorted keys with a value each, in compressed blocks. Pure.

:mod:`~lakefmt._core.formats.hfile.container` reads files of every Hudi release and makes files that every release reads;
:mod:`~lakefmt._core.formats.hfile.blocks` has the bytes of their blocks.
"""
