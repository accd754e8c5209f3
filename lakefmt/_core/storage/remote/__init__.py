"""Stores over fsspec: S3, Google Cloud Storage and whatever else fsspec reaches.

``store`` is the common part; ``fsspec`` has the objects of any of its file systems, and those of Azure and Google Cloud with
conditional puts; ``s3`` those of S3. ``clients`` has what they share: the bytes of an upload, and what errors mean.
"""
