"""A streaming scan of XML files by path: only the requested elements are built."""

from dovetail.xml.scan.files import open_chunks
from dovetail.xml.scan.request import ROW, Column, ScanRequest, count_name
from dovetail.xml.scan.scanner import Scanner, check

__all__ = ["ROW", "Column", "ScanRequest", "Scanner", "check", "count_name", "open_chunks"]
