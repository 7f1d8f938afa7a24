"""Page files: immutable generations of pages in a directory, with an index.

* `generation`: the directory and its versions. `holds`: the versions that streams hold, and the removal of others.
  `reader`: a page file by its path, and one open generation; `tables`: what it has beside its pages; `decode`: its
  pages as rows. `writer`: pages and their index from Arrow rows; `range_file`: those of ranges.
* `changes`: what rows are after changes. `change_writer`: the pages that these touch, written again.
"""
