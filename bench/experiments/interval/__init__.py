"""The experiments on interval joins of Carman 2020."""
