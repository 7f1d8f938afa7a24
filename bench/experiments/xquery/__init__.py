"""The experiments of XQuery over weather collections: more tasks, more data, and other processors beside it."""
