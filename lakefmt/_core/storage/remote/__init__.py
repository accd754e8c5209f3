"""Stores over fsspec: S3, Google Cloud Storage and whatever else fsspec reaches.

``store`` is the common part; ``s3`` and ``gcs`` add conditional puts; ``client_errors`` translates what clients raise.
"""
