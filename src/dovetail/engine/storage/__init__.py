"""Bytes outside memory: spilled rows, files that all hosts share, devices, and secrets that addresses hold."""
