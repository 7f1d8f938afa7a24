"""Page files: immutable generations of pages in a directory, with an index.

* `generation`: the directory, its versions and the versions that streams hold. `reader`: a page file by its path, and
  one open generation. `writer`: pages and their index from Arrow rows.
"""
