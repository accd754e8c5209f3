"""Loads over HTTP, measured."""
