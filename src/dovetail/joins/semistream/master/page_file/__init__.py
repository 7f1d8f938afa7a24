"""Page files: immutable generations of pages in a directory, with an index.

* `source`: a page file by its path. `generation`: the directory, its versions and the versions that streams hold.
* `reader`: one open generation. `writer`: pages from Arrow rows. `index`: the dense index on disk.
"""
