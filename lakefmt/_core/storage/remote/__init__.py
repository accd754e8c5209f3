"""Stores over fsspec: S3, Google Cloud Storage and whatever else fsspec reaches.

``store`` is the common part; ``s3`` and ``gcs`` add conditional puts; ``clients`` has what they
share: the bytes of an upload, and what errors mean.
"""
