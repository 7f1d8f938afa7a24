"""The functions that queries can call, declared by `registry`.

One file an area: `sequences`, `numbers`, `strings`, `dates`, `nodes`.
"""
