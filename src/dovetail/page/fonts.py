"""Fonts that are on every machine."""

from __future__ import annotations

SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', sans-serif"
